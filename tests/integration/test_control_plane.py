"""The lab's control plane behaves like a cluster with GPUs, as far as the operator can tell."""

import datetime as dt
import itertools
from typing import Any

import pytest

from servingpool_lab import kwok
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import PATIENCE

PodMetrics = dict[tuple[str, str], str]


def deployment(
    namespace: str,
    *,
    replicas: int,
    gpus: int = 1,
    grace_seconds: int = 30,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    labels = {"app": "vllm"}
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:latest",
        "ports": [{"containerPort": 8000}, {"containerPort": 9090}],
        "resources": {"limits": {kwok.GPU_RESOURCE: str(gpus)}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "vllm", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations or {}},
                "spec": {
                    "terminationGracePeriodSeconds": grace_seconds,
                    "containers": [container],
                },
            },
        },
    }


def pods(plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    return plane.client.items(f"/api/v1/namespaces/{namespace}/pods")


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in pod["status"].get("conditions", []) if c["type"] == kind), {})


def ready(plane: ControlPlane, namespace: str) -> list[str]:
    return [
        pod["metadata"]["name"] for pod in pods(plane, namespace) if condition(pod, "Ready").get("status") == "True"
    ]


def wait_ready(plane: ControlPlane, namespace: str, count: int) -> None:
    wait_until(lambda: len(ready(plane, namespace)) == count, PATIENCE, f"{count} ready pods")


def scale(plane: ControlPlane, namespace: str, replicas: int) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/vllm/scale"
    plane.client.patch(path, {"spec": {"replicas": replicas}})


def timestamp(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def test_a_deployment_grows_to_ready_pods_only_after_the_load_time(control_plane: ControlPlane, namespace: str) -> None:
    loading = {kwok.LOAD_SECONDS_ANNOTATION: "3"}
    control_plane.apply(deployment(namespace, replicas=3, gpus=2, annotations=loading))

    def all_run() -> bool:
        return [p["status"]["phase"] for p in pods(control_plane, namespace)] == ["Running"] * 3

    wait_until(all_run, PATIENCE, "3 running pods")
    wait_ready(control_plane, namespace, 3)
    for pod in pods(control_plane, namespace):
        became_ready = timestamp(condition(pod, "Ready")["lastTransitionTime"])
        loaded = (became_ready - timestamp(pod["status"]["startTime"])).total_seconds()
        assert loaded >= 3, "it loads for three seconds from its start"
        assert pod["spec"]["nodeName"] == "gpu-0"


def test_a_change_of_the_pod_does_not_start_its_loading_over(control_plane: ControlPlane, namespace: str) -> None:
    loading = {kwok.LOAD_SECONDS_ANNOTATION: "4"}
    control_plane.apply(deployment(namespace, replicas=1, annotations=loading))
    wait_until(lambda: len(pods(control_plane, namespace)) == 1, PATIENCE, "the pod")
    name = pods(control_plane, namespace)[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    cost = itertools.count()

    def ready_after_a_change() -> bool:
        annotations = {"controller.kubernetes.io/pod-deletion-cost": str(next(cost))}
        control_plane.client.patch(path, {"metadata": {"annotations": annotations}})
        return ready(control_plane, namespace) == [name]

    # A relative delay would count from the last of these changes, and never end.
    wait_until(ready_after_a_change, PATIENCE, "ready although it changes all the time", interval_seconds=0.5)


def test_scale_down_keeps_a_pod_for_its_whole_grace_period(control_plane: ControlPlane, namespace: str) -> None:
    fast = {kwok.LOAD_SECONDS_ANNOTATION: "0"}
    control_plane.apply(deployment(namespace, replicas=2, grace_seconds=5, annotations=fast))
    wait_ready(control_plane, namespace, 2)
    scale(control_plane, namespace, 1)

    def terminating() -> list[dict[str, Any]]:
        return [p for p in pods(control_plane, namespace) if "deletionTimestamp" in p["metadata"]]

    wait_until(lambda: len(terminating()) == 1, PATIENCE, "a terminating pod")
    [leaving] = terminating()
    assert condition(leaving, "Ready")["status"] == "True"
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 5
    wait_until(lambda: len(pods(control_plane, namespace)) == 1, PATIENCE, "the pod is gone")
    # The clock is what is tested, and the pod's own time is the end of its grace: late is no fault, early is.
    assert dt.datetime.now(dt.UTC) >= timestamp(leaving["metadata"]["deletionTimestamp"])


def test_a_pod_that_has_drained_leaves_before_its_grace_period_ends(
    control_plane: ControlPlane, namespace: str
) -> None:
    annotations = {kwok.LOAD_SECONDS_ANNOTATION: "0", kwok.DRAIN_SECONDS_ANNOTATION: "1"}
    control_plane.apply(deployment(namespace, replicas=1, grace_seconds=600, annotations=annotations))
    wait_ready(control_plane, namespace, 1)
    scale(control_plane, namespace, 0)
    wait_until(lambda: not pods(control_plane, namespace), PATIENCE, "the pod is gone")


def test_a_pod_marked_never_ready_stays_unready_until_the_mark_is_removed(
    control_plane: ControlPlane, namespace: str
) -> None:
    broken = {kwok.LOAD_SECONDS_ANNOTATION: "0", kwok.NEVER_READY_ANNOTATION: "true"}
    control_plane.apply(deployment(namespace, replicas=2, annotations=broken))

    def running() -> bool:
        return [p["status"]["phase"] for p in pods(control_plane, namespace)] == ["Running"] * 2

    wait_until(running, PATIENCE, "two running pods")
    name = pods(control_plane, namespace)[0]["metadata"]["name"]

    def mark(value: str | None) -> None:
        annotations = {kwok.NEVER_READY_ANNOTATION: value}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        control_plane.client.patch(path, {"metadata": {"annotations": annotations}})

    mark(None)
    wait_ready(control_plane, namespace, 1)
    assert ready(control_plane, namespace) == [name], "the other one has run for as long"
    mark("true")
    wait_ready(control_plane, namespace, 0)


def test_a_pod_that_wants_more_gpus_than_any_node_has_is_unschedulable(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.apply(deployment(namespace, replicas=1, gpus=16))

    def reason() -> str | None:
        reasons = [condition(p, "PodScheduled").get("reason") for p in pods(control_plane, namespace)]
        return reasons[0] if reasons else None

    wait_until(lambda: reason() == "Unschedulable", PATIENCE, "the condition Unschedulable")
    assert "Insufficient nvidia.com/gpu" in condition(pods(control_plane, namespace)[0], "PodScheduled")["message"]


def test_a_restart_of_the_api_server_keeps_objects_and_the_cluster_goes_on(
    control_plane: ControlPlane, namespace: str
) -> None:
    fast = {kwok.LOAD_SECONDS_ANNOTATION: "0"}
    control_plane.apply(deployment(namespace, replicas=1, annotations=fast))
    wait_ready(control_plane, namespace, 1)
    before = ready(control_plane, namespace)
    control_plane.stop_apiserver()
    assert control_plane.exited() == ["kube-apiserver"]
    with pytest.raises(OSError, match="refused"):
        control_plane.client.get("/readyz")
    control_plane.start_apiserver()
    assert control_plane.exited() == []
    assert ready(control_plane, namespace) == before
    scale(control_plane, namespace, 2)
    wait_ready(control_plane, namespace, 2)


def test_prometheus_answers_with_its_old_samples_after_a_restart(
    control_plane: ControlPlane, prometheus: Prometheus, pod_metrics: PodMetrics, namespace: str
) -> None:
    scraped = {kwok.LOAD_SECONDS_ANNOTATION: "0", "prometheus.io/scrape": "true"}
    control_plane.apply(deployment(namespace, replicas=1, annotations=scraped))
    wait_ready(control_plane, namespace, 1)
    pod_metrics[namespace, ready(control_plane, namespace)[0]] = "kept 1\n"
    query = f'last_over_time(kept{{namespace="{namespace}"}}[5m])'
    wait_until(lambda: len(prometheus.query(query)) == 1, PATIENCE, "a sample", 0.2)
    pod_metrics.clear()
    url = prometheus.url
    prometheus.stop()
    with pytest.raises(OSError, match="refused"):
        prometheus.query(query)
    prometheus.start()
    assert prometheus.url == url
    assert len(prometheus.query(query)) == 1
