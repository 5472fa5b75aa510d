"""What the operator does where the cluster is not as it should be: each case has its own words in the Ready condition."""

from __future__ import annotations

import pytest

from servingpool.adapters.cluster.objects import FIELD_MANAGER

from .world import START, World


def hungry(**spec: object) -> World:
    """Two replicas that need to be more, calibrated, if nothing stands in the way."""
    world = World()
    world.serve(rate=30.0)
    world.pool(**spec)
    return world


def test_a_missing_target_is_waited_for() -> None:
    world = World()
    world.pool()
    world.step()
    assert world.condition("Ready") == ("False", "TargetNotFound")
    assert world.message("Ready") == "Deployment vllm does not exist in namespace chat"
    world.step(minutes=5)
    assert world.writes.reasons("pool") == ["TargetNotFound"], "warned of once"
    world.serve()
    world.step()
    assert world.condition("Ready") == ("True", "SucceededGetScale")


def test_a_deployment_of_that_name_in_another_namespace_is_no_target() -> None:
    world = World()
    world.pool()
    raw = {"metadata": {"namespace": "other", "name": "vllm", "uid": "d-other"}, "spec": {"replicas": 2}}
    world.cache.see_workload(raw, gone=False)
    world.step()
    assert world.condition("Ready") == ("False", "TargetNotFound")


@pytest.mark.parametrize(
    ("kind", "reason"), [("HorizontalPodAutoscaler", "OwnedByHPA"), ("ScaledObject", "OwnedByKEDA")]
)
def test_what_another_autoscaler_owns_is_left_to_it(kind: str, reason: str) -> None:
    world = hungry()
    world.autoscaler(kind)
    world.step(minutes=5)
    assert world.writes.scales == []
    assert world.condition("Ready") == ("False", reason)
    assert f"is scaled by {kind} x" in world.message("Ready")
    assert world.writes.reasons("pool") == [reason]
    assert world.status()["desiredReplicas"] > 2, "what would be right is told all the same"
    world.autoscaler(kind, gone=True)
    world.step()
    assert len(world.writes.scales) == 1


def test_recommend_beside_an_hpa_is_a_way_to_compare() -> None:
    world = hungry(mode="Recommend")
    world.autoscaler("HorizontalPodAutoscaler")
    world.step(minutes=5)
    assert world.condition("Ready") == ("True", "Recommending")
    assert world.status()["desiredReplicas"] > 2


def test_of_two_pools_with_one_target_the_older_acts() -> None:
    world = hungry()
    world.pool("younger", created=START + 60.0, targets=[{"name": "vllm", "min": 1, "max": 3}])
    world.step(minutes=5)
    assert world.condition("Ready", "pool") == ("True", "SucceededGetScale")
    assert world.condition("Ready", "younger") == ("False", "AmbiguousOwner")
    assert "already belongs to ServingPool pool" in world.message("Ready", "younger")
    assert world.writes.reasons("younger") == ["AmbiguousOwner"]
    assert len({after for _, _, after in world.writes.scales}) == len(world.writes.scales), "no tug of war"
    world.delete("pool")
    world.step()
    assert world.condition("Ready", "younger") == ("True", "SucceededGetScale")


def test_two_pools_made_in_the_same_second_are_told_apart_by_name() -> None:
    world = hungry()
    world.pool("another")
    world.step()
    assert world.condition("Ready", "another") == ("True", "SucceededGetScale")
    assert world.condition("Ready", "pool") == ("False", "AmbiguousOwner")


def test_a_pool_that_only_recommends_owns_nothing() -> None:
    world = hungry(mode="Recommend")
    world.pool("younger", created=START + 60.0)
    world.step(minutes=5)
    assert world.condition("Ready", "younger") == ("True", "SucceededGetScale")
    assert world.writes.scales != []


def test_zero_replicas_by_hand_pause_as_with_an_hpa() -> None:
    world = hungry()
    world.set_replicas("vllm", 0)
    world.step(minutes=5)
    assert world.writes.scales == []
    assert world.condition("Ready") == ("False", "ScalingDisabled")
    assert "pauses scaling" in world.message("Ready")
    world.set_replicas("vllm", 1)
    world.step()
    assert world.condition("Ready")[0] == "True"


def test_nothing_more_is_ordered_while_no_node_has_room() -> None:
    world = hungry()
    world.services["vllm"].unschedulable = True
    world.step(minutes=4)
    assert world.writes.scales != [], "the first order finds out"
    assert world.condition("Ready") == ("True", "WaitingForNode"), "a cluster autoscaler takes minutes"
    assert world.message("Ready").startswith("no node has room for")
    assert world.writes.reasons("pool") == ["SuccessfulRescale"] * len(world.writes.scales)
    orders = len(world.writes.scales)
    world.services["vllm"].rate = 60.0
    world.step(minutes=10)
    assert len(world.writes.scales) == orders
    assert world.condition("Ready") == ("False", "Unschedulable")
    assert "no node has room for" in world.message("Ready")
    assert any(limit["name"] == "Unschedulable" for limit in world.status()["lastDecision"]["limits"])
    world.services["vllm"].unschedulable = False
    world.step(minutes=5)
    assert world.condition("Ready") == ("True", "SucceededGetScale")


def test_a_fleet_amid_a_rollout_may_grow_and_does_not_shrink() -> None:
    world = World()
    world.serve(rate=6.0)
    world.pool()
    world.step(minutes=8)
    world.set_replicas("vllm", 6)
    owner = [{"kind": "Deployment", "uid": "d-vllm", "controller": True}]
    meta = {"namespace": "chat", "name": "rs-new", "uid": "rs-new", "ownerReferences": owner}
    world.cache.see_replica_set({"metadata": meta}, gone=False)
    owner = [{"kind": "ReplicaSet", "uid": "rs-new", "controller": True}]
    meta = {
        **meta,
        "name": "new-1",
        "uid": "new-1",
        "creationTimestamp": "2023-11-14T22:00:00Z",
        "ownerReferences": owner,
    }
    pod = {"metadata": meta, "status": {"conditions": []}}
    world.cache.see_pod(pod, gone=False)
    world.writes.scales.clear()
    world.step(minutes=10)
    assert world.writes.scales == []
    assert world.condition("Ready") == ("True", "RolloutInProgress")
    assert any(limit["name"] == "RolloutInProgress" for limit in world.status()["lastDecision"]["limits"])
    world.cache.see_pod(pod, gone=True)
    world.step(minutes=5)
    assert world.writes.scales[-1][2] < 6


def test_a_backend_that_nobody_configured_is_told_with_those_that_there_are() -> None:
    world = hungry(metrics={"backend": "thanos"})
    world.step(minutes=5)
    assert world.condition("Ready") == ("False", "UnknownBackend")
    assert world.message("Ready") == "metrics.backend must be one of default, got thanos"
    assert world.writes.scales == []


def test_a_backend_of_other_namespaces_is_not_read() -> None:
    world = World(namespaces=("team-*",))
    world.serve(rate=30.0)
    world.pool()
    world.step(minutes=5)
    assert world.condition("Ready") == ("False", "UnknownBackend")
    assert world.message("Ready") == "backend default is not open to namespace chat"
    assert world.prometheus.asked == []


def test_a_wrong_model_name_is_told_with_the_right_one() -> None:
    world = hungry(model="lama")
    world.step(minutes=5)
    assert world.writes.scales == []
    assert world.condition("MetricsAvailable") == ("False", "NoSeriesForModel")
    assert "the page is of model 'llama', not 'lama'" in world.message("MetricsAvailable")
    assert world.writes.reasons("pool") == ["NoSeriesForModel"]


def test_the_need_beyond_max_is_told() -> None:
    world = hungry(targets=[{"name": "vllm", "min": 1, "max": 3}])
    world.step(minutes=8)
    assert world.writes.scales[-1][2] == 3
    assert world.condition("ScalingLimited") == ("True", "TooManyReplicas")
    assert "replicas are needed, max is 3" in world.message("ScalingLimited")


def test_below_min_is_brought_up_without_any_metrics() -> None:
    world = World()
    world.serve(replicas=1, rate=1.0)
    world.pool(targets=[{"name": "vllm", "min": 3, "max": 10}])
    world.prometheus.silent = "Prometheus backend 'default' cannot be reached"
    world.step()
    assert world.writes.scales == [(("chat", "vllm"), 1, 3)]


def contested(by: str = "argocd-controller", times: int = 3) -> World:
    """A pool that needs more, and somebody who sets it back to two as soon as it has them."""
    world = hungry()
    while times:
        world.step()
        if world.services["vllm"].set_by == FIELD_MANAGER:
            world.set_replicas("vllm", 2, by=by)
            times -= 1
    world.step()
    return world


def test_a_tool_that_sets_replicas_back_is_named() -> None:
    world = contested()
    assert world.condition("Ready") == ("False", "ReplicasContested")
    (_, _, ordered), *_ = world.writes.scales
    said = f"3 times in 10 minutes, last from {ordered} to 2 by argocd-controller; leave spec.replicas out"
    assert said in world.message("Ready")
    assert world.writes.reasons("pool").count("ReplicasContested") == 1


def test_while_replicas_are_contested_they_are_ordered_all_the_same_without_an_event_each() -> None:
    world = contested()
    orders, events = len(world.writes.scales), world.writes.reasons("pool").count("SuccessfulRescale")
    for _ in range(8):
        world.set_replicas("vllm", 2, by="argocd-controller")
        world.step()
    assert len(world.writes.scales) == orders + 8
    assert world.writes.reasons("pool").count("SuccessfulRescale") == events


def test_ten_minutes_after_the_last_contest_all_is_well() -> None:
    world = contested()
    world.step(minutes=9)
    assert world.condition("Ready") == ("False", "ReplicasContested")
    world.step(minutes=2)
    assert world.condition("Ready")[0] == "True"


def test_a_person_who_sets_a_number_twice_contests_nothing() -> None:
    world = contested(by="kubectl-scale", times=2)
    assert world.condition("Ready") == ("True", "SucceededGetScale")


def test_what_the_watch_shows_late_of_our_own_orders_is_no_contest() -> None:
    world = contested(by=FIELD_MANAGER, times=6)
    assert world.condition("Ready") == ("True", "SucceededGetScale")
