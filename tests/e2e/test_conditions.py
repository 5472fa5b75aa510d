"""What a pool says of itself when something in its own namespace is wrong, and what becomes of its traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from .alert_names import NEVER, REFUSED, STUCK, WRONG
from .cluster import Cluster, seconds_since
from .engines import TAINT, Engine, Manifest, engine_manifests
from .load import Course, LoadGenerator
from .pools import condition, message, path, serving_pool, status, wait_condition, wait_decided
from .prometheus import PrometheusRelease
from .results import Results
from .scenes import percent
from .waiting import eventually, throughout

DELETED = "deleted"
NAMESPACES = (WRONG, DELETED, REFUSED, STUCK, NEVER)
"""Each a namespace, and a Deployment, a model and a pool in it."""
GATE = "e2e.example.com/loaded"
CALM, BUSY = "0.5x1800", "4x1800"
"""Until `cleared` stops them. Busy: more than one replica carries within the SLO."""
ENOUGH = 10
"""Requests, to say that none was lost."""
COURSES: dict[str, Course] = {}


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    for name in NAMESPACES:
        cluster.namespace(name)
    cluster.apply(policy())
    changes = {STUCK: intolerant, NEVER: gated}
    for name in NAMESPACES:
        engine = Engine(name=name, namespace=name, model=name, load_seconds=2)
        deployment, service = engine_manifests(engine)
        if name in changes:
            changes[name](deployment)
        cluster.apply([deployment, service])
    open_gate(cluster)
    cluster.apply(serving_pool(REFUSED, REFUSED, targets=[{"name": REFUSED, "min": 2, "max": 4}]))
    for name in (WRONG, DELETED, STUCK, NEVER):
        cluster.wait_serving(name, name)
        COURSES[name] = load.start(f"http://{name}.{name}:8000", name, BUSY if name in {STUCK, NEVER} else CALM)
        model = f"{WRONG}-typo" if name == WRONG else name
        # A node of two cores has room for one more replica, and not for three, once the taint is gone.
        most = 2 if name == STUCK else 4
        target = {"name": name, "min": 1, "max": most, "gpusPerReplica": 1}
        cluster.apply(serving_pool(name, name, model=model, targets=[target]))
    cluster.taint(TAINT)


@pytest.fixture(scope="module", autouse=True)
def untainted(cluster: Cluster) -> Iterator[None]:
    """Whatever fails here, the pods of others get a node."""
    yield
    cluster.taint()


def policy() -> list[Manifest]:
    """One namespace where nobody may scale: what a quota or a company's webhook does."""
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": REFUSED}}
    kinds = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": REFUSED}}
    return [
        {
            **kinds,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "false", "message": "fleets are frozen"}],
            },
        },
        {
            **kinds,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {
                "policyName": REFUSED,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": selector},
            },
        },
    ]


def intolerant(deployment: Manifest) -> None:
    """Its pods may not go where a taint is: once the only node has one, there is no room for a second replica."""
    del deployment["spec"]["template"]["spec"]["tolerations"]


def gated(deployment: Manifest) -> None:
    """A pod is not Ready until someone says so: the test does, for those that it lets in."""
    deployment["spec"]["template"]["spec"]["readinessGates"] = [{"conditionType": GATE}]


def open_gate(cluster: Cluster) -> None:
    """Let in the pods that are there now."""
    for pod in eventually(lambda: cluster.pods(NEVER), 60, "a pod"):
        where = f"/api/v1/namespaces/{NEVER}/pods/{pod['metadata']['name']}/status"
        body = {"status": {"conditions": [{"type": GATE, "status": "True"}]}}
        cluster.client.request("PATCH", where, body, content_type="application/strategic-merge-patch+json")


def test_a_deleted_pool_leaves_its_workload_and_no_finalizer(
    cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results
) -> None:
    wait_decided(cluster, DELETED, DELETED)
    pool = cluster.client.get(path(DELETED, DELETED))
    assert "finalizers" not in pool["metadata"]
    before = (
        cluster.deployment(DELETED, DELETED)["metadata"]["uid"],
        [pod["metadata"]["uid"] for pod in cluster.pods(DELETED)],
    )
    series = f'servingpool_desired_replicas{{namespace="{DELETED}"}}'
    eventually(lambda: prometheus.query(series), 60, "the pool's series")
    started, moment = time.monotonic(), time.time()
    cluster.gone(path(DELETED, DELETED), 20)
    gone = seconds_since(started)
    eventually(lambda: not prometheus.query(series), 60, "no series of the pool")
    after = (
        cluster.deployment(DELETED, DELETED)["metadata"]["uid"],
        [pod["metadata"]["uid"] for pod in cluster.pods(DELETED)],
    )
    assert after == before
    course = COURSES[DELETED]
    seen = eventually(
        lambda: found if (found := load.summary(course, begin=moment - course.begun_at))["ended"] >= ENOUGH else {},
        90,
        "requests after the deletion",
    )
    assert seen["lost"] == 0
    results.add(
        scenario="pool deleted", outcome="same Deployment, same pods", seconds=gone, requests=seen["ended"], lost=0
    )


def test_a_scale_that_is_refused_is_told(cluster: Cluster, results: Results) -> None:
    wait_condition(cluster, REFUSED, REFUSED, "Ready", ("False", "FailedUpdateScale"))
    said = message(cluster, REFUSED, REFUSED, "Ready")
    assert "an admission policy" in said, said
    assert cluster.replicas(REFUSED, REFUSED) == 1
    results.add(scenario="a policy refuses the scale", outcome=said)


def late_not_lost(load: LoadGenerator, course: Course) -> dict[str, object]:
    """Ends a course; what its clients saw, as columns. Raises AssertionError where one request got no full answer."""
    found = load.end(course, ttft=2.0, tpot=0.3)
    assert found["outcomes"] == {"ok": found["requests"]}
    return {"requests": found["requests"], "lost": found["lost"], "attainment": percent(found["attainment"])}


def test_replicas_without_a_node_are_told(cluster: Cluster, load: LoadGenerator, results: Results) -> None:
    """Under more load than the one replica carries, which goes on serving. The taint is there since `prepare`."""
    said = eventually(lambda: waits_for_a_node(cluster), 180, "the pool says that a replica has no node")
    assert said.startswith("1 of 2 pods is unschedulable; "), said
    assert cluster.replicas(STUCK, STUCK) == 2
    assert cluster.ready(STUCK, STUCK) == 1
    assert "untolerated taint" in refusal(cluster), refusal(cluster)
    cluster.taint()
    started = time.monotonic()
    eventually(lambda: cluster.ready(STUCK, STUCK) >= 2, 180, "the others serve, now that they have a node")
    wait_condition(cluster, STUCK, STUCK, "Ready", ("True", "SucceededGetScale"), 60)
    results.add(
        scenario="replicas without a node: a taint that they do not tolerate",
        outcome=f"{said}; they serve once it is gone",
        seconds=seconds_since(started),
        **late_not_lost(load, COURSES[STUCK]),
    )


def waits_for_a_node(cluster: Cluster) -> str:
    """What Ready says of the replica without a node; empty before. After five minutes the reason is another one."""
    reasons = {"WaitingForNode", "Unschedulable"}
    return message(cluster, STUCK, STUCK, "Ready") if condition(cluster, STUCK, STUCK, "Ready")[1] in reasons else ""


def refusal(cluster: Cluster) -> str:
    """What the scheduler says of pods that it cannot place."""
    conditions = [one for pod in cluster.pods(STUCK) for one in pod["status"].get("conditions", [])]
    return "; ".join(one["message"] for one in conditions if one.get("reason") == "Unschedulable")


def test_a_replica_that_never_becomes_ready_costs_no_other(
    cluster: Cluster, load: LoadGenerator, results: Results
) -> None:
    eventually(lambda: cluster.replicas(NEVER, NEVER) >= 2, 180, "a second replica is ordered")
    good = {pod["metadata"]["name"] for pod in cluster.pods(NEVER) if is_ready(pod)}
    assert len(good) == 1

    def unharmed() -> bool:
        ready = {pod["metadata"]["name"] for pod in cluster.pods(NEVER) if is_ready(pod)}
        return ready == good and cluster.replicas(NEVER, NEVER) <= 4

    throughout(unharmed, 30, "one good replica, and no more ordered than max")
    found = status(cluster, NEVER, NEVER)
    assert found["readyReplicas"] == 1
    assert "coldStart" not in found, "nothing was learned from a start that never ended"
    ordered = cluster.replicas(NEVER, NEVER)
    open_gate(cluster)
    started = time.monotonic()
    eventually(lambda: status(cluster, NEVER, NEVER).get("readyReplicas", 0) >= 2, 90, "they count once they are ready")
    results.add(
        scenario="a pod that never becomes Ready",
        outcome=f"1 of {ordered} serves on; let in, the pool counts them",
        seconds=seconds_since(started),
        **late_not_lost(load, COURSES[NEVER]),
    )


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
