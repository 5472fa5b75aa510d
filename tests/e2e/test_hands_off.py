"""Recommend and Paused touch nothing: the API server's audit log is the witness, and it has seen Auto."""

from __future__ import annotations

import time

import pytest

from .audit import Write, writes
from .cluster import Cluster, seconds_since
from .engines import Engine, engine_manifests
from .load import LoadGenerator
from .pools import condition, serving_pool, wait_condition, wait_decided
from .release import ACCOUNT
from .results import Results
from .waiting import eventually, throughout

MODES = {"Auto": "hands-auto", "Recommend": "hands-recommend", "Paused": "hands-paused"}
"""And the namespace, Deployment and model of each. One replica, and the pool asks for at least two."""
HPA = "hands-hpa"
NAMESPACES = (*MODES.values(), HPA)
SCALE = "deployments/scale"


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    for name in NAMESPACES:
        engine = Engine(name=name, namespace=cluster.namespace(name), model=name, replicas=1, load_seconds=2)
        cluster.apply(engine_manifests(engine))
    for name in NAMESPACES:
        cluster.wait_serving(name, name)
        load.start(f"http://{name}.{name}:8000", name, "0.5x600")
    cluster.apply(autoscaler())
    targets = {name: [{"name": name, "min": 2, "max": 4, "gpusPerReplica": 1}] for name in NAMESPACES}
    for mode, name in MODES.items():
        cluster.apply(serving_pool(name, name, mode=mode, targets=targets[name]))
    cluster.apply(serving_pool(HPA, HPA, targets=targets[HPA]))


def autoscaler() -> dict[str, object]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": HPA, "namespace": HPA},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": HPA},
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                }
            ],
        },
    }


def scales(cluster: Cluster, namespace: str) -> list[Write]:
    """What the operator wrote to any scale subresource there, refused or not."""
    return [one for one in writes(cluster, ACCOUNT) if one.resource == SCALE and one.namespace == namespace]


def test_auto_scales_and_the_audit_log_has_it(cluster: Cluster, results: Results) -> None:
    """Without this one, the two below could not fail."""
    name = MODES["Auto"]
    eventually(lambda: cluster.replicas(name, name) == 2, 90, "two replicas")
    [write] = eventually(lambda: scales(cluster, name), 20, "a write in the audit log")
    assert (write.verb, write.name, write.replicas, write.code) == ("patch", name, 2, 200)
    results.add(scenario="mode Auto", outcome=f"{write.verb} {SCALE} to {write.replicas}, as audited")


@pytest.mark.parametrize("mode", ["Recommend", "Paused"])
def test_a_pool_that_may_not_act_decides_and_touches_nothing(cluster: Cluster, results: Results, mode: str) -> None:
    name, auto = MODES[mode], MODES["Auto"]
    found = wait_decided(cluster, name, name)
    assert (found["desiredReplicas"], found["lastDecision"]["verdict"]) == (2, "ScaleUp")
    # As long again as Auto had, and at least two decisions more.
    eventually(lambda: scales(cluster, auto), 90, "the operator acts elsewhere")
    throughout(lambda: cluster.replicas(name, name) == 1, 12, f"{name} at one replica")
    assert scales(cluster, name) == []
    others = [one for one in writes(cluster, ACCOUNT) if one.namespace == name]
    assert {one.resource for one in others} == {"servingpools/status"}, "only the pool's status is written"
    results.add(scenario=f"mode {mode}", outcome="wants 2, has 1: no scale write audited", status_writes=len(others))


def test_a_deployment_that_an_hpa_scales_is_left_to_it(cluster: Cluster, results: Results) -> None:
    wait_condition(cluster, HPA, HPA, "Ready", ("False", "OwnedByHPA"))
    throughout(lambda: cluster.replicas(HPA, HPA) == 1, 12, f"{HPA} at one replica")
    assert scales(cluster, HPA) == []
    assert cluster.events(HPA, HPA, "OwnedByHPA"), "a warning says so"
    started = time.monotonic()
    cluster.gone(f"/apis/autoscaling/v2/namespaces/{HPA}/horizontalpodautoscalers/{HPA}")
    eventually(lambda: cluster.replicas(HPA, HPA) == 2, 60, "the operator takes over")
    taken = seconds_since(started)
    eventually(lambda: condition(cluster, HPA, HPA, "Ready")[0] == "True", 60, "Ready again")
    results.add(
        scenario="HPA on the same Deployment", outcome="OwnedByHPA, hands off until it is deleted", seconds=taken
    )
