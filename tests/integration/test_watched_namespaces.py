"""An operator of some namespaces, before a real API server: one that goes costs the others nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from .operators import PATIENCE, OperatorProcess, install, serving_pool, settings_on

USER, STAYS, GOES = "operator-of-two", "watched-stays", "watched-goes"
RBAC = "rbac.authorization.k8s.io"


def rights(namespace: str) -> list[dict[str, Any]]:
    """All within one namespace, which go with it."""
    metadata = {"name": USER, "namespace": namespace}
    kind = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    subject = {"apiGroup": RBAC, "kind": "User", "name": USER}
    role = {"apiGroup": RBAC, "kind": "Role", "name": USER}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {**kind, "kind": "Role", "rules": [rule]},
        {**kind, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]},
    ]


def reason(plane: ControlPlane, namespace: str) -> str:
    """Of Ready; empty before the pool was judged."""
    found = plane.client.get(f"/apis/servingpool.dev/v1alpha1/namespaces/{namespace}/servingpools/chat")
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(one["reason"]) for one in conditions if one["type"] == "Ready"), "")


def test_a_namespace_that_is_deleted_is_named_and_left_out_also_after_a_restart(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = control_plane
    install(plane, STAYS)
    for namespace in (STAYS, GOES):
        plane.apply(rights(namespace))
        plane.apply(serving_pool(namespace, "chat"))
    settings = settings_on("http://127.0.0.1:9", namespaces=[STAYS, GOES])
    kubeconfig = plane.user_kubeconfig(USER)
    operator = OperatorProcess(plane, tmp_path, settings, kubeconfig=kubeconfig, hurried=True)
    with operator.running():
        wait_until(lambda: reason(plane, GOES) == reason(plane, STAYS) == "TargetNotFound", PATIENCE, "both are judged")
        plane.client.delete(f"/api/v1/namespaces/{GOES}")
        gone = f"Namespace {GOES} is left out until it can be read; its pools are not scaled"
        wait_until(lambda: gone in operator.log(), PATIENCE, "the namespace is named")
        plane.stop_apiserver()  # each watch begins anew
        plane.start_apiserver()
        plane.client.delete(f"/apis/servingpool.dev/v1alpha1/namespaces/{STAYS}/servingpools/chat")
        plane.apply(serving_pool(STAYS, "chat"))
        wait_until(lambda: reason(plane, STAYS) == "TargetNotFound", PATIENCE, "the other one is served")
        assert operator.figure("servingpool_left_out_namespaces", namespace=GOES) == 1.0

    again = OperatorProcess(plane, tmp_path, settings, name="restarted", kubeconfig=kubeconfig, hurried=True)
    with again.running():
        wait_until(lambda: gone in again.log(), PATIENCE, "it is named again")
        plane.client.delete(f"/apis/servingpool.dev/v1alpha1/namespaces/{STAYS}/servingpools/chat")
        plane.apply(serving_pool(STAYS, "chat"))
        wait_until(lambda: reason(plane, STAYS) == "TargetNotFound", PATIENCE, "the other one is served")
        plane.apply(rights(GOES))
        plane.apply(serving_pool(GOES, "chat"))
        wait_until(lambda: reason(plane, GOES) == "TargetNotFound", PATIENCE, "made again, it is served")
        assert again.process.running, again.process.log_tail()
