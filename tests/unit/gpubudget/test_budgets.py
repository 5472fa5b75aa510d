"""Pools that share a budget of GPUs, through the whole loop on virtual time. Each replica has four GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from servingpool.adapters.cluster.errors import Unanswered
from servingpool.adapters.cluster.objects import TargetKey
from servingpool.catalogue.metrics import Metric
from servingpool.gpubudget import report
from servingpool.loop.metrics import PoolCollector

from ..reconcile.fake_cluster import TICK, FakeCluster, stamp  # noqa: TID252, tests are no package of an installed name

GPUS = 4


def budget(
    world: FakeCluster, gpus: int, name: str = "h100", *, created: float = 0.0, generation: int = 1, **spec: Any
) -> None:
    meta = {"name": name, "uid": f"uid-{name}", "generation": generation, "creationTimestamp": stamp(created)}
    told = world.cache.budgets.get(name, {}).get("status", {})
    world.cache.see_budget({"metadata": meta, "spec": {"gpus": gpus, **spec}, "status": told}, gone=False)


def two(*, gpus: int, high: float = 6.0, low: float = 6.0, **spec: Any) -> FakeCluster:
    """Two pools on their own Deployments of two replicas: `high` of priority 9, `low` of priority 1."""
    world = FakeCluster()
    world.backend("other")
    world.restart()
    for name, rate, priority, backend in (("high", high, 9, "default"), ("low", low, 1, "other")):
        world.serve(name, rate=rate)
        world.pool(name, target=name, priority=priority, metrics={"backend": backend}, **spec)
    budget(world, gpus)
    return world


def held(world: FakeCluster) -> int:
    """GPUs of all pods, those that load and drain included."""
    return GPUS * sum(
        len(one.engines) + len(one.orders) + len(world.draining.get(one.name, ())) for one in world.services.values()
    )


def run(world: FakeCluster, minutes: float, most: int) -> None:
    for _ in range(round(minutes * 60 / TICK)):
        world.step()
        assert held(world) <= most


def status(world: FakeCluster, name: str = "h100") -> dict[str, Any]:
    found: dict[str, Any] = world.cache.budgets[name]["status"]
    return found


def verdict(world: FakeCluster, type_: str, name: str = "h100") -> tuple[str, str, str]:
    [one] = [one for one in status(world, name)["conditions"] if one["type"] == type_]
    return one["status"], one["reason"], one["message"]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"])
def test_the_pool_of_high_priority_grows_and_the_other_gives_way_first(resource: str) -> None:
    world = two(gpus=16)
    world.device = resource
    run(world, 10, 16)
    world.services["high"].rate = 60.0
    world.services["low"].rate = 30.0
    run(world, 10, 16)
    assert len(world.services["high"].engines) == 3
    assert len(world.services["low"].engines) == 1, "its min"
    assert world.condition("ScalingLimited", "low") == ("True", "GPUBudget")
    assert "16 of 16 GPUs are in use, and of more use to chat/high" in world.message("ScalingLimited", "low")
    assert status(world)["held"] == 16
    [first, second] = world.writes.scales
    assert (first[0][1], second[0][1]) == ("low", "high")


def test_a_pool_whose_gpus_are_unknown_orders_nothing_and_counts_as_the_largest() -> None:
    world = two(gpus=24, high=30.0, low=30.0)
    world.claims["low"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    world.show("low")
    run(world, 8, 24)
    assert {key[1] for key, _, _ in world.writes.scales} == {"high"}
    assert len(world.services["high"].engines) == 4, "two replicas of low count four GPUs each"
    assert verdict(world, "Counted")[:2] == ("False", "NotCounted")
    assert "ResourceClaim 'shared' may be shared by pods" in verdict(world, "Counted")[2]
    assert "Its pods on nodes count 8 GPUs." in verdict(world, "Counted")[2]
    assert "the GPUs of chat/low are unknown" in world.message("ScalingLimited", "low")
    world.claims.clear()
    world.show("low")
    run(world, 5, 40)
    assert world.writes.scales


def test_the_older_of_two_budgets_counts_and_the_younger_says_so() -> None:
    world = two(gpus=16)
    budget(world, 4, "young", created=100.0)
    run(world, 5, 16)
    assert verdict(world, "Exclusive")[0] == "True"
    assert verdict(world, "Exclusive", "young")[:2] == ("False", "CountedElsewhere")
    assert "Targets of chat/high, chat/low count in GPUBudget h100" in verdict(world, "Exclusive", "young")[2]


def label(world: FakeCluster, name: str, **labels: str) -> None:
    raw = world.cache.pools["chat", name]
    world.cache.see_pool({**raw, "metadata": {**raw["metadata"], "labels": labels}}, gone=False)


@pytest.mark.parametrize(("trial", "prod_is_older"), [("trial", True), ("a-trial", False)])
def test_a_trial_of_a_production_fleet_takes_nothing_from_the_budget_of_the_trials(
    trial: str, *, prod_is_older: bool
) -> None:
    """Each tier has a budget. The trial in Recommend names the Deployment that the production pool scales."""
    world = FakeCluster()
    world.backend("other")
    world.restart()
    world.serve("fleet")
    world.serve("small", replicas=1)
    world.pool("prod", target="fleet")
    world.pool(trial, target="fleet", mode="Recommend", created=-99.0, metrics={"backend": "other"})
    world.pool("dev", target="small", metrics={"backend": "other"})
    label(world, "prod", tier="prod")
    label(world, trial, tier="dev")
    label(world, "dev", tier="dev")
    budget(world, 16, "prod", poolSelector={"matchLabels": {"tier": "prod"}}, created=-10.0 * prod_is_older)
    budget(world, 8, "dev", poolSelector={"matchLabels": {"tier": "dev"}}, created=-5.0)
    run(world, 5, 16)
    assert (status(world, "prod")["held"], status(world, "dev")["held"]) == (8, 4)
    assert verdict(world, "Sufficient", "dev")[:2] == ("True", "EnoughGPUs")
    assert verdict(world, "Exclusive", "prod")[0] == "True"
    assert verdict(world, "Exclusive", "dev")[:2] == ("False", "CountedElsewhere")
    assert f"Targets of chat/{trial} count in GPUBudget prod" in verdict(world, "Exclusive", "dev")[2]
    world.services["small"].rate = 30.0
    run(world, 10, 16)
    assert (status(world, "prod")["held"], status(world, "dev")["held"]) == (8, 8), "dev has its 8 GPUs"
    world.delete("prod")
    run(world, 1, 16)
    held_by = {one["name"]: one["held"] for one in status(world, "dev")["pools"]}
    assert held_by[trial] == 8, "no other budget counts what stands there"


def test_a_budget_selects_by_labels_of_pools_and_namespaces_resource_and_nodes() -> None:
    world = two(gpus=4)
    for other in (
        {"poolSelector": {"matchLabels": {"tier": "x"}}},
        {"namespaceSelector": {"matchLabels": {"team": "x"}}},
        {"resourceName": "amd.com/gpu"},
    ):
        budget(world, 4, generation=len(str(other)), **other)
        run(world, 1, 99)
        assert status(world)["pools"] == [], other
    world.cache.see_namespace({"metadata": {"name": "chat", "labels": {"team": "x"}}}, gone=False)
    budget(world, 16, generation=99, namespaceSelector={"matchExpressions": [{"key": "team", "operator": "Exists"}]})
    run(world, 1, 99)
    assert [one["name"] for one in status(world)["pools"]] == ["high", "low"]
    assert status(world)["pools"][0] == {
        "namespace": "chat",
        "name": "high",
        "priority": 9,
        "held": 8,
        "due": 8,
        "firm": 4,
        "wanted": 8,
    }


def test_a_budget_that_is_lowered_scales_down_below_min() -> None:
    world = two(gpus=16)
    world.pool(
        "low", target="low", priority=1, metrics={"backend": "other"}, targets=[{"name": "low", "min": 2, "max": 9}]
    )
    run(world, 8, 16)
    budget(world, 8, generation=2)
    run(world, 8, 16)
    assert held(world) == 8
    assert "GPUBudget h100 allows" in world.message("ScalingLimited", "low")


def test_a_pool_that_its_budget_left_nothing_comes_back_by_itself_also_under_a_new_leader() -> None:
    world = FakeCluster()
    world.serve(rate=8.0)
    world.pool()
    budget(world, 2)
    world.step(minutes=30)
    assert held(world) == 0
    assert world.condition("Ready") == ("True", "SucceededGetScale"), "nobody switched scaling off"
    assert world.condition("SLOMet") == ("False", "ScaleUpHeldBack")
    assert world.condition("ScalingLimited") == ("True", "GPUBudget")
    world.restart()
    budget(world, 8, generation=2)
    world.step(minutes=5)
    assert held(world) == GPUS
    world.set_replicas("vllm", 0)
    world.step(minutes=5)
    assert world.condition("Ready") == ("False", "ScalingDisabled")


def unanswered() -> FakeCluster:
    """A pool wants more, and what was ordered for it has no answer."""
    world = two(gpus=20)
    run(world, 8, 20)
    world.writes.refuse["scale"] = Unanswered("no answer")
    world.services["high"].rate = 60.0
    run(world, 2, 20)
    return world


def test_an_order_without_an_answer_holds_its_gpus_as_if_it_were_carried_out() -> None:
    world = unanswered()
    assert (held(world), status(world)["held"]) == (16, 20)
    del world.writes.refuse["scale"]
    run(world, 5, 20)
    assert held(world) == 20


def test_two_rounds_that_write_at_once_do_not_order_the_same_gpu() -> None:
    """Each was decided while it was free; the check before the write tells."""
    world = two(gpus=20)
    run(world, 8, 20)
    loop, low = world.loop, world.cache.workload(TargetKey("chat", "low"))
    assert low is not None
    world.services["high"].rate = 60.0
    world.target("low", "low").sent(low, 5, "another", "", world.now)
    world.budgets.settle(world.now)
    admitted = world.budgets.admits
    world.budgets.apply = lambda plans, *_: list(plans)  # type: ignore[method-assign]
    answers: list[bool] = []
    world.budgets.admits = lambda *given: answers.append(admitted(*given)) or answers[-1]  # type: ignore[method-assign,func-returns-value]
    run(world, 3, 20)
    assert answers
    assert not any(answers)
    assert loop.shared


def test_gated_pods_are_ordered_and_hold_their_share() -> None:
    world = two(gpus=16)
    run(world, 8, 16)
    world.gated.add("high")
    world.services["high"].unschedulable = True  # they never become ready
    world.services["high"].rate = 60.0
    run(world, 8, 16)
    assert status(world)["held"] == 16
    assert world.condition("Ready", "high") == ("True", "SchedulingGated")
    assert "hold their GPUs" in world.message("Ready", "high")


def test_metrics_tell_what_each_pool_of_a_budget_holds_gets_and_wants() -> None:
    world = two(gpus=16)
    run(world, 8, 16)
    registry = CollectorRegistry()
    registry.register(PoolCollector(lambda: world.loop.snapshot, dict, dict, lambda: world.loop.shared))
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith("servingpool_gpu_budget_")
    }
    assert found.pop((Metric.BUDGET_GPUS, "h100")) == 16
    kinds = (Metric.BUDGET_HELD, Metric.BUDGET_DUE, Metric.BUDGET_WANTED)
    assert found == {(kind, "h100", "chat", pool): 8.0 for kind in kinds for pool in ("high", "low")}
    labels = {"budget": "h100", "namespace": "chat", "pool": "low"}
    assert registry.get_sample_value(Metric.HEADROOM_GPUS, labels) == 0.0, "all are held"


def test_a_status_of_many_pools_has_all_firm_gpus_and_few_pools_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of high priority push none with firm GPUs out."""
    monkeypatch.setattr(report, "FEW_POOLS", 1)
    world = two(gpus=0)
    world.pool("low", priority=1, metrics={"backend": "other"}, targets=[{"name": "low", "min": 2, "max": 9}])
    world.step(minutes=2)
    assert [(one["name"], one["firm"]) for one in status(world)["pools"]] == [("high", 0)]
    budget(world, 16, generation=2)
    world.step(minutes=2)
    assert [(one["name"], one["firm"]) for one in status(world)["pools"]] == [("high", GPUS), ("low", 2 * GPUS)]
    monkeypatch.setattr(report, "MOST_POOLS", 1)
    world.step(minutes=2)
    assert [(one["name"], one["firm"]) for one in status(world)["pools"]] == [("low", 2 * GPUS)]


def test_a_condition_of_another_version_is_removed_though_nothing_else_changed() -> None:
    world = two(gpus=16)
    world.step(minutes=5)
    raw, before = world.cache.budgets["h100"], status(world)
    newer = {**before["conditions"][0], "type": "Fair"}
    world.cache.see_budget({**raw, "status": {**before, "conditions": [*before["conditions"], newer]}}, gone=False)
    world.restart()
    world.step(minutes=2)
    assert status(world)["conditions"] == before["conditions"]


def test_a_budget_status_that_cannot_be_read_leaves_nothing_behind() -> None:
    world = FakeCluster()
    budget(world, -1)
    raw = world.cache.budgets["h100"]
    world.cache.see_budget({**raw, "status": {"held": 12, "use": "12/16", "conditions": 7}}, gone=False)
    world.step(minutes=2)
    assert verdict(world, "Counted")[:2] == ("False", "InvalidBudget")
    assert not {"held", "use"} & status(world).keys()
