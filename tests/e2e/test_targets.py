"""A pool of two targets: the cheap one grows until its quota is used up, then the dear one; and it comes home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .audit import OK, scales
from .cluster import Cluster
from .engines import Engine, Manifest, engine_manifests
from .load import LoadGenerator
from .pools import condition, status
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


MIX = MixScene("mix", "1x120,8x240", maximum=7, floor=0.85)
"""Eight requests a second are 1.6 of what a replica carries: the base and two others hold them."""
NAMESPACES = (MIX.name,)


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    MIX.create(cluster)
    MIX.begin(cluster, load)


def test_a_target_that_gets_no_pods_is_replaced_and_the_pool_comes_home(
    cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results
) -> None:
    name = MIX.name
    eventually(lambda: condition(cluster, name, name, "TargetsAvailable")[0] == "False", 300, "the quota is seen")
    eventually(lambda: cluster.replicas(name, DEAR) >= 2, 30, "the dear target is ordered")
    told = {one["name"]: one for one in status(cluster, name, name)["targets"]}
    assert "quota" in told[SPOT]["stuck"]
    cluster.apply(quota(9))
    # The ReplicaSet's controller tries again after twice the time each time, up to 1,000 s, and at once after a change.
    cluster.kubectl("--namespace", name, "annotate", "replicaset", "--all", "example.com/tried-again=now")
    eventually(lambda: cluster.ready(name, SPOT) >= 2, 180, "the cheap pods are made")
    eventually(lambda: cluster.replicas(name, DEAR) == 1, 300, "home again")
    assert condition(cluster, name, name, "TargetsAvailable")[0] == "True"
    figures = MIX.over(load)
    assert figures["lost"] == 0
    assert {one.code for one in scales(cluster, ACCOUNT, name)} == {OK}
    results.add(scenario=f"two targets, one out of quota: {MIX.rates}", **row(MIX, figures), **MIX.spent(prometheus))
