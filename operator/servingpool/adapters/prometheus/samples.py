"""Requests to a backend and its replies: the metrics samples of all its pods at about one time.

One query serves all pools, so it asks for the buckets of all their SLOs' bounds. Each pool is handed its own samples
and its own buckets only, else pools of other tenants would change them.

A row of the reply is about 210 bytes and costs 1.8 microseconds to read; with 20,000 pods each bucket is 4 MB
and 36 ms a tick. The SLO needs the two around each bound, and a percentile for the status a few more on either side.
vLLM has 43 in the two histograms with a bound.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from servingpool.adapters.prometheus.diagnosis import Cause, Missing, PodKey
from servingpool.adapters.prometheus.engines import EngineMetrics, profile_of
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, LABEL_NAME
from servingpool.adapters.prometheus.promql import ADDRESS
from servingpool.adapters.prometheus.rows import MOST_BUCKETS, Unread, bound_of
from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown

PodSamples = Mapping[PodKey, Mapping[str, ReplicaMetrics]]
"""Samples of a pod by model name: one, unless the pod serves several."""
ANY_MODEL = ""
"""Stands for the model's name where an engine's series carry none."""

MOST_ASIDE = 4
"""Buckets taken on one side of a bound, or around a neighbour, where pods have different buckets."""
PARTS = {part: Unknown(f"Prometheus has its histogram without {part}") for part in ("buckets", "sum", "count")}
"""What a sample has in place of a histogram of which Prometheus lacks this part."""
_NEIGHBOURS = (2.0, 0.5, 4.0, 0.25)
"""Of a bound: the buckets nearest to these multiples of it are read for the percentile."""
_EQUAL = 1e-9
_LABEL_NAME = re.compile(LABEL_NAME)
_NAMED = 3
"""Pods that a sentence names before it counts."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Part of a reading that pools of the same engine and the same `matchLabels` share: one request serves them all."""

    engine: str = "vllm"
    ttft_bounds: frozenset[float] = frozenset()
    """Every TTFT bound, in seconds, of these pools' SLOs: the buckets around them are read."""
    tpot_bounds: frozenset[float] = frozenset()
    """Every TPOT bound of these pools, in seconds."""
    match_labels: tuple[tuple[str, str], ...] = ()
    """Label names and exact values that a series must carry, sorted by name."""
    models: frozenset[str] = frozenset()
    """Served models; all where empty."""
    pods: str = ""
    """A regular expression that a pod's whole name matches; anything where empty."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces of the pods that are asked for; empty for all. A history names its own."""
    explain: frozenset[PodKey] = frozenset()
    """Pods that had no sample when they were last read: the reading is to say why."""
    gateway: bool = False
    """`engine` is the name of a gateway, whose pods are read."""
    recorded: bool = False
    """Also the figure that serves recorded histories alone."""

    def __post_init__(self) -> None:
        for name, _ in self.match_labels:
            if not _LABEL_NAME.fullmatch(name):
                raise ValueError(f"'{name}' is no Prometheus label name: use letters, digits and _, no digit first")


class NotAsked(Unknown):
    """The query was never sent: the backend answered other queries until the deadline."""

    __slots__ = ()


class TooLarge(Unknown):
    """The backend answered with more than is taken, or it takes longer than is waited for. Of less it may tell."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Part of a reading for one pool."""

    samples: tuple[ReplicaMetrics, ...]
    missing: Mapping[str, Missing]
    """Reasons why pods have no sample, by pod name."""
    doubled: tuple[str, ...] = ()
    """Pods with a sample that may be of two engines, see `Layout.doubled`; sorted."""

    native: tuple[str, ...] = ()
    """Pods whose histograms Prometheus stores as native histograms only; sorted."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Parts of pods that could not be read, whether they have a sample or not."""

    def explain(self) -> str:
        """Sentence on the missing pods, with pods that fail alike together; empty where none is missing.

        By name, for what the watch shows first is no news.
        """
        return alike({pod: missing.reason for pod, missing in self.missing.items()})


@dataclass(frozen=True, slots=True)
class FleetReading:
    """Every fresh sample that a backend holds for a request."""

    at: float
    """Unix time of the evaluation by Prometheus's clock, which `scraped_at` is by too."""
    samples: PodSamples
    stale: Mapping[PodKey, float]
    """Seconds since the last scrape of pods whose samples were too old to use."""
    queries: int = 0
    profile: EngineMetrics = field(default_factory=lambda: profile_of("vllm"))
    """Profile by which the fleet was read."""
    causes: Mapping[PodKey, Missing] = field(default_factory=dict)
    """Why pods in the request's `explain` have no sample."""
    doubled: frozenset[PodKey] = frozenset()
    """Pods whose series came from several addresses when the buckets were looked up."""
    native: frozenset[PodKey] = frozenset()
    """Pods whose histograms Prometheus stored as native histograms only."""
    unread: Unread = field(default_factory=Unread)
    """Series that could not be read, of pods with or without a sample."""

    def select(self, namespace: str, pods: Iterable[str], model: str) -> Selection:
        """The samples of these pods for this model, and why the others have none."""
        found, missing, doubled, native = [], {}, [], []
        unreadable: dict[str, str] = {}
        for pod in pods:
            models = self.samples.get((namespace, pod), {})
            sample, key = sample_of(models, model), (namespace, pod)
            native += [pod] if key in self.native else []
            unreadable |= {pod: self.unread.pods[key]} if key in self.unread.pods else {}
            if sample is not None:
                found.append(sample)
                doubled += [pod] if key in self.doubled else []
            else:
                missing[pod] = self._why(namespace, pod, model, models)
        return Selection(tuple(found), missing, tuple(sorted(doubled)), tuple(sorted(native)), unreadable)

    def _why(self, namespace: str, pod: str, model: str, models: Mapping[str, ReplicaMetrics]) -> Missing:
        known = self.causes.get((namespace, pod))
        if known is not None and known.cause is Cause.AMBIGUOUS:
            return known
        if models:
            others = ", ".join(f"'{name}'" for name in sorted(models)[:_NAMED])
            label = self.profile.model_label
            said = f"The pods export {label} {others}, and spec.model is '{model}': set spec.model to "
            return Missing(said + (others if len(models) == 1 else "one of these"), Cause.OTHER_MODEL)
        age = self.stale.get((namespace, pod))
        if age is not None:
            return Missing(f"Last scraped {age:.0f} s ago", Cause.STALE)
        if known is None and self.unread.count and not self.samples:
            return Missing(f"No sample, and {self.unread.count} rows of the answer could not be read")
        return known or Missing(f"Not scraped, or {self.profile.silent}")


def sample_of(models: Mapping[str, ReplicaMetrics], model: str) -> ReplicaMetrics | None:
    """A pod's sample of this model; None where it has none."""
    return models.get(model, models.get(ANY_MODEL))


def lost_parts(samples: Iterable[ReplicaMetrics]) -> list[str]:
    """Parts of histograms that some sample lacks. An engine exports all or none, so a monitor drops them."""
    read = [(one.field.replace("_", " "), getattr(sample, one.field)) for sample in samples for one in HISTOGRAMS[:3]]
    return sorted({f"the {part} of {name}" for name, told in read for part, why in PARTS.items() if told is why})


class BucketCount(NamedTuple):
    """How many series there are of a bucket in a namespace."""

    histogram: str
    le: str
    series: float
    namespace: str = ""


class Buckets(NamedTuple):
    """Buckets of a histogram in a namespace, or in several that have the same."""

    bounds: tuple[float, ...]
    """Upper bounds in seconds: finite, ascending."""
    rare: frozenset[float]
    """Buckets that some pods lack."""
    texts: tuple[frozenset[str], ...]
    """To each bound how `le` is written: `1` or `1.0`, by the version of Prometheus and the format it scraped."""

    @classmethod
    def of(cls, counts: Mapping[float, int], texts: Mapping[float, frozenset[str]]) -> Buckets:
        """The buckets of these bounds: where they are too many, those that most pods have."""
        most = heapq.nlargest(MOST_BUCKETS, counts, key=lambda bound: (counts[bound], -bound))
        bounds, everyone = tuple(sorted(most)), max(counts.values(), default=0)
        rare = frozenset(bound for bound in bounds if counts[bound] < everyone)
        return cls(bounds, rare, tuple(texts[bound] for bound in bounds))


@dataclass(frozen=True, slots=True)
class Layout:
    """Buckets of the histograms, by namespace."""

    buckets: Mapping[str, Collection[Buckets]]
    """Buckets by the histogram's name, without doubles: most namespaces have the same."""
    engines: int
    """Engines that expose any of the histograms."""
    doubled: frozenset[PodKey] = frozenset()
    """Pods whose series come from several addresses."""
    native: frozenset[PodKey] = frozenset()
    """Pods whose histograms Prometheus stores as native histograms only."""
    targets: tuple[str, ...] = ADDRESS
    """Labels that tell the targets apart that scrape one pod."""
    unread: Unread = field(default_factory=Unread)
    """Rows that could not be read."""

    @classmethod
    def read(cls, counts: Iterable[BucketCount], doubled: Iterable[PodKey] = (), **more: Any) -> Layout:
        """The layout by these counts. ValueError if an `le` is no number."""
        pods: defaultdict[tuple[str, str], Counter[float]] = defaultdict(Counter)
        texts: defaultdict[tuple[str, str], dict[float, frozenset[str]]] = defaultdict(dict)
        engines: Counter[str] = Counter()
        for name, text, count, namespace in counts:
            engines[namespace] = max(engines[namespace], int(count))
            bound = bound_of(text)
            if not math.isinf(bound):
                which = name, namespace
                pods[which][bound] += int(count)
                # An upgrade of Prometheus may change the text between two looks at the layout: "5.0" and "5".
                spelt = (repr(bound), str(int(bound))) if bound.is_integer() else (repr(bound),)
                texts[which][bound] = texts[which].get(bound, frozenset(spelt)) | {text}
        found: defaultdict[str, dict[Buckets, None]] = defaultdict(dict)
        for which, each in pods.items():
            found[which[0]][Buckets.of(each, texts[which])] = None
        return cls({name: tuple(each) for name, each in found.items()}, engines.total(), frozenset(doubled), **more)

    def choose(self, name: str, bounds: Collection[float]) -> dict[float, frozenset[str]]:
        """The buckets of a histogram to read for these SLO bounds, ascending, with their texts.

        What is read for one bound does not depend on the others, and for one namespace not on the pods of others: their
        buckets around the bound would else push out its own.
        """
        found: dict[float, frozenset[str]] = {}
        for there in self.buckets.get(name, ()):
            for place in {place for bound in bounds for place in _places(there.bounds, there.rare, bound)}:
                le = there.bounds[place]
                found[le] = found.get(le, frozenset()) | there.texts[place]
        return dict(sorted(found.items()))


def with_own_buckets(sample: ReplicaMetrics, ttft: float | None, tpot: float | None) -> ReplicaMetrics:
    """The sample with the buckets that an SLO of these bounds (seconds) needs, whatever was read for other pools.

    A histogram with a bound and without buckets is Unknown: all its requests would count as late.
    """
    each = {"time_to_first_token": ttft, "inter_token_latency": None, "time_per_output_token": tpot}
    own: dict[str, Any] = {name: _own(getattr(sample, name), bound) for name, bound in each.items()}
    return sample if all(getattr(sample, name) is one for name, one in own.items()) else replace(sample, **own)


def _own(histogram: Histogram | Unknown, bound: float | None) -> Histogram | Unknown:
    if isinstance(histogram, Unknown):
        return histogram
    if bound is not None and not histogram.bounds:
        return PARTS["buckets"] if histogram.count else histogram
    places = () if bound is None else _places(histogram.bounds, frozenset(), bound)
    if len(places) == len(histogram.bounds):
        return histogram
    bounds, counts = ([column[place] for place in places] for column in (histogram.bounds, histogram.counts))
    return Histogram(tuple(bounds), tuple(counts), histogram.total, histogram.count)


@lru_cache(maxsize=4_096)
def _places(bounds: tuple[float, ...], rare: frozenset[float], bound: float) -> tuple[int, ...]:
    """Where among ascending bounds the two around `bound` are, and its neighbours. `rare`: some pods lack them."""
    above = bisect_right(bounds, bound * (1 + _EQUAL))
    orders = [bounds[:above][::-1], bounds[above:]]
    orders += [tuple(sorted(bounds, key=_from(bound * factor))) for factor in _NEIGHBOURS]
    needed = {le for order in orders for le in _until_shared(order, rare)}
    return tuple(place for place, le in enumerate(bounds) if le in needed)


def _from(value: float) -> Callable[[float], float]:
    """How far a bucket is from a value."""
    return lambda le: abs(math.log(le / value)) if le > 0 else math.inf


def _until_shared(order: tuple[float, ...], rare: frozenset[float]) -> tuple[float, ...]:
    """In this order, up to a bucket that every pod has: then each pod's own first one is among them."""
    shared = next((place for place, le in enumerate(order) if le not in rare), MOST_ASIDE)
    return order[: min(shared + 1, MOST_ASIDE)]


def alike(reasons: Mapping[str, str]) -> str:
    """Each reason, and the pods for which it is the same."""
    same: dict[str, list[str]] = {}
    for pod in sorted(reasons):
        same.setdefault(reasons[pod], []).append(pod)
    return ". ".join(f"{reason} ({_counted(pods)})" for reason, pods in same.items())


def _counted(pods: list[str]) -> str:
    return f"pod {pods[0]}" if len(pods) == 1 else f"{len(pods)} pods: {named(pods)}"


def named(pods: Sequence[str]) -> str:
    """The first pods by name, and how many more there are."""
    more = len(pods) - _NAMED
    return f"{', '.join(pods[:_NAMED])} and {more} more" if more > 0 else ", ".join(pods)
