"""Pools to tell stories with."""

from __future__ import annotations

from typing import Any

from .fake_cluster import FakeCluster

ONE_MINUTE = 1.0


def settled(**spec: Any) -> FakeCluster:
    """A pool of a few replicas that is calibrated at a load that suits them.

    Its first orders, made before anything was learned, are no part of the stories.
    """
    world = FakeCluster()
    world.serve(rate=6.0)
    world.pool(**spec)
    world.step(minutes=25)
    assert world.services["vllm"].orders == []
    world.writes.scales.clear()
    world.writes.events.clear()
    return world


def hungry(**spec: Any) -> FakeCluster:
    """Two replicas that need to be more, calibrated, if nothing stands in the way."""
    world = FakeCluster()
    world.serve(rate=30.0)
    world.pool(**spec)
    return world
