"""One tenant's pod that no node can take, and another tenant's pool under the same budget, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import ELECTION, Cluster, OperatorProcess, deployment, settings_on
from .test_gpu_budget import serve

PATIENCE = 120.0

pytestmark = pytest.mark.timeout(400, func_only=True)


@pytest.mark.parametrize("limit", [{"limits": {"nvidia.com/gpu": "999"}}, None], ids=["pending", "unknown"])
def test_it_takes_nothing_from_the_other_pool_and_freezes_it_not(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory, limit: dict[str, Any] | None
) -> None:
    budget: dict[str, Any] = {"apiVersion": "servingpool.dev/v1alpha1", "kind": "GPUBudget"}
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}}}
    settings = settings_on(prometheus.url, leaderElection=ELECTION)
    serve(cluster, "victim", rate=0.5, priority=1, targets=[{"name": "victim", "min": 2, "max": 4}])
    cluster.plane.apply({**budget, "metadata": {"name": cluster.namespace}, "spec": {"gpus": 4, **chosen}})
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        wait_until(lambda: cluster.replicas("victim") == 2, PATIENCE, "its min")
        made = deployment(cluster.namespace, "hog", 1)
        pod = made["spec"]["template"]["spec"]
        if limit is None:
            made["spec"]["replicas"] = 0
            pod["resourceClaims"] = [{"name": "g", "resourceClaimName": "none"}]
        else:
            pod["containers"][0]["resources"] = limit
        cluster.plane.apply(made)
        cluster.pool("hog", mode="Paused", priority=9, targets=[{"name": "hog", "min": 1, "max": 9}])
        cluster.wait_condition("hog", "Ready", ("True", "Paused"), PATIENCE)
        operator.wait_ticks(10)
        assert cluster.replicas("victim") == 2
        if limit is None:
            cluster.load("victim", 40.0)
            wait_until(lambda: cluster.replicas("victim") == 4, PATIENCE, "all of the budget")
    cluster.plane.client.delete(f"/apis/servingpool.dev/v1alpha1/gpubudgets/{cluster.namespace}")
