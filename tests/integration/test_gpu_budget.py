"""Three pools and one GPUBudget on a real API server: what is written, what stands, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from servingpool.cli.main import app
from servingpool_lab import audit
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.prometheus import Prometheus

from .operators import ELECTION, PATIENCE, Cluster, OperatorProcess, Service, cluster_in, deployment, settings_on

GPUS = 5
BUDGET = "/apis/servingpool.dev/v1alpha1/gpubudgets/shared"


@pytest.fixture
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    with cluster_in(control_plane, pod_metrics, "shared") as cluster:
        yield cluster
        control_plane.client.delete(BUDGET)


@pytest.fixture
def operator(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    settings = settings_on(prometheus.url, leaderElection=ELECTION)
    settings["backends"].append({**settings["backends"][0], "name": "second"})
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        yield operator


def serve(cluster: Cluster, name: str, *, rate: float, priority: int, **spec: Any) -> None:
    """A Deployment of one replica with one GPU, which takes three seconds to drain, and its pool."""
    made = deployment(cluster.namespace, name, 1)
    pod = made["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    pod["terminationGracePeriodSeconds"] = 3
    cluster.plane.apply(made)
    cluster.traffic.services[cluster.namespace, name] = Service(name, rate)
    pool = {"priority": priority, "targets": [{"name": name, "min": 1, "max": 8}], **spec}
    cluster.pool(name, **pool)


def standing(cluster: Cluster) -> int:
    """Pods that exist, those that are being deleted too; each has one GPU."""
    return len(cluster.plane.client.items(f"/api/v1/namespaces/{cluster.namespace}/pods"))


def wait(cluster: Cluster, what: str, reached: Callable[[], bool], most: list[int]) -> None:
    """Until it is reached; how many GPUs stood meanwhile is noted."""
    end = time.monotonic() + PATIENCE
    while not reached():
        most.append(standing(cluster))
        if time.monotonic() > end:
            said = {name: cluster.status(name).get("lastDecision", {}).get("reason") for name in ("high", "low")}
            raise AssertionError(f"{what}: {said}, {cluster.plane.client.get(BUDGET).get('status')}")
        time.sleep(0.1)


def test_no_write_goes_over_the_budget_and_gpus_go_to_the_higher_priority(
    cluster: Cluster, operator: OperatorProcess
) -> None:
    budget = {"gpus": GPUS, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shared"}}}
    manifest = {"apiVersion": "servingpool.dev/v1alpha1", "kind": "GPUBudget", "metadata": {"name": "shared"}}
    cluster.plane.apply({**manifest, "spec": budget})
    serve(cluster, "held", rate=0.0, priority=5, mode="Paused")
    serve(cluster, "high", rate=2.0, priority=9)
    serve(cluster, "low", rate=2.0, priority=1, metrics={"backend": "second"})
    most: list[int] = []
    for name in ("high", "low"):
        cluster.wait_condition(name, "MetricsAvailable", ("True", "ValidMetrics"))

    cluster.load("low", 40.0)
    wait(cluster, "low has what is left", lambda: cluster.replicas("low") == 3, most)
    wait(cluster, "low is limited", lambda: cluster.condition("low", "ScalingLimited") == ("True", "GPUBudget"), most)

    cluster.load("high", 40.0)
    wait(cluster, "high has taken what low can give", lambda: cluster.replicas("high") == 3, most)
    assert cluster.replicas("low") == 1
    assert cluster.replicas("held") == 1

    def told() -> bool:
        status = cluster.plane.client.get(BUDGET).get("status", {})
        held = {one["name"]: one.get("held") for one in status.get("pools", ())}
        return held == {"held": 1, "high": 3, "low": 1} and status["why"] == "PoolsWait"

    wait(cluster, "the budget's status tells it", told, most)
    assert max(most) <= GPUS
    ordered = {"held": 1, "high": 1, "low": 1}
    scales = [
        one
        for one in audit.writes(cluster.plane, cluster.namespace)
        if one.resource == "deployments/scale" and one.replicas is not None
    ]
    assert scales
    for write in scales:
        assert write.replicas is not None
        ordered[write.name] = write.replicas
        assert sum(ordered.values()) <= GPUS, scales

    def measured() -> bool:
        return operator.figure("servingpool_gpu_budget_held_gpus", budget="shared") == GPUS

    wait(cluster, "the metric tells it", measured, most)
    explained = CliRunner().invoke(
        app, ["explain", "shared/low", f"--kubeconfig={cluster.plane.kubeconfig}"], env={"COLUMNS": "200"}
    )
    assert "GPUBudget shared allows" in explained.stdout
