"""Which histogram buckets exist, which are worth transferring, and which of those are one pool's own.

A row of the reply is about 210 bytes and costs 1.8 microseconds to read; with 20,000 pods each bucket is 4 MB
and 36 ms a tick. The SLO needs the two around each bound, and a percentile for the status a few more on either side.
One query serves all pools, so it asks for the buckets of all their bounds. The engine limits that: vLLM has 43 in the
two histograms with a bound. Each pool is handed its own buckets only, else pools of other tenants would change them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown

MOST_ASIDE = 4
"""Buckets taken on one side of a bound, or around a neighbour, where pods have different buckets."""
NO_BUCKETS = Unknown("its buckets near the SLO's bound are not known yet")
_NEIGHBOURS = (2.0, 0.5, 4.0, 0.25)
"""Of a bound: the buckets nearest to these multiples of it are read for the percentile."""
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Bucket:
    """One upper bound as pods expose it."""

    pods: int
    """How many engines have it."""
    texts: frozenset[str]
    """How `le` is written: `1` or `1.0`, by the version of Prometheus and the format it scraped."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The buckets found: histogram name -> upper bound in seconds (finite ones) -> bucket."""

    buckets: Mapping[str, Mapping[float, Bucket]]
    engines: int
    """Engines that expose any of the histograms."""

    @classmethod
    def read(cls, counts: Iterable[tuple[str, str, float]]) -> Layout:
        """From (histogram, text of `le`, number of series). ValueError if `le` is no number."""
        found: dict[str, dict[float, Bucket]] = {}
        engines = 0
        for name, text, count in counts:
            engines = max(engines, int(count))
            bound = float(text)
            buckets = found.setdefault(name, {})
            if not math.isinf(bound):
                before = buckets.get(bound, Bucket(0, frozenset(_spellings(bound))))
                buckets[bound] = Bucket(before.pods + int(count), before.texts | {text})
        return cls(found, engines)

    def choose(self, name: str, bounds: Collection[float], *, neighbours: bool = True) -> dict[float, frozenset[str]]:
        """The buckets of a histogram to read for these SLO bounds, ascending, with their texts.

        What is read for one bound does not depend on the others.
        """
        buckets = self.buckets.get(name, {})
        ascending = tuple(sorted(buckets))
        everyone = max((bucket.pods for bucket in buckets.values()), default=0)
        rare = frozenset(le for le in ascending if buckets[le].pods < everyone)
        chosen = {place for bound in bounds for place in _places(ascending, rare, bound, neighbours=neighbours)}
        return {ascending[place]: buckets[ascending[place]].texts for place in sorted(chosen)}


def with_own_buckets(page: ReplicaMetrics, ttft: float | None, tpot: float | None) -> ReplicaMetrics:
    """The page with the buckets that an SLO of these bounds (seconds) needs, whatever others were read for other pools.

    A histogram with a bound and without buckets is Unknown: all its requests would count as late.
    """
    own = (
        _own(page.time_to_first_token, ttft),
        _own(page.inter_token_latency, None),
        _own(page.time_per_output_token, tpot),
        _own(page.queue_time, ttft, neighbours=False),
    )
    read = (page.time_to_first_token, page.inter_token_latency, page.time_per_output_token, page.queue_time)
    if own == read:
        return page
    return replace(
        page,
        time_to_first_token=own[0],
        inter_token_latency=own[1],
        time_per_output_token=own[2],
        queue_time=own[3],
    )


def _own(histogram: Histogram | Unknown, bound: float | None, *, neighbours: bool = True) -> Histogram | Unknown:
    if isinstance(histogram, Unknown):
        return histogram
    if bound is not None and not histogram.bounds:
        return NO_BUCKETS
    places = () if bound is None else _places(histogram.bounds, frozenset(), bound, neighbours=neighbours)
    if len(places) == len(histogram.bounds):
        return histogram
    bounds, counts = ([column[place] for place in places] for column in (histogram.bounds, histogram.counts))
    return Histogram(tuple(bounds), tuple(counts), histogram.total, histogram.count)


@lru_cache(maxsize=16_384)
def _places(bounds: tuple[float, ...], rare: frozenset[float], bound: float, *, neighbours: bool) -> tuple[int, ...]:
    """Where among ascending bounds the two around `bound` are, and its neighbours. `rare`: some pods lack them."""
    above = bisect_right(bounds, bound * (1 + _EQUAL))
    orders = [bounds[:above][::-1], bounds[above:]]
    if neighbours:
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


def _spellings(bound: float) -> tuple[str, ...]:
    """Both, whichever was seen: a Prometheus upgrade changes it between two looks at the layout."""
    return (repr(bound), str(int(bound))) if bound.is_integer() else (repr(bound),)
