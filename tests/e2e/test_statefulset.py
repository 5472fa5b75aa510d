"""A StatefulSet under traffic: the operator has no watch for its kind, reads its scale, and writes that alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .audit import OK, scales
from .cluster import Cluster
from .engines import Manifest
from .load import LoadGenerator
from .pools import status
from .prometheus import PrometheusRelease
from .release import ACCOUNT
from .results import Results
from .scenes import Scene, row
from .waiting import eventually


@dataclass
class OrdinalScene(Scene):
    """Engines of a StatefulSet."""

    def manifests(self) -> list[Manifest]:
        """StatefulSet and Service."""
        workload, service = super().manifests()
        workload["kind"] = "StatefulSet"
        del workload["spec"]["progressDeadlineSeconds"]
        workload["spec"] |= {"serviceName": self.name, "podManagementPolicy": "Parallel"}
        return [workload, service]

    @property
    def targets(self) -> list[dict[str, Any]]:
        """Of the pool."""
        return [{**target, "kind": "StatefulSet"} for target in super().targets]

    def ready(self, cluster: Cluster) -> int:
        """Replicas that serve."""
        found = cluster.client.get(f"/apis/apps/v1/namespaces/{self.name}/statefulsets/{self.name}")
        return int(found["status"].get("readyReplicas", 0))


ORDINALS = OrdinalScene("ordinals", "1x60,4x110,0.5x120", maximum=3)
"""Four requests a second are 0.8 of what one replica carries, which no SLO of 90% survives for long."""
NAMESPACES = (ORDINALS.name,)


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    ORDINALS.create(cluster)
    ORDINALS.begin(cluster, load)


def test_a_statefulset_grows_with_its_traffic_and_gives_back_its_highest_ordinals(
    cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results
) -> None:
    figures, name = ORDINALS.over(load), ORDINALS.name
    eventually(lambda: [pod["metadata"]["name"] for pod in cluster.pods(name)] == [f"{name}-0"], 240, "one pod is left")
    written = scales(cluster, ACCOUNT, name)
    assert {(one.resource, one.code) for one in written} == {("statefulsets/scale", OK)}
    asked = [one.replicas or 0 for one in written]
    assert max(asked) >= 2
    assert asked[-1] == 1
    assert eventually(lambda: status(cluster, name, name).get("replicas") == 1, 60, "the status of one replica")
    assert figures["lost"] == 0
    spent = ORDINALS.spent(prometheus)
    assert spent["most_pods"] == max(asked)
    results.add(scenario=f"a StatefulSet: {ORDINALS.rates}", **row(ORDINALS, figures), **spent)
