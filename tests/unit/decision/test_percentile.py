"""The percentile shown in status, while the buckets that it is taken from change."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision.observation import Histogram, Unknown
from servingpool.decision.observe.latency import LatencyCount, Tail

SLOWEST = 2.0


def page(requests: float, *bounds: float, slowest: float = SLOWEST) -> Histogram:
    """Requests that took 0 to `slowest` seconds, all equally likely."""
    counts = tuple(requests * min(1.0, bound / slowest) for bound in bounds)
    return Histogram(bounds, counts, requests * slowest / 2.0, requests)


def seen(tail: Tail, *looks: dict[str, Histogram]) -> Tail:
    for look in looks:
        tail = tail.update(look, elapsed=15.0, memory=300.0)
    return tail


@given(steps=st.lists(st.floats(200.0, 1000.0), min_size=4, max_size=4), share=st.floats(0.5, 0.99))
def test_beyond_it_as_many_are_late_as_it_leaves(steps: list[float], share: float) -> None:
    """A TTFT p95 of 2.02 to 2.16 s over a bound of 2 s stood beside 95.5% attained: each was interpolated in its way."""
    bounds, counts = (0.5, 1.0, 2.5), tuple(accumulate(steps))
    none, some = (Histogram(bounds, shown[:3], 0.0, shown[3]) for shown in ((0.0,) * 4, counts))
    bound = seen(Tail(), {"a": none}, {"a": some}).at(share)
    if isinstance(bound, Unknown) or bound in {0.0, *bounds}:
        return
    at = bisect_left(bounds, bound)
    count = LatencyCount.split(counts[3], (0.0, *counts)[at], counts[at])
    assert count.misses(count, ((0.0, *bounds)[at], bounds[at]), bound).share == pytest.approx(1.0 - share, abs=0.002)


def test_buckets_that_change_empty_it_for_a_look_and_the_most_frequent_ones_count() -> None:
    """During a rollout the first replica's buckets were taken for all, whoever had others."""
    tail = seen(Tail(), {"a": page(0.0, 1.0, 2.5)}, {"a": page(100.0, 1.0, 2.5)})
    other = {"b": page(100.0, 1.6, 2.4), "c": page(100.0, 1.6, 2.4)}
    assert seen(tail, {"a": page(200.0, 1.0, 2.5), "b": page(100.0, 1.6, 2.4)}).bounds == (1.0, 2.5, math.inf)
    changed = seen(tail, {"a": page(200.0, 1.0, 2.5), **other})
    assert (changed.bounds, isinstance(changed.at(0.5), Unknown)) == ((1.6, 2.4, math.inf), True)
    then = {"a": page(300.0, 1.0, 2.5), "b": page(200.0, 1.6, 2.4), "c": page(200.0, 1.6, 2.4)}
    assert seen(changed, then).counts[-1] == 200.0
    bare = seen(Tail(), {"a": page(0.0)}, {"a": page(9.0)})
    assert bare.at(0.5) == Unknown("the engine exports no buckets of it")
