"""The queries. Their number depends neither on pools nor on pods.

One expression returns whole samples, values and scrape time together, because Prometheus evaluates one
expression on one snapshot, in which a scrape is either complete or absent. Were counters and their time
asked for one after the other, a scrape in between would pair new counts with an old time, and every rate
taken from them would be wrong by an interval.

No rates are taken here: the decision core takes cumulative values and finds resets itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from servingpool.adapters.prometheus.backend_config import GatewayQueue, SeriesLabels
from servingpool.adapters.prometheus.engines import EngineProfile

# A ReplicaSet's pods end in one of the first 27 characters, evenly; a StatefulSet's in a digit; nothing
# ends in anything else, for names are DNS labels. So this cuts pods into slices without knowing any.
_POD_ENDINGS = "bcdfghjklmnpqrstvwxz2456789" + "aeiouy013"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which pods a query is about."""

    match_labels: tuple[tuple[str, str], ...] = ()
    namespaces: tuple[str, ...] = ()
    """All where empty."""
    models: tuple[str, ...] = ()
    """Likewise."""
    pods: str = ""
    """A regular expression that a pod's name matches; likewise."""
    endings: str = ""
    """Last characters of the pods' names; any where empty."""

    def slices(self, number: int) -> list[Scope]:
        """Disjoint scopes that together hold the same pods, of about the same size."""
        if number <= 1:
            return [self]
        return [replace(self, endings=_POD_ENDINGS[start::number]) for start in range(number)]


@dataclass(frozen=True, slots=True)
class Queries:
    """Writes the queries for one engine's series as one Prometheus labels them."""

    profile: EngineProfile
    labels: SeriesLabels = field(default_factory=SeriesLabels)

    @property
    def identity(self) -> tuple[str, str, str]:
        """The labels that say whose sample it is: namespace, pod, model."""
        return (self.labels.namespace, self.labels.pod, self.profile.model_label)

    @property
    def owned(self) -> tuple[tuple[str, str], ...]:
        """Each label of the identity, and the one that wins over it where a series has it.

        Empty where none does: a sample may name its model, and not whose pod it is, unless the configuration says so.
        """
        namespace, pod, model = self.identity
        trusted = self.labels.exported
        return (
            (namespace, exported(namespace) if trusted else ""),
            (pod, exported(pod) if trusted else ""),
            (model, exported(model)),
        )

    @property
    def histograms(self) -> list[str]:
        """The names of all histograms of the profile, old names included."""
        return sorted({name for names in self.profile.histograms.values() for name in names})

    def buckets(self, scope: Scope) -> str:
        """How many series there are of each bucket: (`__name__`, `le`) -> count."""
        bases = [f"{name}_bucket" for name in self.histograms]
        return f"count by (__name__, le) ({' or '.join(self._select(bases, scope))})"

    def samples(self, buckets: Mapping[str, Collection[str]], scope: Scope) -> str:
        """All figures of every sample: `__name__` (and `le`) tell which; a row without `__name__` is the scrape time.

        `buckets`: histogram -> the texts of `le` wanted.
        """
        profile = self.profile
        plain = [name for names in profile.sums.values() for name in names]
        plain += [f"{name}_{part}" for name in self.histograms for part in ("sum", "count")]
        terms = [f"sum by ({self._by('__name__')}) ({self._once(self._select(plain, scope))})"]
        for index, (name, texts) in enumerate(buckets.items()):
            if texts:
                series = self._select([f"{name}_bucket"], scope, f"le=~{_any_of(sorted(texts))}")
                counts = f"sum by ({self._by('__name__', 'le')}) ({self._once(series, 'le')})"
                terms.append(_apart(counts, f"histogram-{index}"))
        clock = self._select(profile.sums[profile.scrape_clock], scope)
        times = " or ".join(f"timestamp({selector})" for selector in clock)
        terms.append(_apart(f"max by ({self._by()}) ({times})", "times"))
        return " or ".join(terms)

    def _once(self, selectors: Sequence[str], *more: str) -> str:
        """Each figure of a sample once.

        A pod matched by a ServiceMonitor and by a PodMonitor, or seen by both of a pair of Prometheus servers,
        would else count double.
        """
        own = self.profile.page_labels
        labels = self._by("__name__", *more, *own, *(exported(name) for name in own))
        return f"max by ({labels}) ({' or '.join(selectors)})"

    def _by(self, *more: str) -> str:
        return ", ".join((*more, *self.identity, *(own for _, own in self.owned if own)))

    def _select(self, names: Sequence[str], scope: Scope, *matchers: str) -> list[str]:
        """Selectors whose union is wanted: two where a namespace or a model may be under either of two labels."""
        _, pod, model = self.identity
        common = [
            f"__name__=~{_any_of(names)}",
            f'{model}!=""',
            f'{pod}=~".+[{scope.endings}]"' if scope.endings else f'{pod}!=""',
            *(
                f"{own}!={quote(value)}"
                for name, value in self.profile.excluded.items()
                for own in (name, exported(name))
            ),
            *matchers,
            *(f"{name}={quote(value)}" for name, value in scope.match_labels),
        ]
        ways = [common]
        for wanted, labels in ((scope.namespaces, self.owned[0]), (scope.models, self.owned[2])):
            if wanted:
                ways = [[*way, f"{label}=~{_any_of(wanted)}"] for way in ways for label in labels if label]
        if scope.pods:
            ways = [[*way, f"{label}=~{quote(scope.pods)}"] for way in ways for label in self.owned[1] if label]
        return [f"{{{','.join(way)}}}" for way in ways]


def gateway_queue(gateway: GatewayQueue, staleness: float) -> str:
    """Requests held per model, and namespace where configured, from samples at most `staleness` seconds old."""
    matchers = ",".join(f"{name}={quote(value)}" for name, value in gateway.match_labels.items())
    series = f"{gateway.metric}{{{matchers}}}"
    by = ", ".join(label for label in (gateway.model_label, gateway.namespace_label) if label)
    return f"sum by ({by}) ({series} and timestamp({series}) > time() - {staleness:g})"


def _apart(term: str, part: str) -> str:
    """Label a term's rows, so that `or` keeps them.

    `or` leaves metric names out when it compares label sets, and drops the rows on its right that have an equal
    on its left: the scrape time would vanish behind the number of running requests.
    """
    return f'label_replace({term}, "part", "{part}", "", "")'


def exported(label: str) -> str:
    """What Prometheus renames a sample's own label to where scraping added one of that name (`honorLabels: false`)."""
    return f"exported_{label}"


def quote(value: str) -> str:
    """A PromQL string. Go's escapes, which PromQL uses, include all that JSON's encoder writes."""
    return json.dumps(value, ensure_ascii=False)


def _any_of(values: Iterable[str]) -> str:
    return quote("|".join(re.escape(value) for value in values))
