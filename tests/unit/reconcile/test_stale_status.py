"""Statuses told for longer than they are true."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from servingpool.adapters.cluster.errors import Forbidden, Unanswered
from servingpool.api.serving_pool import ServingPool
from servingpool.cli.explain import show
from servingpool.reconcile.plan import pool_plan

from .fake_cluster import FakeCluster
from .stories import amid_reading, serving, settled
from .test_lost_answers import short

FIGURES = {"fleet", "replicas", "readyReplicas", "desiredReplicas", "throughput", "queueDepth", "latency", "attainment"}


def gone(world: FakeCluster) -> None:
    """The Deployment and its pods are deleted."""
    service = world.services.pop("vllm")
    for engine in service.engines:
        world.cache.see_pod({"metadata": {"namespace": "chat", "name": engine.name, "uid": engine.name}}, gone=True)
    world.cache.see_workload({"metadata": {"namespace": "chat", "name": "vllm", "uid": "d-vllm"}}, gone=True)
    world.step(minutes=2)


def since(world: FakeCluster) -> str:
    """When Ready last turned."""
    return next(str(one["lastTransitionTime"]) for one in world.status()["conditions"] if one["type"] == "Ready")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("before", ["cannot be reached", "answered HTTP 503"])
def test_a_new_cause_of_a_failed_read_is_written(before: str, restarted: bool) -> None:
    """A wrong url is put right in the operator's configuration, which takes a restart; now a token is missing."""
    world = serving()
    world.prometheus.silent = f"Prometheus backend 'default' {before}"
    world.step(minutes=5)
    assert world.message("MetricsAvailable") == f"Prometheus backend 'default' {before}. Replicas stay as they are."
    world.prometheus.silent = "Prometheus backend 'default' answered HTTP 401"
    if restarted:
        world.restart()
    world.step(minutes=1.5)
    said = "Prometheus backend 'default' answered HTTP 401. Replicas stay as they are."
    assert world.message("MetricsAvailable") == said


@pytest.mark.parametrize(("first", "second"), [("first", "second"), ("chat-1", "chat-2")])
def test_a_different_owner_is_written(first: str, second: str) -> None:
    """Names that differ in a number are others: it is no figure."""
    world = FakeCluster()
    world.serve(rate=0.0)
    world.pool(first, created=world.now - 30)
    world.pool(second, created=world.now - 20)
    world.pool("third", created=world.now - 10)
    world.step(minutes=5)
    assert f"ServingPool '{first}'" in world.message("Ready", "third")
    world.delete(first)
    world.step(minutes=2)
    assert f"ServingPool '{second}'" in world.message("Ready", "third")


def test_a_status_of_unknown_state_is_overwritten_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a write is lost; what is told then lacks a field within `lastDecision`."""
    world = settled()
    world.step(minutes=5)
    assert "need" in world.status()["lastDecision"]
    world.prometheus.silent = "503"  # the whole control plane has trouble

    async def lost(pool: Any, changes: Any) -> None:
        raise Unanswered("the API server did not answer")  # not applied

    with monkeypatch.context() as trouble:
        trouble.setattr(world, "write_status", lost)
        world.step()
    world.step()
    assert world.condition("MetricsAvailable") == ("False", "FailedGetMetrics")
    meant = world.state().status.to_dict()
    assert "need" not in meant["lastDecision"]
    assert world.status()["lastDecision"].keys() - meant["lastDecision"].keys() == set()
    world.step(minutes=12)
    assert world.status()["lastDecision"].keys() - world.state().status.to_dict()["lastDecision"].keys() == set()


@pytest.mark.parametrize("spec", [{}, {"targets": []}])
def test_a_status_that_cannot_be_read_leaves_nothing_behind(spec: dict[str, Any]) -> None:
    """After a downgrade: a field is of another type in the newer version."""
    world = serving(**spec)
    world.store(status={"fleet": 7, "throughput": {"generationTokensPerSecond": 9999.0}})
    world.prometheus.silent = "503"
    world.step(minutes=10)
    assert world.status().get("throughput") is None, world.status()["throughput"]


def test_a_condition_of_the_version_before_goes_at_the_first_write_and_what_was_learned_stays() -> None:
    """RoutingFollowsSpeed was removed, so its type is unknown. Nothing else of this pool changes: its target is gone."""
    world = settled()
    gone(world)
    before = world.status()
    removed = {**before["conditions"][0], "type": "RoutingFollowsSpeed"}
    world.store(status={**before, "conditions": [*before["conditions"], removed]})
    world.restart()
    world.step()
    assert world.status()["conditions"] == before["conditions"]
    assert world.status()["profile"] == before["profile"]


def test_the_transition_time_is_when_the_failure_began() -> None:
    world = short()
    world.writes.refuse["scale"] = Forbidden("403 Forbidden")
    world.step()
    began = since(world)
    world.step(minutes=20)
    world.pool(targets=[{"name": "vllm", "min": 2, "max": 5}])  # any reason to write
    world.step()
    assert world.condition("Ready") == ("False", "FailedUpdateScale")
    assert since(world) == began, "it was False at every moment between"


def test_a_deployment_that_is_gone_has_no_ready_replicas() -> None:
    world = settled()
    gone(world)
    assert world.condition("Ready") == ("False", "TargetNotFound")
    assert not world.status().keys() & FIGURES
    assert {one["status"] for one in world.status()["conditions"] if one["type"] != "Ready"} == {"Unknown"}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"targets": []}, "InvalidSpec"), ({"metrics": {"backend": "nowhere"}}, "UnknownBackend")],
)
def test_a_pool_that_cannot_be_judged_shows_no_figures(spec: dict[str, Any], reason: str) -> None:
    world = settled()
    world.pool(**spec)
    world.step()
    assert world.condition("Ready") == ("False", reason)
    assert not world.status().keys() & FIGURES
    world.pool()
    world.step(minutes=1)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
    assert world.status().keys() >= FIGURES - {"attainment"}


def test_conditions_of_an_older_spec_are_not_reported_for_the_newer() -> None:
    """The target is put right while Prometheus is read."""
    world = serving(target="vlm")
    world.serve("other")
    world.pool("other", target="other")  # for whose sake Prometheus is read
    world.step()
    assert world.condition("Ready") == ("False", "TargetNotFound")
    amid_reading(world, lambda: world.pool(target="vllm"))
    world.step()
    generation = world.cache.pools["chat", "pool"]["metadata"]["generation"]
    ready = next(c for c in world.status()["conditions"] if c["type"] == "Ready")
    assert (ready["observedGeneration"], "vlm " in ready["message"]) != (generation, True), ready


def test_an_internal_error_leaves_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("defect")

    monkeypatch.setattr(pool_plan, "decide_stages", broken)
    world.services["vllm"].rate = 60.0
    world.step(minutes=24)
    assert world.condition("Ready") == ("False", "InternalError")
    assert not world.status().keys() & FIGURES
    assert world.condition("MetricsAvailable") == ("Unknown", "InternalError")


def test_explain_begins_with_the_reason_if_nothing_is_decided() -> None:
    world = settled()
    gone(world)
    raw = dict(world.cache.pools["chat", "pool"])
    raw |= {"apiVersion": "servingpool.dev/v1alpha1", "kind": "ServingPool"}
    console = Console(record=True, width=160)
    show(ServingPool.read(raw), console)
    text = console.export_text()
    assert "None" not in text
    assert text.index("Deployment vllm does not exist") < text.index("decided ")
