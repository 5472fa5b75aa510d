"""A pool with min 0 behind a router that is a process of its own, through the real loop: to zero and back."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.prometheus.diagnosis import Cause, Missing
from servingpool.decision.observation import NOT_EXPOSED, ReplicaMetrics, Unknown
from servingpool.decision.params import REMEMBERED

from ..gpubudget.test_budgets import budget  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import FakeCluster
from .kept import kept

ROUTER = ("chat", "router-7c9f-bbbbb")
OTHER = ("chat", "router-7c9f-ccccc")
GATEWAY = {"name": "vllm-router", "workload": "router"}


class Behind(FakeCluster):
    """Each request is tried once; what meets no engine is counted as unserved. `rate` is that of the clients."""

    def __init__(self, gateway: dict[str, Any] | None = None, **spec: Any) -> None:
        super().__init__()
        self.counts: dict[tuple[str, str], list[float]] = {ROUTER: [0.0, 0.0]}
        """By pod: requests sent to an engine, tries that met none."""
        self.unscraped: set[tuple[str, str]] = set()
        self.inside = False
        """A router runs in each pod of the engines instead."""
        self.serve(rate=0.0)
        for engine in self.services["vllm"].engines:
            engine.running = 0.0
        targets = [{"name": "vllm", "min": 0, "max": 8}]
        self.pool(metrics={"gateway": gateway or GATEWAY}, targets=targets, **spec)

    def serve_on(self) -> None:
        service = self.services["vllm"]
        first = next(iter(self.counts.values()), [0.0, 0.0])
        first[0 if service.engines else 1] += service.rate * 15.0
        for engine in service.engines:
            engine.running = 0.0 if service.rate == 0.0 else 5.0
        super().serve_on()
        for engine in service.engines:
            engine.running = 0.0 if service.rate == 0.0 else 5.0
        if self.inside:
            self.counts = {("chat", engine.name): [engine.requests, 0.0] for engine in service.engines}
        if not isinstance(self.prometheus.gateways, Unknown):
            self.prometheus.gateways = {
                pod: {"": ReplicaMetrics(pod[1], self.now, begun=sent, admission_rejections=tries)}
                for pod, (sent, tries) in self.counts.items()
                if pod not in self.unscraped
            }

    def go(self, rate: float, minutes: float) -> None:
        self.services["vllm"].rate = rate
        self.step(minutes=minutes)

    @property
    def replicas(self) -> int:
        service = self.services["vllm"]
        return service.replicas

    def to_zero(self) -> None:
        self.go(20.0, 12)
        self.go(0.0, 16)
        assert self.replicas == 0


def busy() -> Behind:
    """A pool that has served for 25 minutes."""

    def begun() -> Behind:
        world = Behind()
        world.go(20.0, 25)
        return world

    return kept("a pool behind a router, after 25 busy minutes", begun)


def asleep() -> Behind:
    """That pool, at zero."""

    def begun() -> Behind:
        world = busy()
        world.go(0.0, 16)
        assert world.replicas == 0
        return world

    return kept("a pool behind a router, at zero", begun)


def test_idle_then_zero_then_the_first_request_then_serving_and_each_says_so() -> None:
    world = busy()
    usual = world.replicas
    assert usual > 1
    world.go(0.0, 14)
    assert world.replicas >= 1
    assert world.condition("ZeroReady") == ("False", "FirstRequestFails")
    assert "vllm-router/router tries a request again for 400ms, and refuses it then" in world.message("ZeroReady")
    world.go(0.0, 2)
    assert world.replicas == 0
    assert world.condition("Ready") == ("True", "SucceededGetScale")
    assert world.condition("MetricsAvailable") == ("True", "ScaledToZero")
    assert world.message("MetricsAvailable").endswith("requests are read from gateway vllm-router/router.")
    assert "idle for 15 min" in world.status()["history"][0]["why"]
    assert world.status()["fleet"] == "0/0/8"
    world.go(0.0, REMEMBERED / 60 + 60)  # a whole night is in decision/test_zero.py
    assert world.replicas == 0
    world.go(0.2, 0.25)
    assert usual - 1 <= world.replicas <= usual + 1, "in one tick, to what a busy hour needs"
    assert "tries of requests at the gateway at 0 replicas: 3" in world.status()["history"][0]["why"]
    world.go(20.0, 10)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
    assert world.replicas >= 1


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_small_budget_wakes_as_many_replicas_as_it_has_gpus_for(replicas: int) -> None:
    world = busy()
    budget(world, 4 * replicas)
    world.go(0.0, 16)
    world.go(0.2, 0.25)
    assert world.replicas == replicas


def test_a_gateway_that_holds_longer_than_a_cold_start_is_ready_for_zero() -> None:
    world = Behind({**GATEWAY, "holdsFor": "10m"})
    assert world.step() is not None
    assert world.condition("ZeroReady") == ("Unknown", "FirstRequestUnknown")
    assert "no cold start was measured yet" in world.message("ZeroReady")
    world.to_zero()
    world.go(1.0, 5)
    assert world.condition("ZeroReady") == ("True", "HoldsFirstRequest")
    assert "for 10m, and refuses it then. A cold start takes 1m40s" in world.message("ZeroReady")


def test_a_pool_that_never_goes_to_zero_has_no_such_condition_any_more() -> None:
    world = Behind()
    world.go(6.0, 10)
    assert world.condition("ZeroReady") != ("", "")
    world.pool(metrics={"gateway": GATEWAY}, targets=[{"name": "vllm", "min": 1, "max": 8}])
    world.step()
    assert "ZeroReady" not in {one["type"] for one in world.status()["conditions"]}
    world.go(0.0, 20)
    assert world.replicas == 1


def test_a_gateway_inside_the_pools_own_pods_is_no_source_of_demand() -> None:
    world = Behind({"name": "vllm-router", "workload": "vllm"})
    world.inside = True
    world.go(20.0, 12)
    world.go(0.0, 20)
    assert world.replicas >= 1
    assert world.condition("ZeroReady") == ("Unknown", "DemandNotShown")
    assert "is a replica of the pool, and goes with it" in world.message("ZeroReady")


class Picker(Behind):
    """Behind an endpoint picker: the queue's series goes when its flow was idle for five minutes."""

    def __init__(self, *, alive: bool = False, queues: bool = True) -> None:
        self.alive, self.queues, self.requested_at = alive, queues, 0.0
        super().__init__({"name": "llm-d-epp", "workload": "router"})

    def serve_on(self) -> None:
        super().serve_on()
        counted = self.counts.get(ROUTER, [0.0, 0.0])
        counted[:] = [sum(counted), 0.0] if self.services["vllm"].engines else counted
        sent, held = counted
        self.requested_at = self.now if self.services["vllm"].rate or held else self.requested_at
        queue = held if self.queues and self.now - self.requested_at < 300.0 else NOT_EXPOSED
        told = {"llama": ReplicaMetrics(ROUTER[1], self.now, begun=sent + held, waiting=queue)} if sent + held else {}
        told |= {"": ReplicaMetrics(ROUTER[1], self.now, cached_prompt_tokens=1.0)} if self.alive else {}
        self.prometheus.gateways = {ROUTER: told} if told else {}


@pytest.mark.parametrize("alive", [False, True])
def test_a_picker_that_deletes_the_queue_of_an_idle_flow_holds_nothing(*, alive: bool) -> None:
    """Its page is there with the model's counter. It stayed at one replica, as if the gateway were away."""
    world = Picker(alive=alive)
    world.to_zero()
    world.go(0.0, 6)
    if alive:
        world.restart()
        world.go(0.0, 6)
        world.counts[ROUTER] = [0.0, 0.0]  # the picker too: before a request its page has no series of the model
        world.go(0.0, 6)
    assert world.replicas == 0
    world.go(0.2, 0.25)
    assert world.replicas > 0
    assert "requests that arrived at the gateway at 0 replicas" in world.status()["history"][0]["why"]
    world.go(0.0, 17)
    assert world.replicas == 0
    world.counts, world.alive = {}, False
    world.go(0.0, 10)
    assert world.replicas == 1, "its page is gone"


def test_a_picker_that_never_had_a_queue_is_not_trusted_to_hold_a_request() -> None:
    """Without flow control it refuses at once, and shows nothing."""
    world = Picker(queues=False)
    world.go(20.0, 12)
    world.go(0.0, 25)
    assert (world.replicas, world.condition("ZeroReady")) == (1, ("Unknown", "DemandNotShown"))


def test_a_gateway_that_is_not_known_to_show_anything_at_zero_keeps_one_replica() -> None:
    world = Behind({"name": "envoy-ai-gateway"})
    world.go(6.0, 12)
    world.go(0.0, 20)
    assert world.replicas == 1
    assert "is not known to show requests while there is no replica" in world.message("ZeroReady")


def test_a_gateway_that_restarts_at_zero_neither_wakes_the_fleet_nor_hides_the_next_request() -> None:
    world = asleep()
    world.counts = {ROUTER: [0.0, 0.0]}  # the same pod
    world.go(0.0, 10)
    assert world.replicas == 0
    world.counts = {OTHER: [0.0, 0.0]}  # another one in its place
    world.go(0.0, 10)
    assert world.replicas == 0
    world.counts = {("chat", "router-7c9f-ddddd"): [0.0, 1.0]}  # again, and its first scrape has a request
    world.go(0.0, 0.25)
    assert world.replicas > 0


def test_one_of_two_gateways_whose_scrape_fails_keeps_a_replica_and_brings_one_back() -> None:
    world = Behind()
    world.counts[OTHER] = [0.0, 0.0]
    world.go(20.0, 12)
    world.unscraped = {OTHER}
    world.prometheus.why = Missing("The scrape fails (up is 0): check path, port and credentials", Cause.SCRAPE_FAILED)
    world.go(0.0, 25)
    assert world.replicas == 1
    said = "gateway pod router-7c9f-ccccc: The scrape fails (up is 0): check path, port and credentials."
    assert said in world.message("ZeroReady")
    world.unscraped = set()
    world.go(0.0, 20)
    assert world.replicas == 0
    world.unscraped = {OTHER}
    world.go(0.0, 5)
    assert world.replicas == 1
    assert world.state().memory.profile.vanished is None


def test_a_gateway_that_was_removed_is_missed_by_nobody() -> None:
    world = Behind()
    world.counts[OTHER] = [0.0, 0.0]
    world.go(20.0, 12)
    del world.counts[OTHER]
    world.go(0.0, 16)
    assert world.replicas == 0


def test_where_the_series_vanish_at_zero_one_replica_stays_and_a_restart_does_not_forget_it() -> None:
    world = busy()
    world.go(0.0, 14)
    counts = world.counts
    while world.replicas:
        world.go(0.0, 0.25)
    world.counts = {}
    world.go(0.0, 5)
    assert world.replicas == 1
    world.counts = counts
    world.go(0.0, 20)
    assert world.condition("ZeroReady") == ("False", "DemandVanished")
    assert "vanished (2023-11-1" in world.message("ZeroReady")
    world.restart()
    world.go(0.0, 20)
    assert world.condition("ZeroReady") == ("False", "DemandVanished")
    assert world.replicas == 1
    ups = [change for change in world.status()["history"] if change["to"] == 1 and change["from"] == 0]
    assert len(ups) == 1, "it does not flap"


def test_an_engine_that_is_not_scraped_says_nothing_on_the_gateway() -> None:
    world = busy()
    world.hidden = {world.services["vllm"].engines[0].name}
    world.go(20.0, 1)
    assert world.condition("ZeroReady") == ("False", "FirstRequestFails")
