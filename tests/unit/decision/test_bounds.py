"""Which bounds are in force, and what the user's own limits do to a fleet."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decision import Verdict
from servingpool.decision.learn.kinds import ColdStart
from servingpool.decision.pool import Pool, Window

from .world import POOL, START, World, applied

NOW = START
AHEAD = 115.0


def window(
    name: str = "day", begin: float = -3600.0, end: float = 3600.0, least: int | None = None, most: int | None = None
) -> Window:
    """From and to in seconds from now."""
    return Window(name, NOW + begin, NOW + end, least, most)


def in_force(*windows: Window, pool: Pool = POOL, now: float = NOW) -> tuple[str, str]:
    """As a person reads it, of a pool of 1 to 10 replicas."""
    bounds = replace(pool, windows=windows).bounds(now, AHEAD)
    return str(bounds.least), str(bounds.most)


def test_a_window_in_force_replaces_both_bounds():
    assert in_force(window(least=4, most=20)) == ("4 by schedule day", "20 by schedule day")


def test_a_bound_that_a_window_leaves_out_is_the_pool_s_own():
    assert in_force(window(most=3)) == ("1", "3 by schedule day")
    assert in_force(window(least=3)) == ("3 by schedule day", "10")


def test_of_several_windows_the_highest_min_and_the_highest_max_count():
    night, launch = window("night", most=4), window("launch", least=6)
    assert in_force(night, launch) == ("6 by schedule launch", "10")
    assert in_force(window("a", least=2, most=3), window("b", least=1, most=7)) == (
        "2 by schedule a",
        "7 by schedule b",
    )


def test_a_window_ends_with_the_second_that_it_names():
    one = window(end=60.0, least=4)
    assert in_force(one, now=NOW + 59.0) == ("4 by schedule day", "10")
    assert in_force(one, now=NOW + 60.0) == ("1", "10")


def test_a_rise_is_in_force_one_cold_start_ahead_and_says_when_its_window_begins():
    one = window(begin=100.0, least=4, most=20)
    begins = "by schedule day, which begins in 100 s"
    assert in_force(one) == (f"4 {begins}", f"20 {begins}")
    assert in_force(one, now=NOW - 16.0) == ("1", "10")


def test_a_window_that_lowers_counts_from_its_begin():
    one = window(begin=100.0, least=1, most=3)
    assert in_force(one, pool=replace(POOL, min_replicas=2)) == ("2", "10")
    assert in_force(one, pool=replace(POOL, min_replicas=2), now=NOW + 100.0) == (
        "1 by schedule day",
        "3 by schedule day",
    )


def test_a_pool_refuses_windows_whose_bounds_contradict_its_own():
    with pytest.raises(ValueError, match="got min 1, max 0 by schedule day"):
        replace(POOL, windows=(window(most=0),))


bounds = st.one_of(st.none(), st.integers(0, 9))
windows = st.builds(
    window,
    name=st.sampled_from("abcd"),
    begin=st.floats(-300, 300),
    end=st.floats(0, 600),
    least=bounds,
    most=st.one_of(st.none(), st.integers(9, 20)),
) | st.builds(window, name=st.sampled_from("ef"), least=st.just(None), most=st.integers(4, 20))


@given(st.lists(windows, max_size=6), st.randoms(use_true_random=False))
def test_no_windows_contradict_each_other_and_their_order_does_not_matter(found, random):
    pool = replace(POOL, min_replicas=4)
    ordered = replace(pool, windows=tuple(found)).bounds(NOW, AHEAD)
    assert ordered.least.replicas <= ordered.most.replicas
    random.shuffle(found)
    assert replace(pool, windows=tuple(found)).bounds(NOW, AHEAD) == ordered


def test_replicas_of_a_higher_min_serve_when_its_window_begins():
    """A cold start of 200 s was measured, where 2 minutes are assumed."""
    world = World(replicas=1, cold_start=200.0)
    world.run(1.0, 10)
    (kind,) = world.memory.profile.kinds
    slow = replace(kind, cold_start=ColdStart((200.0,)))
    world.memory = replace(world.memory, profile=replace(world.memory.profile, kinds=(slow,)))
    begin = world.now + 600.0
    world.pool = replace(POOL, min_replicas=1, windows=(Window("day", begin, begin + 3600.0, 6, None),))
    ordered = None
    while world.now < begin:
        outcome = world.tick(1.0)
        if ordered is None and outcome.decision.replicas == 6:
            ordered = outcome.decision
    assert ordered is not None
    assert begin - 215.0 <= ordered.at <= begin - 200.0
    assert len(world.engines) == 6, "all are ready"
    assert f"min is 6 by schedule day, which begins in {begin - ordered.at:.0f} s" in ordered.reason
    held = world.tick(1.0)
    assert "min is 6 by schedule day" in held.decision.reason
    assert "begins in" not in held.decision.reason


def test_a_window_holds_while_nothing_can_be_read():
    world = World(replicas=2, blind=True)
    world.pool = replace(POOL, windows=(window(least=5), window("night", begin=600.0, most=3)))
    assert world.tick(1.0).decision.replicas == 5
    world.pool = replace(POOL, windows=(window("night", most=3),))
    down = world.tick(1.0).decision
    assert (down.replicas, down.verdict) == (3, Verdict.SCALE_DOWN)
    assert "max is 3 by schedule night" in down.reason


def test_no_change_is_larger_than_the_largest_that_is_allowed():
    world = World(replicas=2, pool=replace(POOL, max_change=2))
    sizes = [world.requested]
    for rate in (5.0, 80.0, 1.0):
        for _ in range(240):
            outcome = world.tick(rate)
            sizes.append(world.requested)
            for limit in outcome.decision.limits:
                if limit.name is LimitName.MAX_CHANGE:
                    assert abs(limit.after - sizes[-2]) == 2 < abs(limit.before - sizes[-2])
                    assert limit.reason == f"this step stops at {limit.after:g}: maxChangePerStep is 2"
    changes = [after - before for before, after in pairwise(sizes)]
    assert (max(changes), min(changes)) == (2, -2)
    assert max(sizes) > 6


def test_min_and_max_are_reached_in_steps_too():
    world = World(replicas=1, blind=True, pool=replace(POOL, min_replicas=6, max_change=2))
    assert [world.tick(1.0).decision.replicas for _ in range(4)] == [3, 5, 6, 6]
    world.pool = replace(POOL, max_replicas=3, max_change=2)
    outcomes = [world.tick(1.0) for _ in range(3)]
    assert [outcome.decision.replicas for outcome in outcomes] == [4, 3, 3]
    assert LimitName.MAX_CHANGE in applied(outcomes[0])
    assert LimitName.MAX_CHANGE not in applied(outcomes[1])
