"""What the operator may patch on a pod, on a real API server: its deletion cost, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.adapters.cluster.objects import DELETION_COST, FIELD_MANAGER
from servingpool_lab.api_client import ApiClient, ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from .operators import ACCOUNT, NAMESPACE, PATIENCE

DEPLOY = Path(__file__).parents[2] / "deploy"
POLICY = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{ACCOUNT}.{NAMESPACE}"
OTHER = "somebody"
"""A service account with the same right, and not the operator's."""
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
CONTAINER = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0"}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "vllm-1",
        "labels": {"app": "vllm"},
        "annotations": {"team": "chat"},
        "finalizers": ["example.com/drain"],
    },
    # Gated, so that nobody else changes it.
    "spec": {"schedulingGates": [{"name": "example.com/wait"}], "containers": [CONTAINER]},
}
UID = "8a9c0f5e-0000-4000-8000-000000000000"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": UID}
COST = {DELETION_COST: "-1"}
Patch = dict[str, Any]

REFUSED: dict[str, Patch] = {
    "a label changed": {"metadata": {"labels": {"app": "mine"}}},
    "a label removed": {"metadata": {"labels": None}},
    "an annotation added": {"metadata": {"annotations": {"mine": "1"}}},
    "an annotation changed": {"metadata": {"annotations": {"team": "mine"}}},
    "an annotation removed": {"metadata": {"annotations": {"team": None}}},
    "all annotations removed": {"metadata": {"annotations": None}},
    "a cost and an annotation": {"metadata": {"annotations": {**COST, "mine": "1"}}},
    "a finalizer added": {"metadata": {"finalizers": ["example.com/drain", "example.com/mine"]}},
    "the finalizers removed": {"metadata": {"finalizers": None}},
    "an owner": {"metadata": {"ownerReferences": [OWNER]}},
    "another name to generate": {"metadata": {"generateName": "mine-"}},
    "an image": {"spec": {"containers": [{**CONTAINER, "image": "mine"}]}},
    "a gate removed": {"spec": {"schedulingGates": None}},
    "a cost and a gate removed": {"metadata": {"annotations": COST}, "spec": {"schedulingGates": None}},
}


def client_of(plane: ControlPlane, namespace: str, account: str) -> ApiClient:
    """Requests as a service account."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return ApiClient(plane.url, plane._tls, plane.client.create(path, request)["status"]["token"])


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane) -> ApiClient:
    """With what deploy/ allows it."""
    for name in yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]:
        if name != "deployment.yaml":  # its two pods would be left to the tests of others
            control_plane.apply(DEPLOY / name)
    return client_of(control_plane, NAMESPACE, ACCOUNT)


@pytest.fixture
def pod(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """The path of a pod."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.client.create(path, POD)
    yield f"{path}/vllm-1"
    control_plane.client.patch(f"{path}/vllm-1", {"metadata": {"finalizers": None}})


def patched(client: ApiClient, pod: str, patch: Patch, content_type: str = STRATEGIC) -> Patch:
    """The pod as it would be."""
    return client.request("PATCH", f"{pod}?dryRun=All", patch, content_type=content_type)


def refusal(client: ApiClient, pod: str, patch: Patch) -> ApiError | None:
    try:
        patched(client, pod, patch)
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize("what", REFUSED)
def test_the_operator_may_change_nothing_else_of_a_pod(
    control_plane: ControlPlane, operator: ApiClient, pod: str, what: str
) -> None:
    patched(control_plane.client, pod, REFUSED[what])  # it is the policy that refuses it, not validation
    wait_until(lambda: refusal(operator, pod, REFUSED[what]) is not None, PATIENCE, f"refused: {what}")
    error = refusal(operator, pod, REFUSED[what])
    assert error is not None
    assert error.status == 403
    assert f"The ServingPool operator may change only the annotation {DELETION_COST} of a pod" in str(error)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY])
def test_the_operator_may_set_change_and_remove_the_deletion_cost(
    control_plane: ControlPlane, operator: ApiClient, pod: str, content_type: str
) -> None:
    wait_until(lambda: refusal(operator, pod, REFUSED["a label changed"]) is not None, PATIENCE, "the policy")
    if content_type == APPLY:  # as the operator does it: what is left out is removed
        path, base = f"{pod}?fieldManager={FIELD_MANAGER}", {"apiVersion": "v1", "kind": "Pod"}
        steps = [{**base, "metadata": {"annotations": {DELETION_COST: cost}}} for cost in ("-1", "-2")]
        steps.append({**base, "metadata": {}})
    else:
        path = pod
        steps = [{"metadata": {"annotations": {DELETION_COST: cost}}} for cost in ("-1", "-2", None)]
    found = [operator.request("PATCH", path, step, content_type=content_type)["metadata"] for step in steps]
    assert [each["annotations"].get(DELETION_COST) for each in found] == ["-1", "-2", None]
    assert found[-1]["annotations"] == POD["metadata"]["annotations"]  # type: ignore[index]


def test_a_pod_without_labels_and_annotations_can_bear_a_cost_too(
    control_plane: ControlPlane, operator: ApiClient, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.client.create(path, {**POD, "metadata": {"name": "bare"}})
    label = REFUSED["a label changed"]
    wait_until(lambda: refusal(operator, f"{path}/bare", label) is not None, PATIENCE, "the policy")
    found = patched(operator, f"{path}/bare", {"metadata": {"annotations": COST}})
    assert found["metadata"]["annotations"] == COST


def test_others_are_not_restricted(control_plane: ControlPlane, operator: ApiClient, pod: str, namespace: str) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": OTHER, "namespace": namespace}
    meta = {"name": OTHER, "namespace": namespace}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta}
    control_plane.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}])
    control_plane.apply([{**binding, "roleRef": role, "subjects": [subject]}])
    other, label = client_of(control_plane, namespace, OTHER), REFUSED["a label changed"]
    wait_until(lambda: refusal(operator, pod, label) is not None, PATIENCE, "the policy")
    assert patched(other, pod, label)["metadata"]["labels"] == {"app": "mine"}


def test_the_api_server_finds_no_fault_in_the_policy(control_plane: ControlPlane, operator: ApiClient) -> None:
    def checked() -> Patch:
        return dict(control_plane.client.get(POLICY).get("status", {}))

    wait_until(lambda: "typeChecking" in checked(), PATIENCE, "the types are checked")
    assert checked()["typeChecking"] == {}
