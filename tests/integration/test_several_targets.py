"""A pool of two Deployments, on demand and spot, on a real API server: which one is ordered, and when one goes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from servingpool_lab import audit, kwok
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import Cluster, OperatorProcess, Service, Traffic, deployment, install, settings_on

NAMESPACE, NODE, NODES = "mixed", "spot-0", "mixed.test/nodes"
TARGETS = [
    {"name": "fixed", "min": 1, "max": 6, "costPerReplicaHour": 4},
    {"name": "spot", "max": 6, "costPerReplicaHour": 1},
]
BEFORE = {"fixed": 3, "spot": 0}
PATIENCE = 150.0
"""Seconds after which a step is given up, on a busy machine."""

pytestmark = pytest.mark.timeout(700, func_only=True)


@pytest.fixture
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    install(control_plane, NAMESPACE)
    taint = {"key": NODES, "value": "spot", "effect": "NoSchedule"}  # pods of other tests would go with the node
    control_plane.apply({**kwok.gpu_node(NODE, 6, labels={NODES: "spot"}), "spec": {"taints": [taint]}})
    for name, replicas in BEFORE.items():
        manifest = deployment(NAMESPACE, name, replicas)
        if name == "spot":
            manifest["spec"]["template"]["spec"] |= {
                "nodeSelector": {NODES: "spot"},
                "tolerations": [{"key": NODES, "operator": "Exists"}],
            }
        control_plane.apply(manifest)
    with Traffic(control_plane, pod_metrics) as traffic:
        traffic.services[NAMESPACE, "fixed"] = Service("mixed", 20.0, beside=("spot",))
        yield Cluster(control_plane, traffic, NAMESPACE)
    control_plane.client.delete(f"/api/v1/namespaces/{NAMESPACE}")
    control_plane.client.delete(f"/api/v1/nodes/{NODE}")


@pytest.fixture
def operator(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    settings = settings_on(prometheus.url, namespaces=[NAMESPACE])
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        yield operator


def ready(cluster: Cluster, name: str) -> list[float]:
    """Since when each Ready pod is, in Unix time."""
    found = [_condition(pod, "Ready") for pod in cluster.pods(name).values()]
    return sorted(_unix(one["lastTransitionTime"]) for one in found if one.get("status") == "True")


def _condition(pod: dict[str, Any], type_: str) -> dict[str, str]:
    found: list[dict[str, str]] = pod["status"].get("conditions", [])
    return next((one for one in found if one["type"] == type_), {})


def _unix(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def orders(cluster: Cluster) -> list[tuple[float, str, int, int]]:
    """What the operator has set, as the API server wrote it down: Unix time, Deployment, replicas before and after."""
    replicas, found = dict(BEFORE), []
    for one in audit.writes(cluster.plane, NAMESPACE):
        if one.resource == "deployments/scale" and one.replicas is not None:
            found.append((_unix(one.at), one.name, replicas[one.name], one.replicas))
            replicas[one.name] = one.replicas
    return found


def last_of_fixed(cluster: Cluster) -> tuple[float, str, int, int]:
    return [one for one in orders(cluster) if one[1] == "fixed"][-1]


def home(cluster: Cluster) -> bool:
    return cluster.replicas("fixed") == 1 or cluster.replicas("spot") == 6


def wait(cluster: Cluster, what: Callable[[], bool], said: str) -> None:
    try:
        wait_until(what, PATIENCE, said)
    except TimeoutError as late:
        status = {key: value for key, value in cluster.status("mixed").items() if key != "profile"}
        raise AssertionError(f"{late}; {orders(cluster)}; {json.dumps(status, indent=1)}") from None


def unschedulable(cluster: Cluster) -> bool:
    """Whether a pod of the spot Deployment is known to find no node."""
    found = [_condition(pod, "PodScheduled") for pod in cluster.pods("spot").values()]
    return any(one.get("reason") == "Unschedulable" for one in found)


def reclaim(cluster: Cluster, *, cordon: bool) -> None:
    """Take the spot node away, with its pods; or bring it back."""
    cluster.plane.client.patch(f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": cordon}})
    for name in cluster.pods("spot") if cordon else ():
        with contextlib.suppress(ApiError):  # gone meanwhile
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
            cluster.plane.client.request("DELETE", path, {"gracePeriodSeconds": 0})


def test_the_cheaper_target_serves_while_it_can_and_the_other_one_once_it_cannot(
    cluster: Cluster, operator: OperatorProcess
) -> None:
    wait(cluster, lambda: len(ready(cluster, "fixed")) == 3, "the pods on demand serve")
    cluster.pool("mixed", targets=TARGETS)

    # The cheaper one is tried, measured, and takes over. What it replaces goes once it is Ready.
    wait(cluster, lambda: cluster.replicas("fixed") == 1, "spot takes over")
    cluster.wait_condition("mixed", "MetricsAvailable", ("True", "ValidMetrics"))
    assert next(one[1:] for one in orders(cluster) if one[1] == "spot") == ("spot", 0, 1), "one shows how fast it is"
    for at, name, _, after in orders(cluster):
        if name == "fixed" and after < BEFORE["fixed"]:
            serve = [since for since in ready(cluster, "spot") if since <= at]
            assert len(serve) >= BEFORE["fixed"] - after, orders(cluster)
    kinds = cluster.status("mixed")["profile"]["kinds"]
    assert [one["target"] for one in kinds] == ["fixed", "spot"]

    # More requests: more of the cheaper one. At a speed just below 1 a fourth is ordered at first, and goes again.
    wait(cluster, lambda: cluster.replicas("spot") <= BEFORE["fixed"], "no more than it replaces")
    spot, known = cluster.replicas("spot"), len(orders(cluster))
    cluster.load("fixed", 32.0)
    wait(cluster, lambda: cluster.replicas("spot") > spot and len(orders(cluster)) > known, "more of the cheaper one")
    assert orders(cluster)[known][1] == "spot"
    wait(cluster, lambda: len(ready(cluster, "spot")) == cluster.replicas("spot"), "they serve")

    # The spot node is taken away: the other one is ordered as soon as pods are known to find no node.
    known, taken = len(orders(cluster)), time.time()
    reclaim(cluster, cordon=True)
    wait(cluster, lambda: unschedulable(cluster), "pods find no node")
    ticks = operator.ticks()
    wait(cluster, lambda: any(one[1] == "fixed" for one in orders(cluster)[known:]), "the other one is ordered")
    assert operator.ticks() - ticks <= 10, "a few ticks later"
    assert unschedulable(cluster)
    at, *_ = next(one for one in orders(cluster)[known:] if one[1] == "fixed")
    assert taken <= at
    assert cluster.events("mixed", "SuccessfulRescale")[-1]["message"]
    cluster.wait_condition("mixed", "TargetsAvailable", ("False", "TargetNotDelivering"))
    stuck = {one["name"]: "stuck" in one for one in cluster.status("mixed")["targets"]}
    assert stuck == {"fixed": False, "spot": True}
    wait(cluster, lambda: cluster.replicas("spot") == 1, "one pod waits, to see when nodes are back")
    wait(cluster, lambda: len(ready(cluster, "fixed")) == cluster.replicas("fixed") >= 4, "the other one serves")

    # The node is back: home again. What six of spot cannot hold stays, as after a miss more is needed for a while.
    away = cluster.replicas("fixed")
    reclaim(cluster, cordon=False)
    wait(cluster, lambda: home(cluster) and last_of_fixed(cluster)[3] < away, "spot takes over again")
    at, _, before, after = last_of_fixed(cluster)
    assert len([since for since in ready(cluster, "spot") if since <= at]) >= before - after
    assert "Traceback" not in operator.log()
