"""What is asked of a backend, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from servingpool.adapters.prometheus import BackendConfig, FleetReading, GatewayReading, PodPages, ReadRequest
from servingpool.adapters.prometheus.config import GatewayQueue
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.unknown import Unknown
from servingpool.reconcile.reading import Readings


@dataclass
class Slow:
    """Answers the first few of each turn, as a Prometheus does that has one deadline for all."""

    config: BackendConfig
    most: int
    asked: list[str] = field(default_factory=list)

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        self.asked.append(dict(request.match_labels)["tenant"])
        turn = len(self.asked)
        await asyncio.sleep(0)
        if turn > self.most:
            return Unknown("had other queries to answer")
        return FleetReading(at=now, pages={}, stale={}, queries=1)

    async def history(self, request: ReadRequest, **_: Any) -> Sequence[tuple[float, PodPages]] | Unknown:
        raise NotImplementedError

    async def gateway(self) -> GatewayReading | Unknown:
        self.asked.append("gateway")
        return GatewayReading({}, by_namespace=False)


def tenant(name: str) -> ServingPool:
    meta = {"namespace": "chat", "name": name, "uid": name, "generation": 1}
    spec = {
        "model": "llama",
        "slo": {"timeToFirstToken": "2s"},
        "targets": [{"name": "vllm", "min": 1, "max": 2}],
        "metrics": {"matchLabels": {"tenant": name}},
    }
    return ServingPool.read({"metadata": meta, "spec": spec})


def test_on_a_prometheus_too_slow_for_all_labels_everyone_gets_a_turn() -> None:
    """In the order of the pools the first five were read at every tick, and the others never."""
    backend = Slow(BackendConfig(url="http://prometheus:9090"), most=5)
    readings, pools = Readings({"default": backend}), [tenant(f"t{number:02}") for number in range(20)]
    read: list[str] = []
    for tick in range(4):
        backend.asked.clear()
        asyncio.run(readings.read(pools, 1000.0 + 15.0 * tick))
        read += [pool.metadata.name for pool in pools if readings.answered(pool)]
        assert len(backend.asked) == 20, "nobody is left out beforehand"
    assert sorted(read) == [pool.metadata.name for pool in pools]


def test_the_gateway_is_asked_ahead_of_all_pools() -> None:
    config = BackendConfig(url="http://prometheus:9090", gateway=GatewayQueue(metric="queue"))
    backend = Slow(config, most=5)
    asyncio.run(Readings({"default": backend}).read([tenant("a"), tenant("b")], 1000.0))
    assert backend.asked == ["gateway", "a", "b"]
