"""What is asked of a backend, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from servingpool.adapters.prometheus.backend_config import BackendConfig, GatewayChoice
from servingpool.adapters.prometheus.samples import FleetReading, NotAsked, PodSamples, ReadRequest, TooLarge
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import Unknown
from servingpool.reconcile.collect.readings import Readings

from .stories import serving


class OneBackend:
    """Nothing but a fleet is asked for here."""

    async def history(self, request: ReadRequest, **_: Any) -> Sequence[tuple[float, PodSamples]] | Unknown:
        raise NotImplementedError

    async def number(self, query: str) -> Unknown:
        raise NotImplementedError

    async def time_left(self, query: str, scale: float) -> Unknown:
        raise NotImplementedError


@dataclass
class Slow(OneBackend):
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


def tenant(name: str, namespace: str = "chat") -> ServingPool:
    meta = {"namespace": namespace, "name": name, "uid": name, "generation": 1}
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


class Fragile(OneBackend):
    """Cannot answer about some namespaces: whoever asks for one of them gets nothing."""

    def __init__(self) -> None:
        self.config = BackendConfig(url="http://prometheus:9090")
        self.heavy: set[str] = set()
        self.down = False
        self.asked: list[set[str]] = []

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        self.asked.append(set(request.namespaces))
        if self.down or self.heavy & request.namespaces:
            return TooLarge("Prometheus backend 'default' did not answer within 10 s")
        return FleetReading(at=now, samples={}, stale={}, queries=1)


def neighbours(*namespaces: str) -> list[ServingPool]:
    meta = {"name": "pool", "uid": "u", "generation": 1}
    spec = {"model": "m", "slo": {"timeToFirstToken": "2s"}, "targets": [{"name": "vllm", "min": 1, "max": 2}]}
    return [ServingPool.read({"metadata": meta | {"namespace": one, "uid": one}, "spec": spec}) for one in namespaces]


class Street:
    """Pools of one kind in several namespaces, on one fragile backend."""

    def __init__(self, *namespaces: str) -> None:
        self.backend, self.pools, self.now = Fragile(), neighbours(*namespaces), 1000.0
        self.readings = Readings({"default": self.backend})

    def tick(self) -> list[str]:
        """The namespaces that were answered."""
        self.now += 15.0
        self.backend.asked.clear()
        asyncio.run(self.readings.read("default", self.pools, self.now))
        return [pool.metadata.namespace for pool in self.pools if self.readings.answered(pool)]


def test_a_tenant_with_thousands_of_label_sets_waits_for_himself() -> None:
    """The other one was read in three rounds of eight."""
    slow = scene(500, most=5)
    slow.pools.append(tenant("zz", "other"))
    read: list[str] = []
    for _ in range(8):
        slow.tick()
        assert "zz" in slow.backend.answered
        read += slow.backend.answered
    assert len(set(read)) == 1 + 4 * 8, "and of his own each has its turn"


def test_only_the_namespaces_of_the_pools_are_asked_for() -> None:
    street = Street("a", "b")
    street.tick()
    assert street.backend.asked == [{"a", "b"}]
    street.pools.pop()
    street.tick()
    assert street.backend.asked == [{"a"}]


def test_a_namespace_that_is_too_much_costs_the_others_one_round() -> None:
    street = Street("a", "b", "evil")
    street.backend.heavy = {"evil"}
    assert street.tick() == []
    for _ in range(20):
        assert street.tick() == ["a", "b"]
    assert street.backend.asked == [{"a", "b"}, {"evil"}], "those that can be are asked for together again"
    street.backend.heavy = set()
    for _ in range(300):
        assert street.tick()[:2] == ["a", "b"]
    assert street.backend.asked == [{"a", "b", "evil"}]


def test_after_an_outage_namespaces_are_soon_asked_for_together() -> None:
    street = Street("a", "b", "c")
    street.backend.down = True
    for _ in range(10):
        assert street.tick() == []
    street.backend.down = False
    for _ in range(6):
        assert street.tick() == ["a", "b", "c"]
    assert street.backend.asked == [{"a", "b", "c"}]


def test_so_many_namespaces_are_asked_for_in_queries_of_a_bounded_length() -> None:
    names = [f"a-namespace-with-a-long-name-{number:04}" for number in range(500)]
    street = Street(*names)
    assert street.tick() == names
    assert sorted(one for each in street.backend.asked for one in each) == names
    assert max(sum(map(len, each)) for each in street.backend.asked) < 900


def test_pools_without_a_target_are_not_asked_about() -> None:
    world = serving(2.0)
    world.pool("lost", target="nothing", metrics={"matchLabels": {"team": "lost"}})
    world.step(minutes=1)
    assert world.prometheus.asked.count("read") == 4, "one of the two in each round"
    assert world.condition("Ready", "lost") == ("False", "TargetNotFound")
    world.serve("nothing")
    world.step(minutes=1)
    assert world.prometheus.asked.count("read") == 12
    assert world.condition("MetricsAvailable", "lost") == ("True", "ValidMetrics")
