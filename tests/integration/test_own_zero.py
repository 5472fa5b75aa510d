"""A pool that a GPUBudget took to 0 replicas, on a real API server, which forgets who set that."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster.objects import holders
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import ELECTION, Cluster, OperatorProcess, settings_on
from .test_gpu_budget import serve

PATIENCE = 120.0

pytestmark = pytest.mark.timeout(400, func_only=True)


def test_it_comes_back_under_a_new_leader_and_a_persons_zero_stays(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/low"
    budget: dict[str, Any] = {"apiVersion": "servingpool.dev/v1alpha1", "kind": "GPUBudget"}
    budget |= {"metadata": {"name": cluster.namespace}}
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}}}
    settings = settings_on(prometheus.url, leaderElection=ELECTION)
    serve(cluster, "low", rate=0.5, priority=1)
    serve(cluster, "high", rate=0.5, priority=9)
    cluster.plane.apply({**budget, "spec": {"gpus": 1, **chosen}})
    directory = tmp_path_factory.mktemp("operator")
    with OperatorProcess(cluster.plane, directory, settings).running():
        wait_until(lambda: cluster.replicas("low") == 0, PATIENCE, "low is taken to 0")
        found = cluster.plane.client.get(path)
        assert list(holders(found["metadata"], "spec", "replicas")) == [], "the API server tells nobody"
        cluster.wait_condition("low", "Ready", ("True", "SucceededGetScale"), PATIENCE)
    cluster.plane.apply({**budget, "spec": {"gpus": 4, **chosen}})
    with OperatorProcess(cluster.plane, directory, settings, name="second").running():
        wait_until(lambda: cluster.replicas("low") >= 1, PATIENCE, "low comes back")
        assert {one["by"] for one in cluster.status("low")["history"]} == {"servingpool-operator"}
        cluster.plane.client.patch(f"{path}/scale", {"spec": {"replicas": 0}})
        cluster.wait_condition("low", "Ready", ("False", "ScalingDisabled"), PATIENCE)
    cluster.plane.client.delete(f"/apis/servingpool.dev/v1alpha1/gpubudgets/{cluster.namespace}")
