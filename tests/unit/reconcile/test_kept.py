"""A copy of a world goes on as the world itself does, and apart from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .fake_cluster import FakeCluster
from .kept import kept, reaches
from .role_cluster import RoleCluster


def single() -> FakeCluster:
    world = FakeCluster()
    world.serve(rate=6.0)
    world.pool()
    return world


def roles() -> RoleCluster:
    world = RoleCluster()
    world.pool()
    return world


@pytest.mark.parametrize("make", [single, roles])
def test_a_copy_goes_on_as_the_world_itself(make: Callable[[], FakeCluster]) -> None:
    def later() -> FakeCluster:
        world = make()
        world.step(minutes=5)
        return world

    itself, copy = later(), kept(f"test_kept {make.__name__}", later)
    for world in (itself, copy):
        world.step(minutes=5)
    assert copy.cache.pools == itself.cache.pools
    assert copy.writes == itself.writes
    again = kept(f"test_kept {make.__name__}", later)
    assert again.now == itself.now - 300.0


def test_a_copy_that_shares_what_tests_change_is_refused() -> None:
    class World:
        def __init__(self) -> None:
            self.now = 0.0
            self.clock = lambda: self.now

    with pytest.raises(AssertionError, match="a copy of clock shares"):
        kept("clock", World)


def test_what_is_reached_through_a_container_is_found() -> None:
    goal = object()
    assert reaches({"one": [(goal,)]}, goal)
    assert not reaches({"one": [(object(),)]}, goal)
