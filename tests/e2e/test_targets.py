"""A pool of two targets: the cheap one grows until its quota is used up, then the dear one; and it comes home."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from .audit import OK, scales
from .cluster import Cluster
from .engines import Engine, Manifest, engine_manifests
from .load import LoadGenerator
from .pools import condition, status, wait_condition
from .prometheus import PrometheusRelease
from .release import ACCOUNT
from .results import Results
from .scenes import Scene, row
from .waiting import eventually

DEAR, SPOT = "mix-dear", "mix-spot"
OF_POOL = {"example.com/pool": "mix"}
CLASS = "e2e-spot"
"""PriorityClass of the cheap pods: a quota counts them by it, as a node pool that has run out of nodes would."""
QUOTA = "spot"


@dataclass
class MixScene(Scene):
    """Two Deployments of one model behind one Service. The dear one always has a replica."""

    def manifests(self) -> list[Manifest]:
        """Both Deployments, a Service before them, and the quota."""
        made: list[Manifest] = []
        for name, replicas in ((DEAR, 1), (SPOT, 0)):
            engine = Engine(name, self.name, self.name, replicas, load_seconds=self.load_seconds)
            deployment, service = engine_manifests(engine)
            template = deployment["spec"]["template"]
            template["metadata"]["labels"] |= OF_POOL
            if name == SPOT:
                template["spec"]["priorityClassName"] = CLASS
            made.append(deployment)
        service["metadata"] = {"name": self.name, "namespace": self.name}
        service["spec"]["selector"] = OF_POOL
        return [{**PRIORITY_CLASS}, *made, service, quota(1)]

    @property
    def targets(self) -> list[dict[str, Any]]:
        """Of the pool."""
        return [
            {"name": DEAR, "max": 3, "base": 1, "gpusPerReplica": 1, "costPerReplicaHour": 4.0},
            {"name": SPOT, "max": 4, "gpusPerReplica": 1, "costPerReplicaHour": 1.5},
        ]

    def ready(self, cluster: Cluster) -> int:
        """Replicas of both that serve."""
        return cluster.ready(self.name, DEAR) + cluster.ready(self.name, SPOT)


PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": CLASS},
    "value": -10,
    "preemptionPolicy": "Never",
}


def quota(pods: int) -> Manifest:
    """At most so many pods of the cheap target."""
    matches = {"scopeName": "PriorityClass", "operator": "In", "values": [CLASS]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA, "namespace": "mix"},
        "spec": {"hard": {"pods": str(pods)}, "scopeSelector": {"matchExpressions": [matches]}},
    }


MIX = MixScene("mix", "1x45,8x800", maximum=7)
"""Eight requests a second are 1.6 of what a replica carries: the base and two others hold them. Until the test ends them:
what it waits for comes in its own time, and only under load."""
NAMESPACES = (MIX.name,)


def prepare(cluster: Cluster) -> None:
    MIX.create(cluster)


def in_force(cluster: Cluster) -> str:
    """The pods that the quota allows, by what the API server goes by: a controller copies it from the spec."""
    found = cluster.client.get(f"/api/v1/namespaces/{MIX.name}/resourcequotas/{QUOTA}")
    return str(found.get("status", {}).get("hard", {}).get("pods", ""))


def cheap_pods_serve(cluster: Cluster) -> bool:
    """Whether two do.

    The ReplicaSet's controller tries again after twice the time each time, up to 1,000 s, and at once after a change.
    """
    tried = f"example.com/tried-again={time.time():.0f}"
    cluster.kubectl("--namespace", MIX.name, "annotate", "replicaset", "--all", "--overwrite", tried)
    return cluster.ready(MIX.name, SPOT) >= 2


@pytest.mark.timeout(1200)
def test_a_target_that_gets_no_pods_is_replaced_and_the_pool_comes_home(
    cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results
) -> None:
    name = MIX.name
    MIX.begin(cluster, load)
    eventually(lambda: condition(cluster, name, name, "TargetsAvailable")[0] == "False", 300, "the quota is seen")
    eventually(lambda: cluster.replicas(name, DEAR) >= 2, 60, "the dear target is ordered")
    told = {one["name"]: one for one in status(cluster, name, name)["targets"]}
    assert "quota" in told[SPOT]["stuck"]
    cluster.apply(quota(9))
    eventually(lambda: in_force(cluster) == "9", 60, "the quota is raised")
    eventually(lambda: cheap_pods_serve(cluster), 300, "the cheap pods serve", every=5.0)
    eventually(lambda: cluster.replicas(name, DEAR) == 1, 300, "home again")
    wait_condition(cluster, name, name, "TargetsAvailable", ("True", "TargetsDeliver"))
    figures = MIX.end(load)
    assert figures["lost"] == 0
    assert {one.code for one in scales(cluster, ACCOUNT, name)} == {OK}
    results.add(scenario=f"two targets, one out of quota: {MIX.rates}", **row(MIX, figures), **MIX.spent(prometheus))
