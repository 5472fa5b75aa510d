"""The days whose decisions are recorded: each is played through the whole loop, on virtual time, the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ..gpubudget.test_budgets import budget, two  # noqa: TID252
from ..reconcile.fake_cluster import FakeCluster  # noqa: TID252, tests are no package of an installed name
from ..reconcile.mixed_cluster import MixedCluster  # noqa: TID252
from ..reconcile.role_cluster import GATEWAY, RoleCluster  # noqa: TID252
from ..reconcile.test_zero import Behind  # noqa: TID252

HOUR = 240
"""Ticks."""


def waves(tick: int, low: float, high: float, hours: float) -> float:
    """A rate in requests/s that rises and falls once in so many hours, with a second wave on it."""
    at = tick / (hours * HOUR)
    return low + (high - low) * (0.5 - 0.4 * math.cos(math.tau * at) - 0.1 * math.cos(math.tau * 7.3 * at))


def plain() -> Iterator[FakeCluster]:
    """One pool for four hours: two waves, a step, a pod that is not scraped, a Prometheus that is silent, a hand."""
    world = FakeCluster()
    service = world.serve(rate=4.0)
    world.pool(targets=[{"name": "vllm", "min": 1, "max": 20}])
    for tick in range(4 * HOUR):
        service.rate = waves(tick, 2.0, 40.0, 2.0) + (40.0 if 2.2 * HOUR < tick < 2.6 * HOUR else 0.0)
        world.hidden = {service.engines[0].name} if 1.0 * HOUR < tick < 1.1 * HOUR else set()
        world.prometheus.silent = "Prometheus did not answer" if 1.5 * HOUR < tick < 1.6 * HOUR else None
        if tick == int(3.5 * HOUR):
            world.set_replicas("vllm", 12)
        yield played(world)


def several() -> Iterator[FakeCluster]:
    """Two targets of two prices for two hours; for half of an hour no node is found for the cheap one."""
    world = MixedCluster(rate=10.0)
    world.pool()
    for tick in range(2 * HOUR):
        world.rate = waves(tick, 5.0, 45.0, 1.5)
        world.spot.unschedulable = HOUR < tick < 1.5 * HOUR
        yield played(world)


def roles() -> Iterator[FakeCluster]:
    """Prefill and decode for an hour and a half; prompts are twice as long in its last third."""
    world = RoleCluster()
    world.pool(metrics={"gateway": GATEWAY})
    for tick in range(3 * HOUR // 2):
        world.rate, world.prompt = waves(tick, 4.0, 14.0, 1.0), 3000.0 if tick < HOUR else 6000.0
        yield played(world)


def shared() -> Iterator[FakeCluster]:
    """Two pools that share 24 GPUs for two hours; both want more than half of them in turn."""
    world = two(gpus=24)
    for tick in range(2 * HOUR):
        world.services["high"].rate = waves(tick, 4.0, 25.0, 1.0)
        world.services["low"].rate = waves(tick + HOUR // 2, 4.0, 25.0, 1.0)
        if tick == int(1.5 * HOUR):
            budget(world, 16, generation=2)
        yield played(world)


def zero() -> Iterator[FakeCluster]:
    """A pool with min 0 for an hour and a half: requests for ten minutes, none for thirty, and so on."""
    world = Behind()
    for tick in range(3 * HOUR // 2):
        world.services["vllm"].rate = 6.0 if tick % 160 < 40 else 0.0
        yield played(world)


def played(world: FakeCluster) -> FakeCluster:
    assert world.step().failed == 0, "a decision ended in an exception"
    return world


RECORDINGS: dict[str, dict[str, Callable[[], Iterator[FakeCluster]]]] = {
    "plain": {"plain": plain},
    "fleets": {"several": several, "roles": roles, "shared": shared, "zero": zero},
}
"""By file: its stories by name."""


def decisions(story: Callable[[], Iterator[FakeCluster]]) -> Iterator[dict[str, Any]]:
    """A row for each pool and tick: the decision and the replicas. Its fields depend on no design of the core."""
    begin = None
    for world in story():
        begin = world.now if begin is None else begin
        stand = {name: service.replicas for name, service in world.services.items()}
        for (_, name), state in sorted(world.loop.states.items()):
            decision = None if state.plan is None else state.plan.decision
            yield {
                "at": world.now - begin,
                "pool": name,
                "stand": stand,
                "need": None if decision is None or not isinstance(decision.need, float) else decision.need,
                "replicas": None if decision is None else decision.replicas,
                "limits": [] if decision is None else [one.name.value for one in decision.limits],
                "reason": "" if decision is None else decision.reason,
            }
