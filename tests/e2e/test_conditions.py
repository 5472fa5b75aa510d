"""What a pool says of itself when something in its own namespace is wrong, and what becomes of its traffic."""

from __future__ import annotations

import time

from .cluster import Cluster, seconds_since
from .engines import Engine, Manifest, engine_manifests
from .load import Course, LoadGenerator
from .pools import message, path, serving_pool, status, wait_condition, wait_decided
from .prometheus import PrometheusRelease
from .results import Results
from .scenes import percent
from .waiting import eventually, throughout

WRONG, DELETED, REFUSED = "wrong-model", "deleted", "refused"
STUCK, NEVER = "unschedulable", "never-ready"
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
    changes = {STUCK: alone_on_its_node, NEVER: gated}
    for name in NAMESPACES:
        engine = Engine(name=name, namespace=name, model=name, load_seconds=2)
        deployment, service = engine_manifests(engine)
        if name in changes:
            changes[name](deployment, engine)
        cluster.apply([deployment, service])
    open_gate(cluster)
    cluster.apply(serving_pool(REFUSED, REFUSED, targets=[{"name": REFUSED, "min": 2, "max": 4}]))
    for name in (WRONG, DELETED, STUCK, NEVER):
        cluster.wait_serving(name, name)
        COURSES[name] = load.start(f"http://{name}.{name}:8000", name, BUSY if name in {STUCK, NEVER} else CALM)
        cluster.apply(serving_pool(name, name, model=f"{WRONG}-typo" if name == WRONG else name))


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


def alone_on_its_node(deployment: Manifest, engine: Engine) -> None:
    """The only node has room for one: what a cluster without free GPUs is to the second replica."""
    term = {"labelSelector": {"matchLabels": engine.labels}, "topologyKey": "kubernetes.io/hostname"}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    deployment["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": anti}


def gated(deployment: Manifest, engine: Engine) -> None:
    """A pod is not Ready until someone says so: the test does, for those that it lets in."""
    deployment["spec"]["template"]["spec"]["readinessGates"] = [{"conditionType": GATE}]


def open_gate(cluster: Cluster) -> None:
    """Let in the pods that are there now."""
    for pod in eventually(lambda: cluster.pods(NEVER), 60, "a pod"):
        where = f"/api/v1/namespaces/{NEVER}/pods/{pod['metadata']['name']}/status"
        body = {"status": {"conditions": [{"type": GATE, "status": "True"}]}}
        cluster.client.request("PATCH", where, body, content_type="application/strategic-merge-patch+json")


def test_a_wrong_model_name_is_told_and_nothing_is_scaled(
    cluster: Cluster, load: LoadGenerator, results: Results
) -> None:
    wait_condition(cluster, WRONG, WRONG, "MetricsAvailable", ("False", "NoSeriesForModel"))
    said = message(cluster, WRONG, WRONG, "MetricsAvailable")
    assert f"{WRONG}-typo" in said, said
    assert status(cluster, WRONG, WRONG)["why"] == "NoSeriesForModel"
    assert cluster.replicas(WRONG, WRONG) == 1
    figures = eventually(
        lambda: found if (found := load.summary(COURSES[WRONG]))["ended"] >= ENOUGH else {}, 90, "requests"
    )
    assert figures["lost"] == 0
    results.add(
        scenario="wrong model name",
        outcome=f"NoSeriesForModel: {said}",
        requests=figures["ended"],
        lost=figures["lost"],
    )


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
    """Under more load than the one replica carries, which goes on serving."""
    wait_condition(cluster, STUCK, STUCK, "Ready", ("False", "Unschedulable"), 180)
    said = message(cluster, STUCK, STUCK, "Ready")
    assert said.startswith("no node has room for"), said
    assert 2 <= cluster.replicas(STUCK, STUCK) <= 4
    assert cluster.ready(STUCK, STUCK) == 1
    assert cluster.events(STUCK, STUCK, "Unschedulable")
    results.add(scenario="unschedulable replicas", outcome=said, **late_not_lost(load, COURSES[STUCK]))


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


def is_ready(pod: dict[str, object]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
