"""Worlds drawn at random."""

from __future__ import annotations

from itertools import count

import numpy as np
from worlds import KINDS, MOST, PAST_HOURS, draw


def test_a_number_is_always_the_same_world() -> None:
    first, again = draw(5), draw(5)
    assert first is not None
    assert again is not None
    assert (first.profile, first.pool, first.options) == (again.profile, again.pool, again.options)
    assert np.array_equal(first.trace.arrival, again.trace.arrival)
    assert np.array_equal(first.past.output, again.past.output)


def test_each_kind_is_met_with_a_past_that_is_another_draw_of_it() -> None:
    for first, kind in enumerate(KINDS):
        world = next(filter(None, map(draw, count(first, len(KINDS)))))
        assert world.kind == kind
        assert world.past.duration == 3600.0 * PAST_HOURS
        assert world.pool.max_replicas == MOST
        shared = min(len(world.trace), len(world.past), 20)
        assert not np.array_equal(world.trace.arrival[:shared], world.past.arrival[:shared]), world.kind
