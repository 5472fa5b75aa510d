"""The operator's own /metrics: live figures, absent where unknown, gone with their pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from servingpool.adapters.cluster.errors import Forbidden
from servingpool.api.status import LastDecision
from servingpool.loop.metrics import FIGURES, PoolCollector
from servingpool.reconcile.config import Price

from .fake_cluster import FakeCluster
from .stories import serving


def exposed(world: FakeCluster) -> CollectorRegistry:
    registry = CollectorRegistry()
    writes, failures = {"scale": len(world.writes.scales)}, world.failures
    registry.register(PoolCollector(lambda: world.loop.snapshot, lambda: writes, lambda: failures))
    return registry


def figure(registry: CollectorRegistry, name: str, pool: str = "pool") -> float | None:
    return registry.get_sample_value(f"servingpool_{name}", {"namespace": "chat", "pool": pool})


def test_figures_are_those_of_the_last_decision() -> None:
    world = FakeCluster(prices={"acme": Price(input=0.5, output=1.5, noted=date(2026, 11, 1))})
    world.serve(rate=6.0)
    world.pool(targets=[{"name": "vllm", "min": 2, "max": 2, "costPerReplicaHour": 12.0}], compareTo="acme")
    world.step(minutes=8)
    registry, expense, decision = exposed(world), world.plan().expense, world.decision()
    assert figure(registry, "desired_replicas") == decision.replicas
    assert figure(registry, "needed_replicas") == decision.need
    assert figure(registry, "ready_replicas") == 2
    assert figure(registry, "gpus") == 8
    assert figure(registry, "generation_tokens_rate") == decision.figures.generation_rate
    assert figure(registry, "cost_dollars_per_hour") == 24.0
    assert figure(registry, "compared_cost_dollars_per_hour") == expense.compared
    assert figure(registry, "break_even_tokens_rate") == expense.break_even
    assert figure(registry, "tokens_per_gpu_rate") == pytest.approx(decision.figures.generation_rate / 8)
    assert figure(registry, "tokens_per_dollar") == pytest.approx(decision.figures.generation_rate * 150)
    never_full = {"full_replica_batch", "full_replica_requests_rate", "full_replica_tokens_rate"}
    absent = {name for metric in FIGURES if figure(registry, name := metric.removeprefix("servingpool_")) is None}
    unseen = {one.removeprefix("servingpool_") for one in FIGURES if "_batch_" in one or "_change_" in one}
    assert absent == never_full | unseen | {"idle_seconds"}, "what no replica has shown is no figure"
    assert registry.get_sample_value("servingpool_api_writes_total", {"kind": "scale"}) == 0
    assert registry.get_sample_value("servingpool_api_write_failures_total", {"kind": "scale"}) == 0


def test_a_pools_mode_is_told_also_where_its_spec_is_not_valid() -> None:
    world = FakeCluster()
    world.serve(rate=6.0)
    world.pool("taken")
    world.pool("watched", mode="Recommend")
    world.pool("typo", mode="Paused", slo={})
    world.pool("unread", mode="Off")
    world.step()
    [family] = [each for each in exposed(world).collect() if each.name == "servingpool_info"]
    found = {sample.labels["pool"]: sample.labels["mode"] for sample in family.samples}
    assert found == {"taken": "Auto", "watched": "Recommend", "typo": "Paused", "unread": "Auto"}


def test_what_a_full_replica_serves_is_shown_once_it_is_known() -> None:
    """With the test above, every figure of the catalogue has a series in some story."""
    world = serving(minutes=8)
    pool = world.loop.snapshot["chat", "pool"]
    assert pool.decided is not None
    decision = pool.decided.decision
    full = replace(decision.figures, full_batch=8.0, full_requests=0.9, full_tokens=180.0)
    shown = {("chat", "pool"): replace(pool, decided=replace(pool.decided, decision=replace(decision, figures=full)))}
    registry = CollectorRegistry()
    registry.register(PoolCollector(lambda: shown, dict, dict))
    assert figure(registry, "full_replica_batch") == 8.0
    assert figure(registry, "full_replica_requests_rate") == 0.9
    assert figure(registry, "full_replica_tokens_rate") == 180.0


def test_the_need_can_be_recomputed_from_the_status_and_from_the_metrics() -> None:
    world = serving(minutes=8, targets=[{"name": "vllm", "min": 2, "max": 8}])
    told = LastDecision.read(world.status()["lastDecision"])
    shown = told.figures
    weighed = {one.replicas: one.replicas + shown["penalty"] * one.misses for one in told.candidates}
    assert len(weighed) > 1
    assert shown["forForecast"] == min(weighed, key=lambda size: weighed[size])
    needs = (shown["forForecast"], shown["forInitialFleet"], shown["forPresentLoad"])
    assert told.need == max(needs)
    plan = 0.7 * shown["slowFactor"]
    above = plan * (0.05 - shown["missFloor"]) / shown["missCalibration"]
    assert shown["allowance"] == pytest.approx(shown["missFloor"] + above, rel=1e-3)
    registry, decision = exposed(world), world.decision()
    assert figure(registry, "miss_penalty") == decision.figures.penalty
    assert figure(registry, "allowance_ratio") == decision.figures.allowance
    assert figure(registry, "needed_for_forecast_replicas") == decision.figures.for_forecast


def test_what_is_unknown_is_absent_not_zero() -> None:
    world = serving()
    world.prometheus.silent = "Prometheus backend 'default' cannot be reached"
    world.step()
    registry = exposed(world)
    assert figure(registry, "desired_replicas") == 2
    assert figure(registry, "needed_replicas") is None
    assert figure(registry, "attainment_ratio") is None
    assert figure(registry, "queue_depth") is None
    assert figure(registry, "cost_dollars_per_hour") is None, "nobody has said what a replica costs"


@pytest.mark.parametrize("goes", [lambda world: world.delete(), lambda world: world.pool(slo={})])
def test_a_pool_that_is_deleted_or_can_no_longer_be_decided_on_shows_no_old_figures(
    goes: Callable[[FakeCluster], None],
) -> None:
    world = serving()
    world.step()
    assert figure(exposed(world), "desired_replicas") == 2
    goes(world)
    world.step()
    assert figure(exposed(world), "desired_replicas") is None


def test_a_tick_in_the_middle_of_a_scrape_changes_nothing_of_that_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP thread reads while the loop runs: a pool that was refused in between ended the scrape with HTTP 500."""
    world = serving(minutes=8)
    registry = exposed(world)
    add = GaugeMetricFamily.add_metric
    ticks: list[object] = []

    def add_after_a_tick(family: GaugeMetricFamily, labels: Sequence[str], value: float) -> None:
        add(family, labels, value)
        if not ticks:
            world.pool(slo={})
            ticks.append(world.step())

    monkeypatch.setattr(GaugeMetricFamily, "add_metric", add_after_a_tick)
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert ticks, "the loop ran in the middle of it"
    assert {"servingpool_desired_replicas", "servingpool_gpus", "servingpool_load_ratio"} <= names
    assert figure(registry, "desired_replicas") is None, "the next scrape shows the tick"


def conditions(world: FakeCluster) -> dict[tuple[str, str], tuple[str, str]]:
    """By pool and type: status and reason. One series each, of value 1."""
    found = {}
    for family in exposed(world).collect():
        for sample in family.samples:
            if sample.name == "servingpool_condition":
                labels = sample.labels
                assert labels["namespace"] == "chat"
                assert sample.value == 1.0
                assert (labels["pool"], labels["type"]) not in found
                found[labels["pool"], labels["type"]] = labels["status"], labels["reason"]
    return found


def test_a_pool_on_which_nothing_can_be_decided_shows_why() -> None:
    world = serving(name="typo", slo={})
    world.pool("astray", target="vlm")
    world.pool("thanos", metrics={"backend": "thanos"})
    world.step()
    shown = conditions(world)
    assert shown["typo", "Ready"] == ("False", "InvalidSpec")
    assert shown["astray", "Ready"] == ("False", "TargetNotFound")
    assert shown["thanos", "Ready"] == ("False", "UnknownBackend")


def test_of_each_condition_only_how_it_is_now_is_a_series() -> None:
    world = serving(minutes=8)
    assert conditions(world) == {
        ("pool", "Ready"): ("True", "SucceededGetScale"),
        ("pool", "MetricsAvailable"): ("True", "ValidMetrics"),
        ("pool", "SLOMet"): ("True", "ObjectiveMet"),
        ("pool", "ScalingLimited"): ("False", "DesiredWithinRange"),
        ("pool", "Calibrating"): ("False", "Learned"),
        ("pool", "DrainReady"): ("True", "FinishesRequests"),
    }
    world.autoscaler("HorizontalPodAutoscaler")
    world.step()
    assert conditions(world)["pool", "Ready"] == ("False", "OwnedByHPA")


def test_a_refused_scale_shows_although_the_pool_was_well_before_it() -> None:
    world = serving(30.0)
    world.writes.refuse["scale"] = Forbidden("Cannot scale Deployment chat/vllm: 403 Forbidden")
    world.step(minutes=5)
    assert conditions(world)["pool", "Ready"] == ("False", "FailedUpdateScale")


def test_conditions_show_even_where_no_status_can_be_written() -> None:
    world = FakeCluster()
    world.pool()
    world.writes.refuse["status"] = Forbidden("Cannot write the status of ServingPool chat/pool: 403 Forbidden")
    world.step()
    assert "conditions" not in world.status()
    assert conditions(world) == {("pool", "Ready"): ("False", "TargetNotFound")}


def test_conditions_are_the_leaders_and_go_with_their_pool() -> None:
    world = serving()
    world.step()
    assert conditions(world)
    world.leading = False
    world.step()
    assert conditions(world) == {}, "else two replicas of the operator would tell two things of one pool"
    world.leading = True
    world.step()
    assert conditions(world)
    world.delete()
    world.step()
    assert conditions(world) == {}


def test_the_objective_is_shown_in_the_unit_of_the_attainment() -> None:
    world = serving(slo={"timeToFirstToken": "2s", "attainment": 99.5})
    world.step()
    assert figure(exposed(world), "objective_ratio") == pytest.approx(0.995)
    world.pool(slo=None, throughput={"outputTokensPerSecond": 500})
    world.step()
    assert figure(exposed(world), "time_to_first_token_bound_seconds") is None
