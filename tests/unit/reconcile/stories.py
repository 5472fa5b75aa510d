"""Pools to tell stories with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from servingpool.decision.observation import NOT_EXPOSED, ReplicaMetrics

from .fake_cluster import FakeCluster
from .kept import kept

ONE_MINUTE = 1.0


def serving(rate: float = 6.0, *, replicas: int = 2, minutes: float = 0.0, **spec: Any) -> FakeCluster:
    """A Deployment at so many requests/s and its pool, so many minutes after both were made."""

    def begun() -> FakeCluster:
        world = FakeCluster()
        world.serve(rate=rate, replicas=replicas)
        world.pool(**spec)
        world.step(minutes=minutes)
        return world

    return kept(f"serving {rate} {replicas} {minutes} {spec}", begun) if minutes else begun()


def settled(**spec: Any) -> FakeCluster:
    """A pool of a few replicas that is calibrated at a load that suits them.

    Its first orders, made before anything was learned, are no part of the stories.
    """
    world = serving(minutes=25, **spec)
    assert world.services["vllm"].orders == []
    world.writes.scales.clear()
    world.writes.events.clear()
    return world


def amid_reading(world: FakeCluster, happens: Callable[[], None]) -> None:
    """This happens each time that Prometheus is read."""
    read = world.prometheus.read

    async def reading(*given: Any) -> Any:
        happens()
        return await read(*given)

    world.prometheus.read = reading  # type: ignore[assignment, method-assign]


def upon(world: FakeCluster, write: str, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens once that write is done, before its answer is there."""
    work = getattr(world, write)

    async def written(*given: Any, **named: Any) -> None:
        await work(*given, **named)
        happens()

    monkeypatch.setattr(world, write, written)


def without_ttft(sample: ReplicaMetrics) -> ReplicaMetrics:
    return replace(sample, time_to_first_token=NOT_EXPOSED)


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
    return serving(30.0, **spec)
