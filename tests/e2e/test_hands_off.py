"""Recommend and Paused touch nothing: the API server's audit log is the witness, and it has seen Auto."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .audit import OK, scales, writes
from .cluster import Cluster, seconds_since
from .engines import Engine, engine_manifests
from .load import Course, LoadGenerator
from .pools import condition, serving_pool, wait_condition, wait_decided
from .release import ACCOUNT
from .results import Results
from .steady import TPOT, TTFT, unharmed
from .waiting import eventually, throughout

MODES = {"Auto": "hands-auto", "Recommend": "hands-recommend", "Paused": "hands-paused"}
"""And the namespace, Deployment and model of each. One replica, and the pool asks for two, whatever the load."""
HPA = "hands-hpa"
NAMESPACES = (*MODES.values(), HPA)
COURSES: dict[str, Course] = {}


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    for name in NAMESPACES:
        engine = Engine(name=name, namespace=cluster.namespace(name), model=name, replicas=1, load_seconds=2)
        cluster.apply(engine_manifests(engine))
    for name in NAMESPACES:
        cluster.wait_serving(name, name)
        COURSES[name] = load.start(f"http://{name}.{name}:8000", name, "0.5x1800")
    cluster.apply(autoscaler())
    targets = {name: [{"name": name, "min": 2, "max": 2, "gpusPerReplica": 1}] for name in NAMESPACES}
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


def seen(load: LoadGenerator, name: str) -> dict[str, Any]:
    """What its clients saw so far, as columns of a result, see `unharmed`."""
    figures = load.summary(COURSES[name], ttft=TTFT, tpot=TPOT)
    return unharmed({**figures, "requests": figures["ended"]})


def test_auto_scales_and_the_audit_log_has_it(cluster: Cluster, load: LoadGenerator, results: Results) -> None:
    """Without this one, the two below could not fail."""
    name = MODES["Auto"]
    eventually(lambda: cluster.replicas(name, name) == 2, 90, "two replicas")

    def taken() -> set[tuple[str, str, int | None]]:
        found = scales(cluster, ACCOUNT, name)
        return {(write.verb, write.name, write.replicas) for write in found if write.code == OK}

    assert eventually(taken, 20, "a write in the audit log") == {("patch", name, 2)}
    results.add(scenario="mode Auto", outcome="patch deployments/scale to 2, as audited", **seen(load, name))


@pytest.mark.parametrize("mode", ["Recommend", "Paused"])
def test_a_pool_that_may_not_act_decides_and_touches_nothing(
    cluster: Cluster, load: LoadGenerator, results: Results, mode: str
) -> None:
    name, auto = MODES[mode], MODES["Auto"]
    found = wait_decided(cluster, name, name)
    assert (found["desiredReplicas"], found["lastDecision"]["verdict"]) == (2, "ScaleUp")
    # As long again as Auto had, and at least two decisions more.
    eventually(lambda: scales(cluster, ACCOUNT, auto), 90, "the operator acts elsewhere")
    throughout(lambda: cluster.replicas(name, name) == 1, 12, f"{name} at one replica")
    assert scales(cluster, ACCOUNT, name) == []
    others = [one for one in writes(cluster, ACCOUNT) if one.namespace == name]
    told = [one for one in others if one.resource != "events" or mode != "Recommend"]  # it says what it would do
    assert {one.resource for one in told} == {"servingpools/status"}, "only the pool's status is written"
    results.add(
        scenario=f"mode {mode}",
        outcome="wants 2, has 1: no scale write audited",
        status_writes=len(told),
        **seen(load, name),
    )


def test_a_deployment_that_an_hpa_scales_is_left_to_it(cluster: Cluster, load: LoadGenerator, results: Results) -> None:
    wait_condition(cluster, HPA, HPA, "Ready", ("False", "OwnedByHPA"))
    throughout(lambda: cluster.replicas(HPA, HPA) == 1, 12, f"{HPA} at one replica")
    assert scales(cluster, ACCOUNT, HPA) == []
    assert cluster.events(HPA, HPA, "OwnedByHPA"), "a warning says so"
    started = time.monotonic()
    cluster.gone(f"/apis/autoscaling/v2/namespaces/{HPA}/horizontalpodautoscalers/{HPA}")
    eventually(lambda: cluster.replicas(HPA, HPA) == 2, 60, "the operator takes over")
    taken = seconds_since(started)
    eventually(lambda: condition(cluster, HPA, HPA, "Ready")[0] == "True", 60, "Ready again")
    results.add(
        scenario="HPA on the same Deployment",
        outcome="OwnedByHPA, hands off until it is deleted",
        seconds=taken,
        **seen(load, HPA),
    )
