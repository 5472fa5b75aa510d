"""A pool of two targets, whose pods share one stream of requests."""

from __future__ import annotations

from typing import Any

from servingpool.adapters.cluster.objects import Workload
from servingpool.reconcile.act import ScaleOutcome
from servingpool.reconcile.plan.pool_plan import PoolPlan

from .fake_cluster import FakeCluster, Service

FIXED = {"name": "fixed", "min": 1, "max": 6, "costPerReplicaHour": 4}
SPOT = {"name": "spot", "max": 6, "costPerReplicaHour": 1}


class MixedCluster(FakeCluster):
    """Requests go to all pods alike. A scale of one Deployment may be refused by itself."""

    def __init__(self, *, rate: float = 20.0, fixed: int = 3, spot: int = 0, **settings: Any) -> None:
        self.rate = rate
        self.refused: dict[str, Exception] = {}
        """By Deployment."""
        super().__init__(**settings)
        self.fixed, self.spot = self.serve("fixed", replicas=fixed), self.serve("spot", replicas=spot)
        self._share()
        self.plans: list[PoolPlan] = []
        """What was decided, as it came to be acted for."""
        self.restart()

    def restart(self) -> None:
        super().restart()
        act = self.actor.act

        async def noted(plan: PoolPlan, *given: Any, **named: Any) -> ScaleOutcome | None:
            self.plans.append(plan)
            return await act(plan, *given, **named)

        self.actor.act = noted  # type: ignore[method-assign]

    def pool(self, name: str = "pool", **spec: Any) -> None:
        super().pool(name, **{"targets": [FIXED, SPOT], **spec})

    def serve_on(self) -> None:
        self._share()
        super().serve_on()

    def _share(self) -> None:
        services = [each for each in (self.services.get("fixed"), self.services.get("spot")) if each is not None]
        pods = sum(len(each.engines) for each in services)
        for each in services:
            each.rate = self.rate * len(each.engines) / max(1, pods)

    async def scale(self, target: Workload, replicas: int) -> None:
        if target.key.name in self.refused:
            raise self.refused[target.key.name]
        await super().scale(target, replicas)

    def until(self, what: Any, minutes: float = 60.0) -> None:
        """Ticks until this holds."""
        for _ in range(round(minutes * 4)):
            if what():
                return
            self.step()
        raise AssertionError(f"not within {minutes} minutes: {self.status()}")


def ordered(service: Service) -> int:
    """`spec.replicas`."""
    return service.replicas


def changes(world: FakeCluster) -> list[tuple[str, int, int]]:
    """The scales so far: Deployment, before, after."""
    return [(key[1], before, after) for key, before, after in world.writes.scales]
