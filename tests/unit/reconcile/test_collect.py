"""What is asked of a backend, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from servingpool.adapters.prometheus import (
    BackendConfig,
    FleetReading,
    NotAsked,
    PodSamples,
    ReadRequest,
)
from servingpool.adapters.prometheus.backend_config import GatewayChoice
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import Unknown
from servingpool.reconcile.readings import Readings


@dataclass
class Slow:
    """Answers the first few of each turn, as a Prometheus does that has one deadline for all."""

    config: BackendConfig
    most: int
    hangs: set[str] = field(default_factory=set)
    """Who takes all that is left of a turn, and gets no answer."""
    left: int = 0
    asked: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        who = f"{'gateway ' if request.gateway else ''}{dict(request.match_labels)['tenant']}"
        self.asked.append(who)
        turn, self.left = self.left > 0, 0 if who in self.hangs else self.left - 1
        await asyncio.sleep(0)
        if not turn:
            return NotAsked("had other queries to answer")
        if who in self.hangs:
            return Unknown("did not answer")
        self.answered.append(who)
        return FleetReading(at=now, samples={}, stale={}, queries=1)

    async def history(self, request: ReadRequest, **_: Any) -> Sequence[tuple[float, PodSamples]] | Unknown:
        raise NotImplementedError


@dataclass
class Scene:
    """Tenants with labels of their own on one slow backend."""

    backend: Slow
    pools: list[ServingPool]
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.readings = Readings({"default": self.backend})

    def tick(self, seconds: float = 15.0) -> None:
        self.now += seconds
        self.backend.left = self.backend.most
        self.backend.asked.clear()
        self.backend.answered.clear()
        asyncio.run(self.readings.read("default", self.pools, self.now))

    def seen(self) -> list[str]:
        """Whose pages are there to decide on."""
        return [pool.metadata.name for pool in self.pools if self.readings.answered(pool)]

    def resting(self) -> list[str]:
        """For whom nothing is decided."""
        return [pool.metadata.name for pool in self.pools if self.readings.rests(pool)]


def scene(tenants: int, *, most: int, **config: Any) -> Scene:
    backend = Slow(BackendConfig(url="http://prometheus:9090", **config), most)
    return Scene(backend, [tenant(f"t{number:02}") for number in range(tenants)])


def tenant(name: str) -> ServingPool:
    meta = {"namespace": "chat", "name": name, "uid": name, "generation": 1}
    spec = {
        "model": "llama",
        "slo": {"timeToFirstToken": "2s"},
        "targets": [{"name": "vllm", "min": 1, "max": 2}],
        "metrics": {"matchLabels": {"tenant": name}},
    }
    return ServingPool.read({"metadata": meta, "spec": spec})


def test_a_slow_prometheus_serves_every_label_set_in_turn() -> None:
    """In the order of the pools the first five were read at every tick, and the others never."""
    slow = scene(20, most=5)
    read = []
    for _ in range(4):
        slow.tick()
        assert len(slow.backend.asked) == 20, "nobody is left out beforehand"
        read += slow.backend.answered
    assert sorted(read) == [pool.metadata.name for pool in slow.pools]


def test_a_pool_that_was_not_read_is_not_decided_until_its_samples_are_stale() -> None:
    slow = scene(20, most=5)
    slow.tick()
    assert (len(slow.seen()), slow.resting()) == (5, []), "who was never read is not known"
    for _ in range(3):
        slow.tick()
    for _ in range(8):
        slow.tick()
        assert (len(slow.seen()), len(slow.resting())) == (5, 15)
    slow.backend.most = 0
    for resting in (15, 10, 5, 0):
        slow.tick()
        assert (slow.seen(), len(slow.resting())) == ([], resting)


def test_a_clock_that_goes_back_delays_no_pool_for_long() -> None:
    slow = scene(10, most=5)
    slow.tick()
    slow.tick()
    slow.tick(-3600.0)
    assert (len(slow.seen()), slow.resting()) == (5, [])
    slow.tick()
    assert (len(slow.seen()), len(slow.resting())) == (5, 5), "and nobody's turn is passed over"


def test_label_sets_that_always_time_out_do_not_delay_others() -> None:
    """Ordered by the last answer they were first at every tick, and nobody else was read again."""
    slow = scene(7, most=5)
    slow.tick()
    slow.tick()
    slow.backend.hangs = {"t00", "t01"}
    read: list[str] = []
    for _ in range(6):
        slow.tick()
        read += slow.backend.answered
    for sound in range(2, 7):
        assert read.count(f"t{sound:02}") >= 2


def test_a_read_that_failed_is_unknown_at_once() -> None:
    slow = scene(2, most=5)
    slow.tick()
    assert slow.seen() == ["t00", "t01"]
    slow.backend.hangs = {"t01"}
    slow.tick()
    assert slow.seen() == ["t00"]


def test_a_tenant_that_returns_does_not_use_old_samples() -> None:
    slow = scene(3, most=5)
    slow.tick()
    gone = slow.pools.pop()
    slow.tick()
    slow.pools.append(gone)
    slow.backend.most = 0
    slow.tick()
    assert slow.resting() == ["t00", "t01"]


def test_the_gateway_is_read_before_the_pools() -> None:
    slow = scene(2, most=5, gateway=GatewayChoice(name="llm-d-epp"))
    slow.tick()
    assert slow.backend.asked == ["gateway t00", "gateway t01", "t00", "t01"]
