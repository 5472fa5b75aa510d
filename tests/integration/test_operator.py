"""The whole operator, under its own rights, on a real API server and a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import PATIENCE, Cluster, OperatorProcess, cluster_in, install, settings_on
from .side_by_side import Begun, SideBySide

COST = "controller.kubernetes.io/pod-deletion-cost"
LIMITED = "stories-limited"
"""A namespace whose quota lets two pods stand."""

side_by_side = SideBySide()


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    install(control_plane, LIMITED)
    with cluster_in(control_plane, pod_metrics, "stories") as cluster:
        yield cluster
    control_plane.client.delete(f"/api/v1/namespaces/{LIMITED}")


@pytest.fixture(scope="module", autouse=True)
def begun(cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    settings = settings_on(prometheus.url, namespaces=[cluster.namespace, LIMITED])
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        cluster.serve("chat", rate=4.0)
        cluster.pool("chat")
        with side_by_side.begin(lambda: [cluster, operator]) as begun:
            yield begun


@side_by_side
def test_scales_up_when_load_grows_and_says_so_once(cluster: Cluster, operator: OperatorProcess) -> None:
    cluster.wait_condition("chat", "MetricsAvailable", ("True", "ValidMetrics"))
    cluster.load("chat", 20.0)
    wait_until(lambda: cluster.replicas("chat") >= 2, PATIENCE, "chat is scaled up")
    cluster.wait_condition("chat", "Ready", ("True", "SucceededGetScale"))
    wait_until(lambda: cluster.status("chat").get("readyReplicas", 0) >= 2, PATIENCE, "they serve")

    def told() -> bool:
        # The scale comes first, then its event, and the status in its own time.
        events, size = cluster.events("chat", "SuccessfulRescale"), cluster.status("chat")["replicas"]
        said = any(f"New size: {size}; reason: scale up" in event["message"] for event in events)
        return said and len(events) == cluster.changes("chat")

    wait_until(told, PATIENCE, "an event for each change")
    assert all(event["count"] == 1 for event in cluster.events("chat", "SuccessfulRescale"))
    assert cluster.status("chat")["lastScaleTime"]
    wait_until(lambda: cluster.status("chat")["lastDecision"].get("need", 0.0) > 0.0, PATIENCE, "the need is known")
    wait_until(lambda: "profile" in cluster.status("chat"), PATIENCE, "what was learned is kept")
    assert cluster.status("chat")["profile"]["kinds"][0]["fit"]["windows"] > 0


@side_by_side
def test_a_template_that_loses_requests_is_warned_of(cluster: Cluster, operator: OperatorProcess) -> None:
    cluster.wait_condition("chat", "DrainReady", ("False", "NoShutdownTimeout"))
    cluster.wait_event("chat", "NoShutdownTimeout")
    assert len(cluster.events("chat", "NoShutdownTimeout")) == 1


@side_by_side
def test_what_a_quota_refuses_is_told_and_not_kept_once_load_goes(cluster: Cluster, operator: OperatorProcess) -> None:
    limited = Cluster(cluster.plane, cluster.traffic, LIMITED)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": LIMITED}}
    cluster.plane.apply({**quota, "spec": {"hard": {"pods": "2"}}})
    limited.serve("a", rate=40.0)
    limited.pool("a")
    wait_until(lambda: limited.replicas("a") > 2, PATIENCE, "more than the quota lets stand is ordered")
    limited.wait_condition("a", "Ready", ("False", "FailedCreate"))
    assert "exceeded quota: q" in limited.told("a", "Ready")
    limited.load("a", 0.5)
    wait_until(lambda: limited.replicas("a") <= 2, PATIENCE, "what never came is ordered no more")
    limited.wait_condition("a", "Ready", ("True", "SucceededGetScale"))


@side_by_side
def test_a_program_that_resets_replicas_is_named(cluster: Cluster, operator: OperatorProcess) -> None:
    """As a GitOps tool does whose manifest holds a number, by server-side apply or by an update."""
    ways = {"reset-by-apply": "application/apply-patch+yaml", "reset-by-update": "application/merge-patch+json"}
    for name in ways:
        cluster.serve(name, rate=1.0)
        cluster.pool(name, targets=[{"name": name, "min": 2, "max": 3}])

    def shown() -> bool:
        """The operator's number, and its watch has it."""
        figures = (operator.figure("servingpool_requested_replicas", pool=name) for name in ways)
        return all(cluster.replicas(name) == 2 for name in ways) and all(figure == 2 for figure in figures)

    for _ in range(3):
        wait_until(shown, PATIENCE, "the operator's number is seen")
        for name, way in ways.items():
            path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/{name}?fieldManager=argocd-controller"
            path += "&force=true" if name == "reset-by-apply" else ""
            kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
            cluster.plane.client.request("PATCH", path, {**kind, "spec": {"replicas": 1}}, content_type=way)
    for name in ways:
        cluster.wait_condition(name, "Ready", ("False", "ReplicasContested"))
        assert "argocd-controller keeps resetting spec.replicas (last 2 -> 1 at " in cluster.told(name, "Ready")
        cluster.wait_event(name, "ReplicasContested")
        assert len(cluster.events(name, "ReplicasContested")) == 1
    wait_until(shown, PATIENCE, "what is needed is ordered all the same")


@side_by_side
def test_a_scale_down_removes_the_idlest_pods_and_leaves_no_mark(cluster: Cluster, operator: OperatorProcess) -> None:
    """On a real controller-manager. By chance: once in 35 times."""

    def targets(least: int, most: int) -> list[dict[str, object]]:
        return [{"name": "shrinking", "min": least, "max": most}]

    cluster.serve("shrinking", replicas=8, rate=2.0)
    cluster.pool("shrinking", targets=targets(8, 8))
    # Prometheus passes newly found pods on every five seconds only: until then they are not known, and go in any order.
    all_scraped = lambda: "All 8 ready" in cluster.told("shrinking", "MetricsAvailable")  # noqa: E731
    wait_until(all_scraped, PATIENCE, "all are scraped")
    order = sorted(cluster.pods("shrinking"), key=lambda name: name[::-1])
    kept = f"/api/v1/namespaces/{cluster.namespace}/pods/{order[0]}"
    cluster.plane.client.patch(kept, {"metadata": {"annotations": {COST: "100"}}})
    running = {pod: float(n) for n, pod in enumerate(order)}
    cluster.traffic.services[cluster.namespace, "shrinking"].running = running
    read = lambda: operator.figure("servingpool_running_requests", pool="shrinking") == sum(running.values())  # noqa: E731
    wait_until(read, PATIENCE, "the operator has read what runs on each")
    before = {name: pod["metadata"]["resourceVersion"] for name, pod in cluster.pods("shrinking").items()}
    cluster.plane.client.patch(cluster.path("shrinking"), {"spec": {"targets": targets(4, 4)}})
    wait_until(lambda: len(cluster.pods("shrinking")) == 4, PATIENCE, "4 pods are left")
    operator.wait_ticks(3)  # in which nothing is to be taken back
    left = cluster.pods("shrinking")
    assert left.keys() == {order[0], *order[5:]}, "of whom somebody wants to keep stays, idle or not"
    costs = {name: pod["metadata"]["annotations"].get(COST) for name, pod in left.items()}
    assert costs == {order[0]: "100", **dict.fromkeys(order[5:])}
    versions = {name: pod["metadata"]["resourceVersion"] for name, pod in left.items()}
    assert versions == {name: before[name] for name in left}, "nobody who stays is written"
    [chosen] = re.findall(r"Chosen for removal, fewest requests in flight: (shrinking-.*)", operator.log())
    assert chosen.startswith(f"{order[1]} (1 in flight)")
    assert operator.figure("servingpool_api_write_failures_total", kind="cost") == 0
