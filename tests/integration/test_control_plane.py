"""The lab's control plane behaves like a cluster with GPUs, as far as the operator can tell."""

import datetime as dt
import itertools
from typing import Any

from servingpool_lab import kwok
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from ..pods import is_ready  # noqa: TID252, tests are no package of an installed name
from .operators import PATIENCE, deployment, ready_pods


def vllm(namespace: str, replicas: int, annotations: dict[str, str], grace_seconds: int = 30) -> dict[str, Any]:
    made = deployment(namespace, "vllm", replicas)
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = annotations
    template["spec"]["terminationGracePeriodSeconds"] = grace_seconds
    return made


def pods(plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    return plane.client.items(f"/api/v1/namespaces/{namespace}/pods")


def scale(plane: ControlPlane, namespace: str, replicas: int) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/vllm/scale"
    plane.client.patch(path, {"spec": {"replicas": replicas}})


def test_a_change_of_the_pod_does_not_start_its_loading_over(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(vllm(namespace, 1, {kwok.LOAD_SECONDS_ANNOTATION: "4"}))
    wait_until(lambda: len(pods(control_plane, namespace)) == 1, PATIENCE, "the pod")
    name = pods(control_plane, namespace)[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    cost = itertools.count()

    def ready_after_a_change() -> bool:
        annotations = {"controller.kubernetes.io/pod-deletion-cost": str(next(cost))}
        control_plane.client.patch(path, {"metadata": {"annotations": annotations}})
        return [is_ready(pod) for pod in pods(control_plane, namespace)] == [True]

    # A relative delay would count from the last of these changes, and never end.
    wait_until(ready_after_a_change, PATIENCE, "ready although it changes all the time", interval_seconds=0.5)


def test_scale_down_keeps_a_pod_for_its_whole_grace_period(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(vllm(namespace, 2, {kwok.LOAD_SECONDS_ANNOTATION: "0"}, grace_seconds=5))
    ready_pods(control_plane, namespace, 2)
    scale(control_plane, namespace, 1)

    def terminating() -> list[dict[str, Any]]:
        return [p for p in pods(control_plane, namespace) if "deletionTimestamp" in p["metadata"]]

    wait_until(lambda: len(terminating()) == 1, PATIENCE, "a terminating pod")
    [leaving] = terminating()
    assert is_ready(leaving)
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 5
    wait_until(lambda: len(pods(control_plane, namespace)) == 1, PATIENCE, "the pod is gone")
    # The clock is what is tested, and the pod's own time is the end of its grace: late is no fault, early is.
    assert dt.datetime.now(dt.UTC) >= dt.datetime.fromisoformat(leaving["metadata"]["deletionTimestamp"])


def test_a_pod_that_has_drained_leaves_before_its_grace_period_ends(
    control_plane: ControlPlane, namespace: str
) -> None:
    annotations = {kwok.LOAD_SECONDS_ANNOTATION: "0", kwok.DRAIN_SECONDS_ANNOTATION: "1"}
    control_plane.apply(vllm(namespace, 1, annotations, grace_seconds=600))
    ready_pods(control_plane, namespace, 1)
    scale(control_plane, namespace, 0)
    wait_until(lambda: not pods(control_plane, namespace), PATIENCE, "the pod is gone")
