"""Objects as a real API server stores and its controllers make them: whose pods are, GPUs, and what no tenant may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.autoscaling import manifest_writers
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from .operators import ACCOUNT, PATIENCE, Cluster, Traffic, deployment, install
from .operators import NAMESPACE as SYSTEM

NAMESPACE = "objects"
GPU = "nvidia.com/gpu"
FLEET = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "fleets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Fleet", "plural": "fleets", "singular": "fleet"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for name in ("spec", "status")
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}
RIGHTS: list[dict[str, Any]] = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "fleets"},
        "rules": [{"apiGroups": ["example.com"], "resources": ["fleets", "fleets/scale"], "verbs": ["get", "patch"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "fleets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fleets"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}],
    },
]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    install(control_plane, NAMESPACE)
    control_plane.apply([FLEET, *RIGHTS])
    control_plane.add_gpu_node("gpu-objects", gpus=64)
    with Traffic(control_plane, pod_metrics) as traffic:
        yield Cluster(control_plane, traffic, NAMESPACE)
    for path in (f"/api/v1/namespaces/{NAMESPACE}", "/api/v1/nodes/gpu-objects"):
        control_plane.client.delete(path)


def limited(name: str, limits: dict[str, str], replicas: int = 1, **spec: Any) -> dict[str, Any]:
    """A Deployment whose engine has these limits."""
    manifest = deployment(NAMESPACE, name, replicas)
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    manifest["spec"]["template"]["spec"] |= spec
    return manifest


def container(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": {"limits": {GPU: str(gpus)}}, **more}


def stored(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.plane.client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")


@pytest.mark.parametrize(
    ("name", "memory", "kept"), [("Ascend910B", "16000", "16k"), ("Ascend910B4", "16384", "16384")]
)
def test_slices_of_a_device_are_no_devices_in_whatever_form_they_are_stored(
    cluster: Cluster, name: str, memory: str, kept: str
) -> None:
    device, workload = f"huawei.com/{name}", name.lower()
    cluster.plane.apply(limited(workload, {device: "1", f"{device}-memory": memory, f"{device}-core": "50"}))
    raw = stored(cluster, workload)
    limits = raw["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits[f"{device}-memory"] == kept
    assert objects.workload(raw).gpus == 1


@pytest.mark.parametrize(
    ("name", "init", "engine", "each"),
    [
        ("warm", [container("convert", 4)], 1, 4),
        ("beside", [container("cache", 2, restartPolicy="Always"), container("convert", 3)], 1, 5),
        ("after", [container("convert", 3), container("cache", 2, restartPolicy="Always")], 2, 4),
    ],
)
def test_a_replica_has_the_gpus_that_kubernetes_counts(
    cluster: Cluster, name: str, init: list[dict[str, Any]], engine: int, each: int
) -> None:
    space = f"/api/v1/namespaces/{NAMESPACE}"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": NAMESPACE},
        "spec": {"hard": {f"requests.{GPU}": "64"}},
    }
    cluster.plane.apply(quota)

    def used() -> int:
        status = cluster.plane.client.get(f"{space}/resourcequotas/gpus").get("status", {})
        return int(status.get("used", {}).get(f"requests.{GPU}", "-1"))

    wait_until(lambda: used() >= 0, PATIENCE, "the quota counts")
    before = used()
    cluster.plane.apply(limited(name, {GPU: str(engine)}, replicas=2, initContainers=init))
    wait_until(lambda: used() == before + 2 * each, PATIENCE, f"the quota counts {2 * each} more")
    workload = objects.workload(stored(cluster, name))
    assert workload.gpus == each
    assert [objects.pod(raw).devices.amount(GPU) for raw in cluster.pods(name).values()] == [each, each]
    cluster.plane.client.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")
    wait_until(lambda: used() == before, PATIENCE, "they are given back")


@pytest.mark.usefixtures("operator")
def test_the_api_servers_sentence_is_told_of_an_object_without_replicas(cluster: Cluster) -> None:
    kind = {"apiVersion": "example.com/v1alpha1", "kind": "Fleet"}
    cluster.plane.apply({**kind, "metadata": {"name": "f", "namespace": NAMESPACE}, "spec": {"x": 1}})
    cluster.pool("f", targets=[{**kind, "name": "f", "min": 1, "max": 6}])
    cluster.wait_condition("f", "Ready", ("False", "FailedGetScale"))
    wait_until(
        lambda: 'the spec replicas field ".spec.replicas" does not exist' in cluster.told("f", "Ready"),
        PATIENCE,
        "the sentence",
    )


def test_the_api_servers_own_names_of_writers_are_no_program(cluster: Cluster) -> None:
    cluster.plane.apply(deployment(NAMESPACE, "many", 0))
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/many"
    merge = "application/merge-patch+json"

    def patched(manager: str, changes: dict[str, Any]) -> None:
        cluster.plane.client.request("PATCH", f"{path}?fieldManager={manager}", changes, content_type=merge)

    patched("argocd-controller", {"spec": {"replicas": 2}})
    assert "argocd-controller" in manifest_writers(stored(cluster, "many"), objects.REPLICAS)
    for number in range(13):
        patched(f"tool-{number}", {"metadata": {"annotations": {f"tool.example.com/{number}": "x"}}})
    raw = stored(cluster, "many")
    assert "ancient-changes" in {each["manager"] for each in raw["metadata"]["managedFields"]}
    assert "ancient-changes" not in manifest_writers(raw, objects.REPLICAS)
    setter = objects.workload(raw).set_by
    assert setter is None or setter.program != "ancient-changes"
