"""That no fleet size holds the SLO is a belief, and a belief saves no replica while too many requests miss."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servingpool.catalogue.limits import LimitName
from servingpool.decision.bound import _while_misses_remain
from servingpool.decision.decision import Limited
from servingpool.decision.engine import StepTime
from servingpool.decision.learn.memory import UpdateResult
from servingpool.decision.need.planning import plan
from servingpool.decision.observe.columns import Column
from servingpool.decision.params import DEFAULT
from servingpool.decision.plan import Plan

from .test_costs import of_one
from .world import POOL, World


def limited(missed: float, replicas: int, requested: int = 8) -> Limited:
    """The answer for `replicas`, where 20% are believed to miss at any size, and a fleet is sized for 24%."""
    world = World(replicas=requested, obey=False)
    for _ in range(30):
        world.tick(6.0)
    memory = replace(world.memory, trial=None)
    world.memory.window.rows[:, [Column.JUDGED, Column.LATE]] = 100.0, 100.0 * missed
    step = memory.step_time(POOL)
    assert step is not None
    found = plan(
        world.observation(),
        POOL,
        UpdateResult.of(memory, step, memory.window.demand(step, 15.0, DEFAULT), POOL),
        of_one(40),
    )
    assert isinstance(found, Plan)
    believed = replace(found, curve=replace(found.curve, floor=0.2), allowance=0.24)
    return _while_misses_remain(Limited(replicas), float(requested), POOL, memory, believed)


def test_fewer_replicas_are_not_ordered_because_the_slo_seems_lost() -> None:
    answer = limited(missed=0.3, replicas=4)
    assert answer.replicas == 8.0
    assert [one.name for one in answer.applied] == [LimitName.MISSES_REMAIN]
    assert "30% of requests miss the SLO, more than the 20% that would at any size" in answer.applied[0].reason


def test_a_belief_blocks_nothing_once_no_more_miss_than_a_fleet_is_sized_for() -> None:
    assert [limited(missed, replicas=4).replicas for missed in (0.01, 0.2)] == [4.0, 4.0]


@settings(max_examples=15)
@given(
    engine=st.builds(
        StepTime,
        base=st.floats(0.005, 0.06),
        per_request=st.floats(0.0, 0.001),
        per_prefill_token=st.floats(1e-6, 2e-4),
    ),
    spells=st.lists(st.tuples(st.floats(0.2, 20.0), st.floats(0.0, 0.6), st.integers(8, 30)), min_size=2, max_size=3),
)
def test_a_believed_floor_never_shrinks_a_fleet_into_more_misses(engine, spells):
    """Random engines and traffic, and any share of misses that has nothing to do with the load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.unit.decision.world.ENGINE", engine)
        world = World(replicas=6)
        for rate, failing, ticks in spells:
            for _ in range(ticks):
                _tick(world, rate, failing)


def _tick(world: World, rate: float, failing: float) -> None:
    requested = world.requested
    on_time = {engine.name: engine.requests - engine.late for engine in world.engines}
    obey, world.obey = world.obey, False
    outcome = world.tick(rate)
    for engine in world.engines:
        more = max(0.0, engine.requests - engine.late - on_time.get(engine.name, 0.0))
        engine.late += failing * more
    world.obey = obey
    figures, replicas = outcome.decision.figures, outcome.decision.replicas
    floor, missed = figures.miss_floor, world.memory.window.last(DEFAULT.recent_window).misses
    believed = isinstance(floor, float) and floor > world.pool.slo.allowed
    # What counted work and proven steps do not ask for is not kept.
    kept = math.inf if world.memory.trial is None else world.memory.trial.most
    if believed and missed.share > world.pool.slo.allowed and replicas < min(requested, world.pool.max_replicas, kept):
        assert isinstance(figures.allowance, float)
        assert missed.share <= figures.allowance
    world.scale(replicas)
