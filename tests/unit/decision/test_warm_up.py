"""Windows after history was read, and after a hole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.params import Params

from .world import POOL, World


def test_windows_fill_once_after_history_and_then_the_fleet_may_shrink() -> None:
    world = World(replicas=6, obey=False)
    world.run(2.0, minutes=30)
    # As the loop does after history: the last minutes were not decided on.
    world.memory = replace(world.memory, since=None)
    first = world.tick(2.0).decision
    assert LimitName.WINDOW_FILLING in [limit.name for limit in first.limits]
    assert first.replicas == 6
    assert world.run(2.0, minutes=10)[-1].decision.replicas < 6


def test_after_a_hole_nothing_is_removed_for_two_cold_starts() -> None:
    world = World(replicas=6, obey=False, pool=replace(POOL, params=Params(cold_start=300.0)))
    world.run(2.0, minutes=60)
    assert world.tick(2.0).decision.replicas < 6
    world.now += 1800.0  # the loop was away
    waited = [world.tick(2.0).decision for _ in range(80)]
    first = next(at for at, decision in enumerate(waited) if decision.replicas < 6)
    # The first observation after the hole begins the window; two horizons, each of a cold start and a scrape, are 630 s.
    assert first * 15.0 == pytest.approx(2 * (300.0 + 15.0), abs=15.0)
    assert LimitName.WINDOW_FILLING in [limit.name for limit in waited[first - 1].limits]
