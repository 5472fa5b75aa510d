"""What is kept of a Kubernetes object, from manifests as the API server sends them."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.objects import TargetKey

CREATED, READY = "2026-01-01T00:00:00Z", "2026-01-01T00:01:40Z"


def container(name: str = "vllm", **more: Any) -> dict[str, Any]:
    """`gpus` and `cpu` are limits."""
    limits = {"nvidia.com/gpu": more.pop("gpus", None), "cpu": more.pop("cpu", None)}
    return {"name": name, "resources": {"limits": {key: value for key, value in limits.items() if value}}, **more}


def deployment(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> dict[str, Any]:
    pod = {"containers": list(containers), "initContainers": list(init)}
    return {
        "metadata": {"namespace": "chat", "name": "vllm", "uid": "d-1"},
        "spec": {"replicas": 2, "template": {"spec": pod}, **spec},
    }


def pod(*conditions: dict[str, Any], owner: str | None = "ReplicaSet", **changes: Any) -> dict[str, Any]:
    references = [{"kind": owner, "uid": "rs-1", "controller": True}] if owner else []
    meta = {
        "namespace": "chat",
        "name": "vllm-1",
        "uid": "p-1",
        "creationTimestamp": CREATED,
        "ownerReferences": references,
        **changes.pop("meta", {}),
    }
    return {"metadata": meta, "status": {"phase": "Running", "conditions": list(conditions), **changes}}


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-3g.40gb",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "huawei.com/Ascend910",
    ],
)
def test_counts_the_gpus_of_any_vendor(resource: str) -> None:
    limits = {"resources": {"limits": {resource: "4", "cpu": "8", "memory": "64Gi"}}}
    assert objects.workload(deployment(limits)).gpus == 4


@pytest.mark.parametrize(
    "resource", ["nvidia.com/hostdev", "cpu", "memory", "hugepages-2Mi", "rdma/hca", "example.com/gpudirect"]
)
def test_other_resources_are_no_gpus(resource: str) -> None:
    assert objects.workload(deployment({"resources": {"limits": {resource: "4"}}})).gpus == 0


def test_adds_the_gpus_of_what_runs_together() -> None:
    loader = container("download", gpus="3")
    sidecar = container("embedder", gpus="1", restartPolicy="Always")
    engine, proxy = container(gpus="2", cpu="8"), container("proxy", cpu="1")
    assert objects.workload(deployment(engine, proxy, {"name": "plain"}, init=(loader, sidecar))).gpus == 3


@pytest.mark.parametrize(("stored", "gpus"), [("16k", 1), ("any", 1)])
def test_an_amount_in_another_form_does_not_hide_the_deployment(stored: str, gpus: int) -> None:
    """16000 is stored as 16k. Reading that raised in the handler, and the Deployment "did not exist"."""
    limits = {"resources": {"limits": {"huawei.com/Ascend910B": "1", "huawei.com/Ascend910B-memory": stored}}}
    assert objects.workload(deployment(limits)).gpus == gpus


def test_a_deployment_without_replicas_asks_for_one() -> None:
    raw = deployment({"name": "vllm"})
    del raw["spec"]["replicas"]
    assert objects.workload(raw).replicas == 1


@pytest.mark.parametrize("since", [{}, {"lastTransitionTime": None}])
def test_a_ready_pod_that_does_not_say_since_when_serves_since_it_was_made(since: dict[str, Any]) -> None:
    found = objects.pod(pod({"type": "Ready", "status": "True", **since}))
    assert found.ready_since == found.created_at


def sets(manager: str, subresource: str = "", at: str = READY, **spec: Any) -> dict[str, Any]:
    """An entry of managedFields."""
    fields = {"f:spec": {f"f:{name}": value for name, value in spec.items()}}
    return {"manager": manager, "operation": "Update", "subresource": subresource, "time": at, "fieldsV1": fields}


OURS = sets(objects.FIELD_MANAGER, "scale", CREATED, replicas={})


@pytest.mark.parametrize(
    ("managers", "expected"),
    [
        ([], None),
        ([sets("kubectl", template={})], None),
        ([sets("kubectl", replicas={}), sets("kube-controller-manager", "status")], ("kubectl", READY)),
        ([sets("flux", template={}), OURS], (objects.FIELD_MANAGER, CREATED)),
        ([sets("argocd", replicas={}), OURS], (objects.FIELD_MANAGER, CREATED)),
        ([sets("argocd", "", CREATED, replicas={}), sets("helm", replicas={})], ("helm", READY)),
        ([{"manager": "old"}], None),
        ([sets("ancient-changes", replicas={})], None),
        ([sets("before-first-apply", replicas={})], None),
        ([sets("", replicas={})], None),
        ([{**sets("", replicas={}), "manager": None}], None),
        ([sets("ancient-changes", replicas={}), sets("helm", "", CREATED, replicas={})], ("helm", CREATED)),
    ],
)
def test_the_setter_of_replicas_is_read_from_managed_fields(managers: list[Any], expected: Any) -> None:
    raw = deployment({"name": "vllm"})
    raw["metadata"]["managedFields"] = managers
    assert objects.workload(raw).set_by == (None if expected is None else objects.Setter(*expected))
    raw["metadata"]["managedFields"] = None
    assert objects.workload(raw).set_by is None


def test_a_pod_without_status_is_starting() -> None:
    raw = pod()
    del raw["status"]
    found = objects.pod(raw)
    assert (found.ready_since, found.going, found.unschedulable) == (None, False, "")


@pytest.mark.parametrize(("reason", "expected"), [("Unschedulable", "0/3 nodes: 3 cordoned"), ("SchedulingGated", "")])
def test_only_a_pod_that_no_node_has_room_for_is_unschedulable(reason: str, expected: str) -> None:
    said = "0/3 nodes: 3 cordoned. no new claims to deallocate, preemption: 0/3 nodes."
    found = objects.pod(pod({"type": "PodScheduled", "status": "False", "reason": reason, "message": said}))
    assert found.unschedulable == expected


@pytest.mark.parametrize(
    "changes", [{"phase": "Failed"}, {"phase": "Succeeded"}, {"meta": {"deletionTimestamp": READY}}]
)
def test_a_pod_that_ended_or_is_being_deleted_is_going(changes: dict[str, Any]) -> None:
    found = objects.pod(pod({"type": "Ready", "status": "True", "lastTransitionTime": READY}, **changes))
    assert found.going


def test_an_owner_that_does_not_control_is_no_owner() -> None:
    raw = pod()
    raw["metadata"]["ownerReferences"][0]["controller"] = False
    assert objects.pod(raw).owner == objects.NO_OWNER


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllm"}, TargetKey("chat", "vllm")),
        ({"name": "vllm"}, TargetKey("chat", "vllm")),  # KEDA's default kind is Deployment
        ({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "vllm"}, TargetKey("chat", "vllm", "StatefulSet")),
        (
            {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "vllm"},
            TargetKey("chat", "vllm", "LeaderWorkerSet", "leaderworkerset.x-k8s.io"),
        ),
        ({"kind": "Deployment"}, None),
    ],
)
def test_reads_what_an_autoscaler_scales(reference: dict[str, str], target: TargetKey | None) -> None:
    raw = {
        "kind": "ScaledObject",
        "metadata": {"namespace": "chat", "name": "other", "uid": "a-1"},
        "spec": {"scaleTargetRef": reference},
    }
    found = objects.autoscaler(raw)
    assert (found.target if found is not None else None) == target


def costly(text: str, *managers: tuple[str, str]) -> dict[str, Any]:
    """Who is said to have written it: manager and operation."""
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{objects.DELETION_COST}": {}}}}
    managed = [{"manager": name, "operation": operation, "fieldsV1": fields} for name, operation in managers]
    return pod(meta={"annotations": {objects.DELETION_COST: text}, "managedFields": managed})


@pytest.mark.parametrize(
    ("text", "value"),
    [("-1", -1), ("0", 0), ("10", 10), ("+10", 0), ("008", 0), ("1.5", 0), ("", 0), ("2147483648", 0), ("cheap", 0)],
)
def test_a_deletion_cost_is_what_kubernetes_takes_it_for(text: str, value: int) -> None:
    found = objects.pod(costly(text))
    assert found.cost == objects.DeletionCost(value, ours=False)


@pytest.mark.parametrize(
    ("manager", "ours"),
    [
        (("servingpool-operator", "Apply"), True),
        (("servingpool-operator", "Update"), False),
        (("kubectl-annotate", "Update"), False),
        (("kubectl", "Apply"), False),
    ],
)
def test_a_deletion_cost_is_ours_if_the_api_server_says_so(manager: tuple[str, str], ours: bool) -> None:
    found = objects.pod(costly("-1", ("kubelet", "Update"), manager))
    assert found.cost == objects.DeletionCost(-1, ours=ours)


def test_a_pod_of_which_we_have_taken_the_cost_back_has_none() -> None:
    raw = costly("7", ("somebody", "Update"))
    raw["metadata"]["managedFields"].append({"manager": "servingpool-operator", "operation": "Apply"})
    found = objects.pod(raw)
    assert found.cost == objects.DeletionCost(7, ours=False)
    plain = objects.pod(pod(meta={"annotations": {"other": "x"}}))
    assert plain.cost is None
