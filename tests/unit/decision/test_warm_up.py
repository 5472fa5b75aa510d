"""A pool that has learned from history, and is then looked at live."""

from __future__ import annotations

from dataclasses import replace

from servingpool.decision import limits

from .world import World


def test_windows_fill_once_behind_history_and_then_the_fleet_may_shrink() -> None:
    world = World(replicas=6, obey=False)
    world.run(2.0, minutes=30)
    # The loop's way to say that the needs of the last minutes were not decided on.
    world.memory = replace(world.memory, since=None)
    first = world.tick(2.0).decision
    assert limits.WINDOW_FILLING in [limit.name for limit in first.limits]
    assert first.replicas == 6
    assert world.run(2.0, minutes=10)[-1].decision.replicas < 6
