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


SEVERAL = [
    {"name": "on-demand", "min": 1, "max": 4, "costPerReplicaHour": 10.0},
    {"name": "spot", "max": 4, "costPerReplicaHour": 4.0},
]


def several(targets: list[dict[str, Any]] = SEVERAL, **spec: Any) -> FakeCluster:
    """A pool of two targets, with two replicas each."""
    world = FakeCluster()
    world.serve("on-demand", replicas=2, rate=4.0)
    world.serve("spot", replicas=2, rate=4.0)
    world.pool(targets=targets, **spec)
    return world


def hungry(**spec: Any) -> FakeCluster:
    """Two replicas that need to be more, calibrated, if nothing stands in the way."""
    world = FakeCluster()
    world.serve(rate=30.0)
    world.pool(**spec)
    return world
