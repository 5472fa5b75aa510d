"""Which pods belong to a Deployment, as watch events come in, in any order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.autoscaling import PAUSED, PAUSED_REPLICAS
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import DELETION_COST, FIELD_MANAGER, TargetKey, Workload
from servingpool.adapters.cluster.selector import parse

CHAT = TargetKey("chat", "vllm")


def deployment(name: str = "vllm", uid: str = "d-1", replicas: int = 2) -> dict[str, Any]:
    return {"metadata": {"namespace": "chat", "name": name, "uid": uid}, "spec": {"replicas": replicas}}


def replica_set(uid: str, owner: str = "d-1") -> dict[str, Any]:
    return _owned("ReplicaSet", uid, "Deployment", owner)


def pod(uid: str, owner: str | None = "rs-1", *, ready: bool = True, going: bool = False) -> dict[str, Any]:
    raw = _owned("Pod", uid, "ReplicaSet", owner)
    if going:
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    ready_at = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    raw["status"] = {"conditions": [ready_at]}
    return raw


def hpa(name: str, target: str = "vllm", kind: str = "HorizontalPodAutoscaler") -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"namespace": "chat", "name": name, "uid": name},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}},
    }


def _owned(kind: str, uid: str, owner_kind: str, owner: str | None) -> dict[str, Any]:
    references = [] if owner is None else [{"kind": owner_kind, "uid": owner, "controller": True}]
    meta = {
        "namespace": "chat",
        "name": uid,
        "uid": uid,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": references,
    }
    return {"kind": kind, "metadata": meta}


def pods_of(cache: ClusterCache) -> set[str]:
    workload = cache.workload(CHAT)
    assert workload is not None
    return {pod.name for pod in cache.pods(workload)}


def filled() -> ClusterCache:
    cache = ClusterCache()
    cache.see_workload(deployment(), gone=False)
    cache.see_replica_set(replica_set("rs-1"), gone=False)
    for uid in ("p-1", "p-2"):
        cache.see_pod(pod(uid), gone=False)
    return cache


def test_pods_are_found_through_their_owners_in_whatever_order_they_come() -> None:
    cache = ClusterCache()
    cache.see_pod(pod("p-1"), gone=False)
    cache.see_replica_set(replica_set("rs-1"), gone=False)
    cache.see_workload(deployment(), gone=False)
    assert pods_of(cache) == {"p-1"}


def test_a_deployment_with_the_same_labels_has_its_own_pods() -> None:
    cache = filled()
    cache.see_workload(deployment("twin", uid="d-2"), gone=False)
    cache.see_replica_set(replica_set("rs-2", owner="d-2"), gone=False)
    cache.see_pod(pod("p-3", "rs-2"), gone=False)
    assert pods_of(cache) == {"p-1", "p-2"}


def test_a_deployment_made_again_under_its_name_has_none_of_the_old_pods() -> None:
    cache = filled()
    cache.see_workload(deployment(uid="d-9"), gone=False)
    assert pods_of(cache) == set()


def test_a_pod_being_deleted_no_longer_counts() -> None:
    cache = filled()
    cache.see_pod(pod("p-1", going=True), gone=False)
    assert pods_of(cache) == {"p-2"}
    cache.see_pod(pod("p-2"), gone=True)
    assert pods_of(cache) == set()


def test_a_pod_that_was_taken_out_of_its_set_no_longer_counts() -> None:
    # Relabelled to be looked at by a person: the ReplicaSet lets go of it and makes another.
    cache = filled()
    cache.see_pod(pod("p-1", owner=None), gone=False)
    assert pods_of(cache) == {"p-2"}
    cache.see_pod(pod("p-1", owner=None), gone=True)
    assert pods_of(cache) == {"p-2"}


def test_a_set_that_another_deployment_adopts_takes_its_pods_along() -> None:
    cache = filled()
    cache.see_replica_set(replica_set("rs-1", owner="d-2"), gone=False)
    assert pods_of(cache) == set()


def test_pods_of_two_revisions_are_a_rollout_until_the_old_ones_go() -> None:
    cache = filled()
    workload = cache.workload(CHAT)
    assert workload is not None
    assert not cache.rolling_out(workload)
    cache.see_replica_set(replica_set("rs-2"), gone=False)
    assert not cache.rolling_out(workload), "an old revision without pods is history, not a rollout"
    cache.see_pod(pod("p-3", "rs-2", ready=False), gone=False)
    assert cache.rolling_out(workload)
    for uid in ("p-1", "p-2"):
        cache.see_pod(pod(uid, going=True), gone=False)
    assert not cache.rolling_out(workload)


def labelled(uid: str, *owner: str, **labels: str) -> dict[str, Any]:
    """A pod of the namespace with these labels, controlled by an object of this kind and uid."""
    raw = _owned("Pod", uid, *(owner or ("", None)))
    raw["metadata"]["labels"] = {name.replace("_", "-"): value for name, value in labels.items()}
    return raw


def selecting(cache: ClusterCache, *pods: dict[str, Any], kind: str = "StatefulSet", group: str = "apps") -> Workload:
    for raw in pods:
        cache.see_pod(raw, gone=False)
    key = TargetKey("chat", "vllm", kind, group)
    found = objects.target(key, {"metadata": {"uid": "s-1"}}, (), replicas=2)
    cache.see_target(key, found)
    return replace(found, selector=parse("app=vllm"))


def counted(cache: ClusterCache, workload: Workload) -> set[str]:
    return {pod.name for pods in cache.replicas(workload) for pod in pods}


def test_of_the_pods_that_a_selector_matches_those_count_that_the_target_controls() -> None:
    """A router's pods had all labels of a StatefulSet's selector: one more Ready replica, and no scale-down."""
    cache = filled()
    cache.see_replica_set(replica_set("rs-router", owner="d-router"), gone=False)
    router = labelled("router-1", "ReplicaSet", "rs-router", app="vllm", pod_template_hash="b")
    own = [labelled(f"vllm-{n}", "StatefulSet", "s-1", app="vllm", controller_revision_hash="a") for n in (0, 1)]
    workload = selecting(cache, router, *own)
    assert counted(cache, workload) == {"vllm-0", "vllm-1"}
    assert not cache.rolling_out(workload)
    assert cache.strangers(workload) == []
    router["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    cache.see_pod(router, gone=False)
    assert cache.draining(workload) == []


def test_the_owner_chain_to_a_target_may_be_long() -> None:
    """A Rollout's ReplicaSets, and pods that the leader of a group controls."""
    cache = filled()
    cache.see_replica_set(_owned("ReplicaSet", "rs-9", "Rollout", "s-1"), gone=False)
    pods = [labelled("p-8", "ReplicaSet", "rs-9", app="vllm"), labelled("p-9", "Pod", "p-8", app="vllm")]
    router = labelled("router", "ReplicaSet", "rs-1", app="vllm")
    workload = selecting(cache, router, *pods, kind="Rollout", group="argoproj.io")
    assert counted(cache, workload) == {"p-8", "p-9"}
    assert pods_of(cache) == {"p-1", "p-2", "router"}, "a Rollout's ReplicaSets are no Deployment's"


def test_pods_that_control_each_other_end() -> None:
    cache = ClusterCache()
    pods = [labelled("p-1", "Pod", "p-2", app="vllm"), labelled("p-2", "Pod", "p-1", app="vllm")]
    assert counted(cache, selecting(cache, *pods)) == {"p-1", "p-2"}


def test_of_a_kind_that_controls_no_pods_all_count_and_those_of_another_controller_are_named() -> None:
    cache = filled()
    cache.see_replica_set(replica_set("rs-router", owner="d-router"), gone=False)
    groups = [labelled(f"vllm-{n}", "StatefulSet", f"group-{n}", app="vllm") for n in (0, 1)]
    router = labelled("router-1", "ReplicaSet", "rs-router", app="vllm")
    workload = selecting(cache, router, *groups, kind="LeaderWorkerSet", group="leaderworkerset.x-k8s.io")
    assert counted(cache, workload) == {"vllm-0", "vllm-1", "router-1"}
    assert [pod.name for pod in cache.strangers(workload)] == ["router-1"]


@pytest.mark.parametrize(
    "label",
    [
        "rollouts-pod-template-hash",
        "pod-template-hash",
        "controller-revision-hash",
        "leaderworkerset.sigs.k8s.io/template-revision-hash",
        "grove.io/pod-template-hash",
        "storm-service-revision",
    ],
)
def test_two_values_of_a_template_hash_are_a_rollout_of_any_kind(label: str) -> None:
    cache = ClusterCache()
    pods = [labelled(f"p-{n}", app="vllm", **{label: value}) for n, value in enumerate(("a", "a", "b"))]
    workload = selecting(cache, *pods[:2], kind="Fleet", group="example.com")
    assert not cache.rolling_out(workload)
    cache.see_pod(pods[2], gone=False)
    assert cache.rolling_out(workload)
    cache.see_pod(pods[2], gone=True)
    assert not cache.rolling_out(workload)


def test_the_sets_that_a_leader_worker_set_makes_of_each_group_are_no_rollout() -> None:
    cache, own = ClusterCache(), "leaderworkerset.sigs.k8s.io/template-revision-hash"
    pods = [labelled(f"p-{n}", app="vllm", **{own: "a", "controller-revision-hash": str(n)}) for n in (0, 1)]
    assert not cache.rolling_out(selecting(cache, *pods))


def elsewhere(raw: dict[str, Any]) -> dict[str, Any]:
    raw["metadata"]["namespace"] = "tenant"
    return raw


def test_owners_count_in_their_own_namespace_alone() -> None:
    """Uids are no secret: ReplicaSets and pods of another tenant named a Deployment, and grew its fleet."""
    cache = filled()
    workload = cache.workload(CHAT)
    assert workload is not None
    cache.see_replica_set(elsewhere(replica_set("rs-2")), gone=False)
    for name, owner in (("p-8", "rs-2"), ("p-9", "rs-1")):
        cache.see_pod(elsewhere(pod(name, owner)), gone=False)
    assert pods_of(cache) == {"p-1", "p-2"}
    assert not cache.rolling_out(workload)
    assert cache.draining(workload) == []


def test_a_replica_set_that_is_being_deleted_owns_nothing() -> None:
    cache = filled()
    dying = replica_set("rs-1")
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    cache.see_replica_set(dying, gone=False)
    assert pods_of(cache) == set()


def test_keda_is_named_before_the_hpa_that_it_made() -> None:
    cache = filled()
    cache.see_autoscaler(hpa("keda-hpa-x"), gone=False)
    cache.see_autoscaler(hpa("x", kind="ScaledObject"), gone=False)
    assert [one.kind for one in cache.autoscalers(CHAT)] == ["ScaledObject", "HorizontalPodAutoscaler"]


@pytest.mark.parametrize(
    ("annotations", "condition", "scales"),
    [
        ({}, "False", True),
        ({PAUSED: "true"}, "True", False),
        ({PAUSED: "true"}, "False", True),
        ({PAUSED: "false"}, "True", True),
        ({PAUSED: "any other word"}, "True", False),
        ({PAUSED: "true", PAUSED_REPLICAS: "3"}, "True", True),
        ({"autoscaling.keda.sh/paused-scale-in": "true"}, "True", True),
    ],
)
def test_a_scaled_object_scales_until_keda_has_paused_it(
    annotations: dict[str, str], condition: str, scales: bool
) -> None:
    cache = filled()
    cache.see_autoscaler(hpa("keda-hpa-x"), gone=False)
    raw = hpa("x", kind="ScaledObject")
    raw["metadata"]["annotations"] = annotations
    raw["status"] = {"conditions": [{"type": "Paused", "status": condition}]}
    cache.see_autoscaler(raw, gone=False)
    assert [one.kind for one in cache.autoscalers(CHAT)] == [
        *(["ScaledObject"] if scales else []),
        "HorizontalPodAutoscaler",
    ], "the HPA that KEDA made counts until it is gone"


def test_an_autoscaler_that_turns_to_another_target_lets_go_of_the_first() -> None:
    cache = filled()
    cache.see_autoscaler(hpa("x"), gone=False)
    cache.see_autoscaler(hpa("x", target="other"), gone=False)
    assert cache.autoscalers(CHAT) == []
    assert len(cache.autoscalers(TargetKey("chat", "other"))) == 1
    cache.see_autoscaler(hpa("x", target="other"), gone=True)
    assert cache.autoscalers(TargetKey("chat", "other")) == []


def marked(uid: str, *, going: bool = False) -> dict[str, Any]:
    raw = pod(uid, going=going)
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{DELETION_COST}": {}}}}
    raw["metadata"]["annotations"] = {DELETION_COST: "-1"}
    raw["metadata"]["managedFields"] = [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}]
    return raw


def test_pods_with_a_deletion_cost_of_ours_are_found_until_they_lose_it_or_go() -> None:
    cache = filled()
    assert list(cache.costly()) == []
    for uid in ("p-1", "p-2"):
        cache.see_pod(marked(uid), gone=False)
    found = list(cache.costly())
    assert [(namespace, each.name) for namespace, each, _ in found] == [("chat", "p-1"), ("chat", "p-2")]
    assert all(workload == cache.workload(CHAT) for _, _, workload in found)
    cache.see_pod(pod("p-1"), gone=False)
    cache.see_pod(marked("p-2", going=True), gone=False)
    assert list(cache.costly()) == []
    cache.see_pod(marked("p-1"), gone=False)
    cache.see_pod(marked("p-1"), gone=True)
    assert list(cache.costly()) == []


def test_a_pod_with_our_cost_is_found_even_without_its_deployment() -> None:
    cache = filled()
    cache.see_pod(marked("p-1"), gone=False)
    cache.see_workload(deployment(), gone=True)
    assert [(each.name, workload) for _, each, workload in cache.costly()] == [("p-1", None)]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=a", ["a-0", "a-1"]),
        ("team=x,app in (a, b)", ["a-0", "a-1", "b-0"]),
        ("team=x,!canary", ["a-0", "b-0"]),
        ("app notin (a)", ["b-0", "c-0"]),
        ("canary", ["a-1"]),
        ("app=nobody", []),
    ],
)
def test_the_pods_of_other_kinds_are_those_of_the_selector_as_they_come_and_go(
    selector: str, expected: list[str]
) -> None:
    cache = ClusterCache()
    workload = replace(objects.workload(deployment()), selector=parse(selector))
    labelled: dict[str, dict[str, str]] = {
        "a-0": {"app": "a", "team": "x"},
        "a-1": {"app": "a", "team": "x", "canary": ""},
        "b-0": {"app": "b", "team": "x"},
        "c-0": {},
    }
    for name, labels in labelled.items():
        cache.see_pod(_with_labels(name, labels), gone=False)
        cache.replicas(workload)  # what is remembered of it must not last
    assert sorted(pods[0].name for pods in cache.replicas(workload)) == expected
    cache.see_pod(_with_labels("a-0", labelled["a-0"]), gone=True)
    assert sorted(pods[0].name for pods in cache.replicas(workload)) == [one for one in expected if one != "a-0"]
    cache.see_pod(_with_labels("a-1", {"app": "moved"}), gone=False)
    assert "a-1" not in {pods[0].name for pods in cache.replicas(workload)} or "notin" in selector


def _with_labels(name: str, labels: dict[str, str]) -> dict[str, Any]:
    raw = pod(name, None)
    raw["metadata"]["labels"] = labels
    return raw
