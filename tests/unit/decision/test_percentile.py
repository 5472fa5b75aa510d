"""The percentile shown in status, while the buckets that it is taken from change."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision.observation import Histogram, Unknown
from servingpool.decision.observe.latency import Tail

SLOWEST = 2.0


def page(requests: float, *bounds: float, slowest: float = SLOWEST) -> Histogram:
    """Requests that took 0 to `slowest` seconds, all equally likely."""
    counts = tuple(requests * min(1.0, bound / slowest) for bound in bounds)
    return Histogram(bounds, counts, requests * slowest / 2.0, requests)


def seen(tail: Tail, *looks: dict[str, Histogram]) -> Tail:
    for look in looks:
        tail = tail.update(look, elapsed=15.0, memory=300.0)
    return tail


def test_buckets_that_change_do_not_empty_it() -> None:
    """Another tenant's pool, or an engine of another version, changed them, and the percentile was unknown."""
    tail = seen(Tail(), {"a": page(0.0, 1.0, 2.5)}, {"a": page(100.0, 1.0, 2.5)})
    before = tail.at(0.4)
    changed = seen(tail, {"a": page(150.0, 0.5, 1.0, 2.0, 2.5, 5.0)})
    assert changed.bounds == (0.5, 1.0, 2.0, 2.5, 5.0, math.inf)
    assert changed.at(0.4) == pytest.approx(before)
    assert seen(changed, {"a": page(400.0, 0.5, 1.0, 2.0, 2.5, 5.0)}).at(0.95) == pytest.approx(1.9, abs=0.1)


@given(more=st.lists(st.floats(0.01, 2.4), max_size=6), share=st.floats(0.5, 0.99))
def test_finer_buckets_change_no_percentile(more: list[float], share: float) -> None:
    tail = seen(Tail(), {"a": page(0.0, 0.5, 2.5)}, {"a": page(100.0, 0.5, 2.5)})
    finer = sorted({0.5, 2.5, *more})
    assert seen(tail, {"a": page(100.0, *finer)}).at(share) == pytest.approx(tail.at(share))


def test_during_a_rollout_engines_with_other_buckets_count_in_either_order() -> None:
    """The first replica's buckets were taken for all, and those of the others left out."""
    first = {"old": page(0.0, 1.0, 2.5), "new": page(0.0, 0.8, 1.6, 2.4)}
    then = {"old": page(50.0, 1.0, 2.5), "new": page(50.0, 0.8, 1.6, 2.4)}
    tails = [seen(Tail(), first, then), seen(Tail(), first, dict(reversed(then.items())))]
    assert tails[0].bounds == tails[1].bounds == (0.8, 1.0, 1.6, 2.4, math.inf)
    assert tails[0].counts == pytest.approx(tails[1].counts)
    assert tails[0].counts[-1] == 100.0
    assert tails[0].at(0.5) == pytest.approx(1.0, abs=0.2)


def test_what_lies_beyond_the_last_bound_is_not_placed_on_longer_ones() -> None:
    """Half of the requests took 5 to 10 s. Placed beyond 20 s they would show a percentile that nobody waited for."""
    slow = seen(Tail(), {"a": page(0.0, 2.5, 5.0, slowest=10.0)}, {"a": page(100.0, 2.5, 5.0, slowest=10.0)})
    longer = seen(slow, {"a": page(150.0, 5.0, 10.0, 20.0, slowest=10.0)})
    assert isinstance(longer.at(0.95), Unknown)
    again = seen(longer, {"a": page(200.0, 5.0, 10.0, 20.0, slowest=10.0)})
    assert again.at(0.95) == pytest.approx(9.5)
