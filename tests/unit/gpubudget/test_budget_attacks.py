"""Attempts to get more GPUs ordered than the budget, or to have a pool pushed aside, on virtual time."""

from __future__ import annotations

from typing import Any

from servingpool.adapters.cluster.errors import Unanswered
from servingpool.adapters.cluster.objects import FIELD_MANAGER, TargetKey, Workload

from ..reconcile.fake_cluster import TICK, FakeCluster, stamp  # noqa: TID252, tests are no package of an installed name
from ..reconcile.test_other_kinds import STS  # noqa: TID252
from ..reconcile.test_other_kinds import world as of_kind  # noqa: TID252
from .test_budgets import GPUS, budget, run, status, two, verdict


def names(world: FakeCluster, name: str = "h100") -> list[str]:
    return [one["name"] for one in status(world, name)["pools"]]


def extra(world: FakeCluster, service: str, pod: str = "surge") -> None:
    """A pod that nobody ordered: of a rollout with maxSurge, or in place of one that is evicted."""
    owner = [{"kind": "ReplicaSet", "uid": f"rs-{service}", "controller": True}]
    meta = {"namespace": "chat", "name": pod, "uid": pod, "creationTimestamp": stamp(world.now)}
    waiting = {"conditions": [{"type": "Ready", "status": "False"}]}
    raw = {"metadata": meta | {"ownerReferences": owner}, "spec": world.services[service].spec, "status": waiting}
    world.cache.see_pod(raw, gone=False)


def delete_deployment(world: FakeCluster, name: str) -> None:
    world.cache.see_workload({"metadata": {"namespace": "chat", "name": name, "uid": f"d-{name}"}}, gone=True)


def test_a_node_selector_leaves_pools_out_but_not_their_old_pods_on_the_budgets_nodes() -> None:
    world = two(gpus=16)
    budget(world, 16, generation=2, nodeSelector={"gpu": "h100"})
    run(world, 1, 16)
    assert names(world) == ["high", "low"], "without a node selector they may land there"
    before = dict(world.services["low"].spec)
    world.nodes["low"] = {"gpu": "a100"}
    world.show("low")
    run(world, 2, 16)
    assert names(world) == ["high"]
    world.services["low"].spec = before
    extra(world, "low")
    run(world, 2, 16)
    assert [one["held"] for one in status(world)["pools"]] == [8, GPUS]


def test_two_budgets_of_different_gpus_count_their_own_after_a_deployment_is_deleted() -> None:
    world = two(gpus=40)
    budget(world, 4, "amd", created=-5.0, resourceName="amd.com/gpu")
    run(world, 5, 40)
    assert names(world, "amd") == []
    delete_deployment(world, "low")
    for _ in range(3):
        world.now += TICK
        world.budgets.settle(world.now)
    held = {one.key[1]: claim.held for one, claim in zip(*of(world, "h100"), strict=True)}
    assert held == {"high": 8, "low": 8}, "its pods run until the garbage collector has them"
    assert of(world, "amd") == ((), ())


def of(world: FakeCluster, name: str) -> tuple[Any, Any]:
    return world.budgets.latest[name].members, world.budgets.latest[name].claims


def test_a_pool_that_is_no_longer_selected_leaves_the_budget_with_what_stands() -> None:
    world = two(gpus=16)
    run(world, 30, 16)
    budget(world, 16, generation=2, floors=[{"namespace": "chat", "pool": "high", "gpus": 4}])
    world.delete("low")
    run(world, 2, 16)
    assert (names(world), status(world)["held"]) == (["high"], 8)


def test_a_budget_that_was_never_valid_says_that_it_limits_nothing() -> None:
    world = two(gpus=16)
    bad = {"name": "bad", "uid": "bad", "generation": 1, "creationTimestamp": stamp(0.0)}
    world.cache.see_budget({"metadata": bad, "spec": {"gpus": -1}}, gone=False)
    run(world, 2, 16)
    state, reason, message = verdict(world, "Counted", "bad")
    assert (state, reason) == ("False", "InvalidBudget")
    assert message.startswith("Invalid spec, no pool is limited by it: ")
    assert "spec.gpus" in message
    assert "bad" not in world.loop.shared
    budget(world, -1, generation=2)
    run(world, 2, 16)
    assert verdict(world, "Counted")[2].startswith("Invalid spec, the last valid one counts: ")


def test_the_surge_of_a_paused_pools_rollout_does_not_push_another_pool_down() -> None:
    world = two(gpus=16, low=15.0)
    world.pool("high", target="high", priority=9, metrics={"backend": "default"}, mode="Paused")
    run(world, 20, 16)
    before = list(world.writes.scales)
    for _ in range(20):
        extra(world, "high")
        world.step()
    assert status(world)["held"] == 20
    assert verdict(world, "Sufficient")[1] == "OverBudget"
    assert world.writes.scales == before


def test_a_deployment_that_is_made_anew_waits_for_the_pods_of_the_old_one() -> None:
    world = two(gpus=16)
    run(world, 30, 16)
    delete_deployment(world, "low")
    old = [engine.name for engine in world.services["low"].engines]
    world.services["low"].engines.clear()
    for name in old:
        meta = {"namespace": "chat", "name": name, "uid": name, "deletionTimestamp": stamp(world.now + 3600.0)}
        owner = [{"kind": "ReplicaSet", "uid": "rs-low", "controller": True}]
        raw = {"metadata": meta | {"creationTimestamp": stamp(0.0), "ownerReferences": owner}}
        world.cache.see_pod(raw | {"spec": world.services["low"].spec}, gone=False)
    world.services["high"].rate = 60.0
    run(world, 10, 16)
    assert len(world.services["high"].engines) == 2
    assert status(world)["held"] == 16


def test_an_order_of_another_round_counts_though_this_round_began_before_it() -> None:
    """Its answer was lost. The round of a slow Prometheus carries the time of its begin."""
    world = two(gpus=20)
    run(world, 30, 20)
    key = TargetKey("chat", "low")
    target = world.cache.workload(key)
    assert isinstance(target, Workload)
    world.target("low", "low").sent(target, 3, "low", "", world.now + 30.0)
    world.budgets.settle(world.now)
    assert world.budgets.latest["h100"].held == 20


def test_a_lost_answer_of_an_order_that_was_carried_out_is_counted_once() -> None:
    world = two(gpus=20)
    run(world, 30, 20)
    scale = world.scale

    async def lost(target: Workload, replicas: int) -> None:
        await scale(target, replicas)
        raise Unanswered("no answer")

    world.scale = lost  # type: ignore[method-assign]
    world.services["high"].rate = world.services["low"].rate = 60.0
    run(world, 30, 20)
    assert status(world)["held"] == 20
    assert world.services["high"].set_by == FIELD_MANAGER


def test_a_budget_that_is_made_while_an_order_is_on_its_way_counts_it() -> None:
    world = two(gpus=20)
    run(world, 30, 20)
    del world.cache.budgets["h100"]
    world.cache.edition += 1
    world.writes.refuse["scale"] = Unanswered("no answer")
    world.services["high"].rate = 60.0
    world.step(2)
    budget(world, 20, "new")
    world.step()
    world.step()
    assert status(world, "new")["held"] >= 20, "the order may still be carried out"


def test_a_budget_that_is_lowered_after_the_decision_stops_the_write() -> None:
    world = two(gpus=20)
    run(world, 30, 20)
    admits = world.budgets.admits

    def lowered(*given: Any) -> bool:
        budget(world, 16, generation=2)
        return admits(*given)

    world.budgets.admits = lowered  # type: ignore[method-assign,assignment]
    world.services["high"].rate = 60.0
    run(world, 20, 16)


def test_a_pool_of_another_kind_with_a_spec_that_cannot_be_read_is_counted_all_the_same() -> None:
    world = of_kind(STS)
    budget(world, 40)
    broken = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "vllm", "min": 9, "max": 3}
    world.pool(targets=[broken])
    world.step(4)
    assert world.condition("Ready") == ("False", "InvalidSpec")
    assert verdict(world, "Counted")[:2] == ("True", "AllCounted")
    assert status(world)["held"] == 16
