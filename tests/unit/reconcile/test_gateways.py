"""A gateway before the engines: whose it is, what its pods count together, and what a pool does with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from servingpool.adapters.gateways.own_gateway import OwnGateway, gateway_of, gateway_requests
from servingpool.adapters.gateways.totals import GatewayReader, GatewayTotals
from servingpool.adapters.prometheus.backend_config import BackendConfig, GatewayChoice
from servingpool.adapters.prometheus.diagnosis import Cause, Missing
from servingpool.adapters.prometheus.gateways import shipped_gateways
from servingpool.adapters.prometheus.samples import FleetReading
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import NOT_EXPOSED, GatewayMetrics, Histogram, ReplicaMetrics, Unknown
from servingpool.reconcile.config import OperatorConfig

from .fake_cluster import FakeCluster

ONE_MINUTE = 1.0
EPP = GatewayChoice(name="llm-d-epp")
ROUTER = ("chat", "router-7c9f-bbbbb")


def page(pod: str = ROUTER[1], at: float = 0.0, **figures: Any) -> ReplicaMetrics:
    return ReplicaMetrics(pod, at, **figures)


def ttft(count: float, late: float = 0.0) -> Histogram:
    return Histogram((2.0,), (count - late,), 0.5 * count + 5.0 * late, count)


def served_by(model: str = "llama", **figures: Any) -> dict[tuple[str, str], dict[str, ReplicaMetrics]]:
    return {ROUTER: {model: page(**figures)}}


def pool(namespace: str = "chat", **spec: Any) -> ServingPool:
    wanted = {"model": "llama", "slo": {"timeToFirstToken": "2s"}, "targets": [{"name": "vllm", "max": 9}], **spec}
    meta = {"namespace": namespace, "name": "pool", "uid": "u", "generation": 1, "resourceVersion": "1"}
    return ServingPool.model_validate(
        {"metadata": meta | {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": wanted}
    )


class Behind:
    """A pool behind a gateway, read again and again."""

    def __init__(self, gateway: str = "llm-d-epp", workload: str | None = None, **slo: Any) -> None:
        self.pool = pool(slo={"timeToFirstToken": "2s", **slo})
        self.own = OwnGateway(gateway, "chat", workload)
        self.totals = GatewayTotals()

    def read(self, *pages: ReplicaMetrics, model: str = "llama", namespace: str = "chat") -> GatewayMetrics:
        return self.hear({(namespace, one.replica): {model: one} for one in pages})

    def hear(self, samples: dict[tuple[str, str], dict[str, ReplicaMetrics]] | Unknown) -> GatewayMetrics:
        reading = samples if isinstance(samples, Unknown) else FleetReading(at=0.0, samples=samples, stale={})
        return self.totals.read(self.pool, self.own, shipped_gateways()[self.own.name], reading)


# Whose it is


def test_a_pools_own_gateway_goes_before_its_backends() -> None:
    backend = BackendConfig(url="http://prometheus", gateway=GatewayChoice(name="litellm", namespace="gateways"))
    own = pool(metrics={"gateway": {"name": "vllm-router", "workload": "router"}})
    assert gateway_of(pool(), backend) == OwnGateway("litellm", "gateways", None, ("llama",))
    assert gateway_of(own, backend) == OwnGateway("vllm-router", "chat", "router", ("llama",))
    assert gateway_of(pool(), BackendConfig(url="http://prometheus")) is None


def test_pools_behind_gateways_of_one_kind_are_read_by_one_query() -> None:
    """Each router is told from the others by its pods' names, not by a query of its own."""
    backend = BackendConfig(url="http://prometheus")
    slo = {"timeToFirstToken": "2s", "measuredAt": "Gateway"}
    pools = [pool(metrics={"gateway": {"name": "llm-d-epp", "workload": name}}, slo=slo) for name in ("a", "b")]
    pools.append(pool(metrics={"gateway": {"name": "llm-d-epp"}}, slo={"timeToFirstToken": "9s"}))
    (request,) = gateway_requests(pools, backend).values()
    assert (request.engine, request.gateway) == ("llm-d-epp", True)
    assert request.ttft_bounds == {2.0}, "only where the SLO is measured at the gateway"


@pytest.mark.parametrize(
    ("pod", "namespace", "mine"),
    [
        ("router-7c9f-bbbbb", "chat", True),
        ("router-0", "chat", True),
        ("router-2-7c9f-bbbbb", "chat", False),
        ("other-7c9f-bbbbb", "chat", False),
        ("router-7c9f-bbbbb", "elsewhere", False),
    ],
)
def test_a_workloads_pods_are_told_by_name_and_namespace(pod: str, namespace: str, *, mine: bool) -> None:
    seen = Behind("vllm-router", "router").read(page(pod, begun=7.0), model="", namespace=namespace)
    assert isinstance(seen.arrivals, Unknown) is not mine


def test_a_gateway_that_names_no_model_counts_only_for_a_pool_that_names_its_workload() -> None:
    """Else a pool would take all routers of its namespace for its own."""
    seen = Behind("vllm-router").read(page(begun=7.0), model="")
    assert isinstance(seen.arrivals, Unknown)
    assert "set spec.metrics.gateway.workload" in seen.arrivals.reason


# What it counts


def test_two_pods_of_a_gateway_add_up() -> None:
    behind = Behind(measuredAt="Gateway")
    first = [page("a-1", 10.0, waiting=3.0, begun=100.0, time_to_first_token=ttft(90.0))]
    first.append(page("a-2", 12.0, waiting=4.0, begun=50.0, time_to_first_token=ttft(40.0)))
    behind.read(*first)
    behind.read(page("a-1", 25.0, waiting=1.0, begun=110.0, time_to_first_token=ttft(99.0, late=2.0)), first[1])
    seen = behind.read(
        page("a-1", 40.0, waiting=1.0, begun=115.0, time_to_first_token=ttft(104.0, late=2.0)),
        page("a-2", 42.0, waiting=6.0, begun=57.0, time_to_first_token=ttft(45.0, late=1.0)),
    )
    assert (seen.scraped_at, seen.queue, seen.arrivals) == (42.0, 7.0, 22.0)
    told = seen.time_to_first_token
    assert isinstance(told, Histogram)
    assert (told.count, told.counts) == (19.0, (16.0,))


def test_a_gateway_that_restarts_counts_from_zero() -> None:
    behind = Behind(measuredAt="Gateway")
    behind.read(page(begun=1000.0, time_to_first_token=ttft(900.0)))
    seen = behind.read(page(begun=8.0, time_to_first_token=ttft(6.0)))
    assert seen.arrivals == 8.0
    assert isinstance(seen.time_to_first_token, Histogram)
    assert seen.time_to_first_token.count == 6.0


def test_a_counter_that_is_far_higher_for_one_scrape_brings_no_requests() -> None:
    gateway = Behind()
    for number in range(4):
        gateway.read(page(at=15.0 * number, begun=1000.0 + 60.0 * number))
    assert gateway.read(page(at=60.0, begun=1e12)).arrivals == 180.0
    assert gateway.read(page(at=60.0, begun=1e12)).arrivals == 180.0, "the same scrape, seen twice"
    assert gateway.read(page(at=75.0, begun=1300.0)).arrivals == 300.0


@pytest.mark.parametrize(
    ("first", "there", "came"),
    [(1e4, [1e12], 240.0), (1e4, [9e3], 240.0), (1e4, [9e3, 8e3], 240.0), (100.0, [200.0], 440.0)],
)
def test_a_counter_that_jumps_or_falls_counts_on_from_there(first: float, there: list[float], came: float) -> None:
    """It falls to many where another process answers, and to few where the gateway has restarted."""
    gateway = Behind()
    for number, begun in enumerate((first, first + 60.0, first + 120.0, first + 180.0, *there, there[-1] + 60.0)):
        seen = gateway.read(page(at=15.0 * number, begun=begun))
    assert seen.arrivals == came


def test_a_surge_that_lasts_is_counted_in_full() -> None:
    gateway = Behind()
    for number in range(4):
        gateway.read(page(at=15.0 * number, begun=1000.0 + 60.0 * number))
    gateway.read(page(at=60.0, begun=9180.0))
    assert gateway.read(page(at=75.0, begun=17180.0)).arrivals == 16180.0


def test_a_new_pods_first_requests_begin_its_counting() -> None:
    """Vllm-router has no counter before its first request."""
    behind = Behind("vllm-router", "router")
    behind.read(page(begun=NOT_EXPOSED), model="")
    assert behind.read(page(begun=3.0), model="").arrivals == 3.0


def test_pods_with_different_buckets_are_not_added() -> None:
    other = Histogram((1.0, 2.0), (1.0, 2.0), 3.0, 4.0)
    behind = Behind(measuredAt="Gateway")
    seen = behind.read(page("a-1", time_to_first_token=ttft(3.0)), page("a-2", time_to_first_token=other))
    assert seen.time_to_first_token == Unknown("the gateway's pods have different buckets, as in a rollout")


def test_what_the_gateway_cannot_tell_is_not_exposed_and_what_it_does_not_tell_is_unknown() -> None:
    """Without a queue in its profile a router holds none: nothing is blocked for lack of it."""
    router = Behind("sglang-router").read(page(begun=3.0), model="other")
    assert (router.queue, router.time_to_first_token) == (NOT_EXPOSED, NOT_EXPOSED)
    assert router.arrivals == Unknown("gateway sglang-router exports no series of model 'llama'")
    silent = Behind().read()
    assert silent.queue == Unknown("Prometheus has no series of a gateway llm-d-epp in namespace chat")
    down = Unknown("Prometheus is down")
    assert Behind().hear(down).queue == Behind().hear(down).arrivals == down, "not empty"


# A queue that names no model: the inference extension 1.1 and 1.2


def picker(queue: float, at: float = 0.0, **begun: float) -> dict[tuple[str, str], dict[str, ReplicaMetrics]]:
    """An endpoint picker of 1.2: what each model has been sent, and how many requests of all models wait."""
    named = {model: page(at=at, begun=count) for model, count in begun.items()}
    return {ROUTER: {"": page(at=at, waiting=queue), **named}}


def test_a_queue_that_names_no_model_is_the_pools_where_the_gateway_serves_no_other() -> None:
    behind = Behind("inference-extension")
    assert behind.hear(picker(40.0, llama=10.0)).queue == 40.0
    seen = behind.hear(picker(44.0, at=15.0, llama=16.0))
    assert (seen.queue, seen.arrivals) == (44.0, 10.0), "six were sent on, and four more wait"


def test_a_queue_that_names_no_model_is_unknown_while_others_may_be_in_it() -> None:
    behind = Behind("inference-extension")
    shared = behind.hear(picker(40.0, llama=10.0, other=3.0))
    assert isinstance(shared.queue, Unknown)
    assert "names no model, and several are served" in shared.queue.reason
    seen = behind.hear(picker(0.0, at=15.0, llama=16.0, other=3.0))
    assert (seen.queue, seen.arrivals) == (0.0, 6.0), "an empty queue is everybody's"


def test_requests_that_a_gateway_holds_before_the_models_first_are_told() -> None:
    """Nothing was sent on so far, so no series names the model."""
    behind = Behind("inference-extension")
    assert (behind.hear(picker(0.0)).queue, behind.hear(picker(3.0, at=15.0)).arrivals) == (0.0, 3.0)
    foreign = Behind("inference-extension").hear(picker(3.0, other=1.0))
    assert foreign.queue == Unknown("gateway inference-extension exports no series of model 'llama'")


def test_a_release_whose_queue_names_no_model_is_not_trusted_to_show_a_request_at_zero() -> None:
    """1.1 and 1.2 answer 503 before a request comes to their queue, while the pool has no endpoint."""
    behind = Behind("inference-extension")
    own = {"gateway": {"name": "inference-extension"}}
    behind.pool = pool(targets=[{"name": "vllm", "min": 0, "max": 9}], metrics=own)
    old = behind.hear(picker(0.0, llama=10.0))
    assert old.queue == 0.0
    assert isinstance(old.at_zero, Unknown)
    assert "refuses requests while there is no replica" in old.at_zero.reason
    assert behind.hear({ROUTER: {"llama": page(at=15.0, waiting=0.0, begun=10.0)}}).at_zero == 0.0


def test_where_the_queue_names_a_model_the_others_hold_nothing() -> None:
    """Since 1.3; the reading of all models together is the same series once more."""
    samples = {"": page(waiting=5.0), "llama": page(begun=9.0), "other": page(begun=8.0, waiting=5.0)}
    assert Behind("inference-extension").hear({ROUTER: samples}).queue == 0.0


def test_requests_for_adapters_are_the_pools_and_those_for_other_models_are_not() -> None:
    """One fleet serves a model and its LoRA adapters, which the gateway names as models of their own."""
    behind = Behind("llm-d-epp", measuredAt="Gateway")
    behind.pool = pool(
        targets=[{"name": "vllm", "min": 0, "max": 9}],
        slo={"timeToFirstToken": "2s", "measuredAt": "Gateway"},
        metrics={"gateway": {"name": "llm-d-epp"}, "adapters": ["sql-lora", "chat-lora", "never-seen"]},
    )
    behind.hear({ROUTER: {"llama": page(begun=100.0, waiting=0.0, time_to_first_token=ttft(100.0))}})
    models = {"llama": (110.0, 0.0), "sql-lora": (325.0, 25.0), "chat-lora": (215.0, 15.0), "other": (900.0, 60.0)}
    samples = {
        model: page(at=15.0, begun=begun, waiting=queue, time_to_first_token=ttft(begun - queue, late=5.0))
        for model, (begun, queue) in models.items()
    }
    seen = behind.hear({ROUTER: samples})
    assert (seen.queue, seen.arrivals, seen.at_zero) == (40.0, 550.0, 550.0)
    assert seen.time_to_first_token == Histogram((2.0,), (495.0,), 330.0, 510.0)
    samples["sql-lora"] = replace(samples["sql-lora"], waiting=Unknown("it is nan"))
    assert behind.hear({ROUTER: samples}).queue == Unknown("it is nan")


def test_held_requests_whose_clients_give_up_are_no_restart() -> None:
    """The sum of what was sent on and what is held falls; taken for a restart it would count 10,000 requests anew."""
    behind = Behind("llm-d-epp")
    for at, held, sent in ((0.0, 0.0, 10_000.0), (15.0, 40.0, 10_000.0), (30.0, 0.0, 10_001.0), (45.0, 0.0, 10_002.0)):
        seen = behind.read(page(at=at, waiting=held, begun=sent + held))
    assert seen.arrivals == 41.0


# What a pool does with it


def test_a_gateway_with_a_pod_whose_gauges_may_be_copies_is_unknown() -> None:
    """What its other pods hold is not all."""
    behind = Behind()
    why = {("chat", "b"): Missing("its gauges have several series", Cause.AMBIGUOUS)}
    reading = FleetReading(at=0.0, samples={("chat", "a"): {"llama": page("a", waiting=3.0)}}, stale={}, causes=why)
    seen = behind.totals.read(behind.pool, behind.own, shipped_gateways()["llm-d-epp"], reading)
    assert seen.queue == seen.arrivals == Unknown("gateway pod b: its gauges have several series")


def test_requests_held_at_the_gateway_are_demand() -> None:
    world = FakeCluster(gateway=EPP)
    world.serve(rate=6.0)
    world.pool()
    world.prometheus.gateways = served_by(waiting=0.0)
    world.step(minutes=8)
    replicas = world.status()["desiredReplicas"]
    world.prometheus.gateways = served_by(waiting=500.0, at=world.now)
    world.step(minutes=ONE_MINUTE)
    assert world.status()["queueDepth"] >= 500
    assert world.status()["desiredReplicas"] > replicas


@pytest.mark.parametrize(
    ("namespace", "model", "adapters", "told"),
    [("chat", "llama", [], True), ("a", "llama", [], False), ("a", "x", [], False), ("chat", "llama", ["x"], False)],
)
def test_a_shared_gateway_tells_a_models_demand_to_its_namespaces_alone(
    namespace: str, model: str, adapters: list[str], *, told: bool
) -> None:
    """A pool chooses its models' names: it could read, and be scaled by, another tenant's requests."""
    shared = GatewayChoice(name="llm-d-epp", namespace="gateways", models={"llama": ("chat", "chat-*")})
    backend = BackendConfig(url="http://prometheus", gateway=shared)
    reader = GatewayReader(backend, shipped_gateways())
    own = pool(namespace, model=model, metrics={"adapters": adapters})
    samples = {("gateways", "epp"): {model: page("epp", waiting=77.0, begun=600.0)}}
    reader.hear([own], lambda *_: FleetReading(at=0.0, samples=samples, stale={}))
    others = Unknown("backends[].gateway.models does not name this pool's namespace for its models")
    assert reader.of(own).queue == (77.0 if told else others)


def test_a_gateway_without_a_queue_of_the_model_is_reported() -> None:
    """It forbids scale-downs, and stood in the last decision's sentence only."""
    world = FakeCluster(gateway=EPP)
    world.serve(rate=6.0)
    world.pool()
    world.prometheus.gateways = served_by("llama-2", waiting=0.0)
    world.step(minutes=ONE_MINUTE)
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert world.message("MetricsAvailable") == (
        "The number of queued requests is unknown: gateway llm-d-epp exports no series of model 'llama'. "
        "Scale-down is blocked until all metrics are read."
    )
    world.prometheus.gateways = served_by(waiting=0.0)
    world.step(minutes=ONE_MINUTE)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")


def test_a_gateway_that_answers_now_and_then_is_not_written_at_every_tick() -> None:
    world = FakeCluster(gateway=EPP)
    world.serve(rate=6.0)
    world.pool()
    world.prometheus.gateways = served_by(waiting=0.0)
    world.step(minutes=12)
    before = len(world.writes.statuses)
    for tick in range(40):
        world.prometheus.gateways = Unknown("503") if tick % 2 else served_by(waiting=0.0)
        world.step()
    assert len(world.writes.statuses) - before <= 12


def test_an_unknown_gateway_is_refused_by_name() -> None:
    world = FakeCluster()
    world.serve()
    world.pool(metrics={"gateway": {"name": "acme"}})
    world.step()
    assert world.condition("Ready") == ("False", "UnknownGateway")
    assert "Known gateways are envoy-ai-gateway, inference-extension" in world.message("Ready")


class Door:
    """A gateway whose clients get their first token late, while the engines' is on time."""

    def __init__(self, late: float, *, measured_at: str = "Gateway") -> None:
        self.world, self.late = FakeCluster(gateway=EPP), late
        self.world.serve(rate=6.0)
        slo = {"timeToFirstToken": "2s", "timePerOutputToken": "100ms", "measuredAt": measured_at}
        self.world.pool(slo=slo)
        self.count = 1000.0
        self.latest = 0.0

    def step(self, ticks: int) -> None:
        for _ in range(ticks):
            self.count += 90.0
            self.latest += 90.0 * self.late
            told = ttft(self.count, late=self.latest)
            figures: dict[str, Any] = {"waiting": 0.0, "begun": self.count, "time_to_first_token": told}
            self.world.prometheus.gateways = served_by(at=self.world.now + 15.0, **figures)
            self.world.step()


def test_an_slo_measured_at_the_gateway_is_judged_by_the_clients_ttft() -> None:
    at_gateway, at_engines = Door(late=0.3), Door(late=0.3, measured_at="Engine")
    for door in (at_gateway, at_engines):
        door.step(40)
    assert at_gateway.world.condition("SLOMet") == ("False", "ObjectiveUnattainable")
    assert at_engines.world.condition("SLOMet") == ("True", "ObjectiveMet")
    assert 66.0 < at_gateway.world.status()["attainment"] < 74.0
    assert at_gateway.world.message("SLOMet").count("Time to first token is measured at the gateway.") == 1
    said = "Time to first token is measured at the engines, without the gateway's queue."
    assert said in at_engines.world.message("SLOMet")


def test_where_the_gateway_does_not_tell_the_slo_is_not_judged_and_nothing_is_removed() -> None:
    """Never by the engines instead: they do not see the gateway's queue."""
    door = Door(late=0.0)
    door.step(20)
    world = door.world
    assert world.condition("SLOMet") == ("True", "ObjectiveMet")
    world.prometheus.gateways = served_by(at=world.now, waiting=0.0, begun=1.0)
    world.step(minutes=5)
    assert world.condition("SLOMet") == ("Unknown", "ClientLatencyUnknown")
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert "The client's time to first token is unknown: the gateway does not tell it" in world.message(
        "MetricsAvailable"
    )
    assert "attainment" not in world.status() or world.status()["attainment"] is None


def test_measured_at_the_gateway_without_a_gateway_says_what_to_set() -> None:
    world = FakeCluster()
    world.serve()
    world.pool(slo={"timeToFirstToken": "2s", "measuredAt": "Gateway"})
    world.step(minutes=2)
    assert world.condition("SLOMet") == ("Unknown", "ClientLatencyUnknown")
    assert "no gateway is configured: set spec.metrics.gateway" in world.message("SLOMet")


def test_another_place_of_measurement_forgets_what_the_first_one_taught() -> None:
    door = Door(late=0.3)
    door.step(40)
    door.world.pool(slo={"timeToFirstToken": "2s", "timePerOutputToken": "100ms", "measuredAt": "Engine"})
    door.step(40)
    assert door.world.condition("SLOMet") == ("True", "ObjectiveMet")
    assert replace(door.world.state().memory.profile).at_gateway is False


# What the configuration may say


@pytest.mark.parametrize(
    ("gateway", "said"),
    [
        ("acme", "must be one of envoy-ai-gateway.*, got acme"),
        ("vllm-router", "must be a gateway whose metrics name the model, got vllm-router: set spec.metrics.gateway"),
    ],
)
def test_a_backends_gateway_is_known_and_tells_models_apart(gateway: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        OperatorConfig.model_validate({"backends": [{"url": "http://prometheus", "gateway": gateway}]})


def test_a_gateway_of_ones_own_is_named_like_a_shipped_one() -> None:
    own = {"acme": {"modelLabel": "model", "figures": {"arrivals": ["acme_requests_total"]}}}
    backend = {"url": "http://prometheus", "gateway": "acme"}
    config = OperatorConfig.model_validate({"backends": [backend], "gateways": own})
    assert config.backends[0].gateway == GatewayChoice(name="acme")
    assert config.known_gateways.keys() == {*shipped_gateways(), "acme"}
