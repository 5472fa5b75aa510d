"""Quotas that refuse pods, pods of a lost node, and targets and pools that are being deleted, on a real API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .conftest import own_namespace
from .operators import ELECTION, Cluster, OperatorProcess, Traffic, install, settings_on
from .side_by_side import Begun, SideBySide
from .test_gpu_budget import serve

PATIENCE = 120.0
HOLD = {"metadata": {"finalizers": ["example.com/hold"]}}
LET_GO: dict[str, Any] = {"metadata": {"finalizers": None}}

pytestmark = pytest.mark.timeout(600, func_only=True)
side_by_side = SideBySide()


@pytest.fixture(scope="module")
def begun(
    control_plane: ControlPlane,
    pod_metrics: dict[tuple[str, str], str],
    prometheus: Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Begun]:
    """Each story has a namespace of its own."""
    settings = settings_on(prometheus.url, leaderElection=ELECTION)
    with contextlib.ExitStack() as until:

        def given() -> tuple[Cluster, OperatorProcess]:
            return Cluster(control_plane, traffic, until.enter_context(own_namespace(control_plane))), operator

        install(control_plane, "default")
        control_plane.add_gpu_node("gpu-endings", gpus=32)
        until.callback(control_plane.client.delete, "/api/v1/nodes/gpu-endings")
        traffic = until.enter_context(Traffic(control_plane, pod_metrics))
        operator = OperatorProcess(control_plane, tmp_path_factory.mktemp("operator"), settings)
        until.enter_context(operator.running())
        yield until.enter_context(side_by_side.begin(given))


def targets(name: str, least: int, most: int = 8) -> list[dict[str, Any]]:
    return [{"name": name, "min": least, "max": most}]


@side_by_side
def test_what_a_quota_refuses_is_told_and_not_kept_once_load_goes(cluster: Cluster, operator: OperatorProcess) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": cluster.namespace}}
    cluster.plane.apply({**quota, "spec": {"hard": {"pods": "2"}}})
    serve(cluster, "a", rate=40.0, priority=5)
    wait_until(lambda: cluster.replicas("a") > 2, PATIENCE, "more than the quota lets stand is ordered")
    cluster.wait_condition("a", "Ready", ("False", "FailedCreate"), PATIENCE)
    assert "exceeded quota: q" in cluster.told("a", "Ready")
    cluster.load("a", 0.5)
    wait_until(lambda: cluster.replicas("a") <= 2, 240, "what never came is ordered no more")
    cluster.wait_condition("a", "Ready", ("True", "SucceededGetScale"), PATIENCE)


@side_by_side
def test_a_pod_of_a_lost_node_holds_no_budget_for_ever(cluster: Cluster, operator: OperatorProcess) -> None:
    serve(cluster, "a", rate=0.5, priority=5, targets=targets("a", 2, 3))
    budget = {"apiVersion": "servingpool.dev/v1alpha1", "kind": "GPUBudget", "metadata": {"name": cluster.namespace}}
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}}}
    cluster.plane.apply({**budget, "spec": {"gpus": 3, **chosen}})
    wait_until(lambda: len(cluster.pods("a")) == 2, PATIENCE, "two pods")
    pod = f"/api/v1/namespaces/{cluster.namespace}/pods/{min(cluster.pods('a'))}"
    cluster.plane.client.patch(pod, HOLD)
    cluster.plane.client.delete(pod)
    wait_until(lambda: len(cluster.pods("a")) == 2, PATIENCE, "another in its place")
    cluster.pool("a", targets=targets("a", 3, 3))
    wait_until(lambda: cluster.replicas("a") == 3, PATIENCE, "the third replica")
    path = f"/apis/servingpool.dev/v1alpha1/gpubudgets/{cluster.namespace}"

    def told() -> bool:
        conditions = cluster.plane.client.get(path)["status"]["conditions"]
        return any(one["reason"] == "PodsNotEnding" and pod.rpartition("/")[2] in one["message"] for one in conditions)

    wait_until(told, PATIENCE, "the pod is named")
    cluster.plane.client.patch(pod, LET_GO)
    cluster.plane.client.delete(path)


@side_by_side
def test_nothing_is_ordered_for_what_is_being_deleted(cluster: Cluster, operator: OperatorProcess) -> None:
    for name in ("x", "y"):
        serve(cluster, name, rate=0.5, priority=5, targets=targets(name, 1, 4))
        cluster.wait_condition(name, "Ready", ("True", "SucceededGetScale"), PATIENCE)
    deployment = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments"
    cluster.plane.client.patch(f"{deployment}/x", HOLD)
    cluster.plane.client.request("DELETE", f"{deployment}/x", {"propagationPolicy": "Foreground"})
    cluster.pool("x", targets=targets("x", 3, 4))
    cluster.wait_condition("x", "Ready", ("False", "TargetEnding"), PATIENCE)
    cluster.plane.client.patch(cluster.path("y"), HOLD)
    cluster.plane.client.delete(cluster.path("y"))
    cluster.wait_condition("y", "Ready", ("False", "PoolEnding"), PATIENCE)
    cluster.plane.client.patch(f"{deployment}/y/scale", {"spec": {"replicas": 6}})
    operator.wait_ticks(5)
    assert (cluster.replicas("x"), cluster.replicas("y")) == (1, 6)
    cluster.plane.client.patch(f"{deployment}/x", LET_GO)
    cluster.plane.client.patch(cluster.path("y"), LET_GO)
