"""The whole operator, under its own rights, on a real API server and a real Prometheus."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from servingpool.cli.main import app
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import ACCOUNT, ELECTION, NAMESPACE, PATIENCE, Cluster, OperatorProcess, cluster_in, settings_on

COST = "controller.kubernetes.io/pod-deletion-cost"
LEASE_S = float(ELECTION["duration"].removesuffix("s"))
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterroles/servingpool-operator"

pytestmark = pytest.mark.timeout(180, func_only=True)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    with cluster_in(control_plane, pod_metrics, "stories") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    prices = {"acme": {"input": 0.5, "output": 1.5, "noted": "2026-11-01"}}
    settings = settings_on(prometheus.url, leaderElection=ELECTION, prices=prices)
    settings["backends"].append({"name": "elsewhere", "url": prometheus.url, "namespaces": ["other-*"]})
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        yield operator


@pytest.fixture(scope="module", autouse=True)
def _pools(cluster: Cluster, operator: OperatorProcess) -> None:
    """All at once, so that each story finds its pool already looked at."""
    cluster.serve("chat", rate=4.0)
    cluster.pool("chat")
    cluster.serve("advised", rate=1.0)
    cluster.pool("advised", mode="Recommend", targets=[{"name": "advised", "min": 2, "max": 3}])
    cluster.serve("priced", rate=2.0)
    cluster.pool("priced", targets=[{"name": "priced", "min": 1, "max": 1, "costPerReplicaHour": 9}], compareTo="akme")
    cluster.serve("idle", rate=2.0)
    cluster.pool("idle")
    cluster.pool("orphan")
    cluster.serve("owned", rate=1.0)
    cluster.plane.apply(hpa(cluster.namespace, "owned"))
    cluster.pool("owned", targets=[{"name": "owned", "min": 2, "max": 3}])
    cluster.pool(
        "lost", targets=[{"name": "idle", "min": 1, "max": 2}], mode="Recommend", metrics={"backend": "elsewhere"}
    )


def hpa(namespace: str, target: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": target, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1,
            "maxReplicas": 2,
        },
    }


def explain(cluster: Cluster, name: str) -> Result:
    command = ["explain", f"{cluster.namespace}/{name}", f"--kubeconfig={cluster.plane.kubeconfig}"]
    return CliRunner().invoke(app, command, env={"COLUMNS": "160"})


def test_scales_up_when_load_grows_and_says_so_once(cluster: Cluster) -> None:
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
    status = cluster.status("chat")
    assert status["lastScaleTime"]
    assert status["lastDecision"]["need"] > 0
    wait_until(lambda: "profile" in cluster.status("chat"), PATIENCE, "what was learned is kept")
    assert cluster.status("chat")["profile"]["fit"]["windows"] > 0


def test_a_template_that_loses_requests_is_warned_of(cluster: Cluster) -> None:
    cluster.wait_condition("chat", "DrainReady", ("False", "NoShutdownTimeout"))
    cluster.wait_event("chat", "NoShutdownTimeout")
    assert len(cluster.events("chat", "NoShutdownTimeout")) == 1


def test_recommend_decides_and_touches_nothing(cluster: Cluster) -> None:
    cluster.wait_condition("advised", "Ready", ("True", "Recommending"))
    cluster.wait_condition("advised", "MetricsAvailable", ("True", "ValidMetrics"))
    assert cluster.status("advised")["fleet"] == "1/2/3"
    assert cluster.replicas("advised") == 1
    assert cluster.events("advised", "SuccessfulRescale") == []


def test_a_deployment_with_an_hpa_is_not_scaled(cluster: Cluster) -> None:
    cluster.wait_condition("owned", "Ready", ("False", "OwnedByHPA"))
    cluster.wait_condition("owned", "MetricsAvailable", ("True", "ValidMetrics"))
    assert cluster.status("owned")["desiredReplicas"] == 2
    assert cluster.replicas("owned") == 1
    assert cluster.events("owned", "SuccessfulRescale") == []
    cluster.plane.client.delete(f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers/owned")
    cluster.wait_condition("owned", "Ready", ("True", "SucceededGetScale"))
    wait_until(lambda: cluster.replicas("owned") == 2, PATIENCE, "it is taken over")


@pytest.mark.parametrize("how", ["apply", "update"])
def test_a_program_that_resets_replicas_is_named(cluster: Cluster, operator: OperatorProcess, how: str) -> None:
    """As a GitOps tool does whose manifest holds a number, by server-side apply or by an update."""
    name = f"reset-by-{how}"
    cluster.serve(name, rate=1.0)
    cluster.pool(name, targets=[{"name": name, "min": 2, "max": 3}])
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/{name}?fieldManager=argocd-controller"
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 1}}
    for _ in range(3):
        wait_until(lambda: cluster.replicas(name) == 2, PATIENCE, "the operator's number")
        wait_until(
            lambda: operator.figure("servingpool_requested_replicas", pool=name) == 2,
            PATIENCE,
            "the watch has shown it",
        )
        if how == "apply":
            cluster.plane.client.request(
                "PATCH", f"{path}&force=true", manifest, content_type="application/apply-patch+yaml"
            )
        else:
            cluster.plane.client.request("PATCH", path, manifest, content_type="application/merge-patch+json")
    cluster.wait_condition(name, "Ready", ("False", "ReplicasContested"))
    said = "argocd-controller keeps resetting spec.replicas (last 2 -> 1)."
    assert said in cluster.told(name, "Ready")
    cluster.wait_event(name, "ReplicasContested")
    assert len(cluster.events(name, "ReplicasContested")) == 1
    wait_until(lambda: cluster.replicas(name) == 2, PATIENCE, "what is needed is ordered all the same")


def test_a_target_that_is_created_later_is_scaled(cluster: Cluster) -> None:
    cluster.wait_condition("orphan", "Ready", ("False", "TargetNotFound"))
    cluster.wait_event("orphan", "TargetNotFound")
    assert len(cluster.events("orphan", "TargetNotFound")) == 1
    cluster.serve("orphan", rate=1.0)
    cluster.wait_condition("orphan", "Ready", ("True", "SucceededGetScale"))


def test_a_backend_that_is_not_open_to_the_namespace_is_refused(cluster: Cluster) -> None:
    cluster.wait_condition("lost", "Ready", ("False", "UnknownBackend"))
    assert cluster.told("lost", "Ready") == (
        "spec.metrics.backend 'elsewhere' cannot be used: it does not allow namespace stories."
    )


def versions(cluster: Cluster, name: str) -> dict[str, str]:
    """What a write changes: of a pool and its pods anything, of its Deployment the spec."""
    pods = {pod: found["metadata"]["resourceVersion"] for pod, found in cluster.pods(name).items()}
    return {
        "pool": cluster.found(name)["metadata"]["resourceVersion"],
        "changes": str(cluster.changes(name)),
        **pods,
    }


def test_a_pool_with_a_steady_load_is_not_written(cluster: Cluster, operator: OperatorProcess) -> None:
    cluster.wait_condition("idle", "MetricsAvailable", ("True", "ValidMetrics"))
    cluster.wait_condition("idle", "Calibrating", ("False", "Learned"))
    wait_until(lambda: "profile" in cluster.status("idle"), PATIENCE, "what was learned is kept")

    seen: set[frozenset[tuple[str, str]]] = set()
    operator.wait_ticks(8, lambda: seen.add(frozenset(versions(cluster, "idle").items())))
    assert len(seen) <= 2, "what has just been learned, and figures, are written once in a minute or more"


def test_explain_shows_the_last_decision(cluster: Cluster) -> None:
    cluster.wait_condition("chat", "MetricsAvailable", ("True", "ValidMetrics"))
    shown = explain(cluster, "chat")
    assert shown.exit_code == 0, shown.stderr
    assert "mode Auto: chat on Deployment chat" in shown.stdout
    assert "raw need" in shown.stdout
    assert "MetricsAvailable" in shown.stdout
    missing = explain(cluster, "no-such")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("Cannot read ServingPool stories/no-such: 404 ")


def test_a_hosted_price_is_compared_with_once_its_name_is_right(cluster: Cluster, operator: OperatorProcess) -> None:
    cluster.wait_condition("priced", "MetricsAvailable", ("True", "ValidMetrics"))
    warned = explain(cluster, "priced").stdout
    assert "spec.compareTo 'akme' is unknown, so nothing is compared; known prices: acme." in warned
    rate = "servingpool_tokens_per_dollar"
    wait_until(lambda: operator.figure(rate, pool="priced") is not None, PATIENCE, "its traffic is measured")
    cluster.plane.client.patch(cluster.path("priced"), {"spec": {"compareTo": "acme"}})
    wait_until(lambda: cluster.status("priced")["cost"].get("comparedTo") == "acme", PATIENCE, "it is compared")
    status = cluster.status("priced")
    cost, tokens = status["cost"], status["throughput"]
    there = 3600e-6 * (0.5 * tokens["promptTokensPerSecond"] + 1.5 * tokens["generationTokensPerSecond"])
    assert (cost["dollarsPerHour"], cost["noted"]) == (9, "2026-11-01")
    assert cost["comparedDollarsPerHour"] == pytest.approx(there, abs=0.01)
    times = cost["breakEvenTokensPerSecond"] / tokens["generationTokensPerSecond"]
    assert times == pytest.approx(9 / there, rel=0.01)
    shown = explain(cluster, "priced").stdout
    assert f"${cost['comparedDollarsPerHour']:.2f} per hour  noted 2026-11-01" in shown
    assert f"{float(cost['breakEvenTokensPerSecond'])} output tokens/s  load" in shown
    assert "akme" not in shown
    assert operator.figure("servingpool_cost_dollars_per_hour", pool="priced") == 9


def shrink(cluster: Cluster, most: int) -> None:
    """A max that is lowered needs no patience."""
    cluster.plane.client.patch(
        cluster.path("shrinking"), {"spec": {"targets": [{"name": "shrinking", "min": 1, "max": most}]}}
    )
    wait_until(lambda: cluster.replicas("shrinking") == most, PATIENCE, f"shrinking has {most} replicas")
    wait_until(lambda: len(cluster.pods("shrinking")) == most, PATIENCE, f"{most} pods are left")


def work(cluster: Cluster, operator: OperatorProcess, order: list[str]) -> None:
    """So many requests run on each pod as its place in `order` says, and the operator has seen it."""
    # Prometheus passes newly found pods on every five seconds only: until then they are not known, and go in any order.
    wait_until(
        lambda: f"All {len(order)} ready" in cluster.told("shrinking", "MetricsAvailable"), PATIENCE, "all are scraped"
    )
    running = {pod: float(n) for n, pod in enumerate(order)}
    cluster.traffic.services[cluster.namespace, "shrinking"].running = running
    wait_until(
        lambda: operator.figure("servingpool_running_requests", pool="shrinking") == sum(running.values()),
        PATIENCE,
        "the operator has read what runs on each",
    )


def test_a_scale_down_removes_the_idlest_pods_and_leaves_no_mark(cluster: Cluster, operator: OperatorProcess) -> None:
    """On a real controller-manager. By chance: once in 35 times here, and once in 3 below."""
    cluster.serve("shrinking", replicas=8, rate=2.0)
    cluster.pool("shrinking", targets=[{"name": "shrinking", "min": 8, "max": 8}])
    wait_until(lambda: cluster.status("shrinking").get("readyReplicas") == 8, PATIENCE, "all serve")
    order = sorted(cluster.pods("shrinking"), key=lambda name: name[::-1])
    kept = f"/api/v1/namespaces/{cluster.namespace}/pods/{order[0]}"
    cluster.plane.client.patch(kept, {"metadata": {"annotations": {COST: "100"}}})
    work(cluster, operator, order)
    before, written = (
        versions(cluster, "shrinking"),
        operator.figure("servingpool_api_writes_total", kind="cost") or 0.0,
    )
    shrink(cluster, 4)
    assert set(cluster.pods("shrinking")) == {order[0], *order[5:]}, "of whom somebody wants to keep stays, idle or not"
    costs = {name: pod["metadata"]["annotations"].get(COST) for name, pod in cluster.pods("shrinking").items()}
    assert costs == {order[0]: "100", **dict.fromkeys(order[5:])}
    chosen = [
        line
        for line in operator.log().splitlines()
        if "Chosen for removal, fewest requests in flight: shrinking-" in line
    ]
    assert len(chosen) == 1
    assert f"fewest requests in flight: {order[1]} (1 in flight)" in chosen[0]
    operator.wait_ticks(3)  # in which nothing is to be taken back
    assert {name: version for name, version in versions(cluster, "shrinking").items() if name in costs} == {
        name: before[name] for name in costs
    }, "nobody who stays is written"
    costs_written = operator.figure("servingpool_api_writes_total", kind="cost")
    assert costs_written is not None
    # Those of `chat`, which may shrink meanwhile, are named in the log as well: nobody is marked twice.
    assert written + 4 <= costs_written <= operator.log().count(" in flight)") + operator.log().count(" (unknown)")
    assert operator.figure("servingpool_api_write_failures_total", kind="cost") == 0


def test_a_mark_left_by_a_crash_is_removed(cluster: Cluster) -> None:
    """Written as the operator would have, between its two writes."""
    name, pod = next(
        (name, pod) for name, pod in cluster.pods("shrinking").items() if COST not in pod["metadata"]["annotations"]
    )
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"
    metadata = {
        "namespace": cluster.namespace,
        "name": name,
        "uid": pod["metadata"]["uid"],
        "annotations": {COST: "-1"},
    }
    cluster.plane.client.request(
        "PATCH",
        f"{path}?fieldManager=servingpool-operator",
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
        content_type="application/apply-patch+yaml",
    )
    wait_until(
        lambda: COST not in cluster.plane.client.get(path)["metadata"]["annotations"], PATIENCE, "it is taken back"
    )


def may_patch_pods(cluster: Cluster) -> bool:
    """Whether the API server would let the operator; it takes up a change of rights a moment later."""
    asked = {"verb": "patch", "resource": "pods", "namespace": cluster.namespace}
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    review: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    review |= {"spec": {"user": user, "resourceAttributes": asked}}
    found = cluster.plane.client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(found["status"]["allowed"])


def test_without_the_right_to_patch_pods_it_still_scales_down_and_says_so(
    cluster: Cluster, operator: OperatorProcess
) -> None:
    rules = cluster.plane.client.get(RIGHTS)["rules"]
    older = [{**rule, "verbs": ["list", "watch"]} if rule["resources"] == ["pods"] else rule for rule in rules]
    cluster.plane.client.patch(RIGHTS, {"rules": older})
    try:
        wait_until(lambda: not may_patch_pods(cluster), PATIENCE, "the right is gone")
        shrink(cluster, 3)
        cluster.wait_event("shrinking", "VictimsNotChosen")
    finally:
        cluster.plane.client.patch(RIGHTS, {"rules": rules})
    wait_until(lambda: may_patch_pods(cluster), PATIENCE, "the right is back")
    assert operator.log().count("No permission to patch pods") == 1
    [keeper] = [name for name, pod in cluster.pods("shrinking").items() if COST in pod["metadata"]["annotations"]]
    idle, busy = sorted(cluster.pods("shrinking").keys() - {keeper})
    work(cluster, operator, [keeper, idle, busy])
    shrink(cluster, 2)
    assert set(cluster.pods("shrinking")) == {keeper, busy}, "the right is back, and the choice with it"


def test_nothing_is_removed_while_prometheus_is_down(
    cluster: Cluster, operator: OperatorProcess, prometheus: Prometheus
) -> None:
    before = cluster.replicas("chat")
    prometheus.stop()
    try:
        cluster.wait_condition("chat", "MetricsAvailable", ("False", "FailedGetMetrics"))
        assert len(cluster.events("chat", "FailedGetMetrics")) <= 2
        cluster.load("chat", 0.1)

        def as_before() -> None:
            assert cluster.replicas("chat") == before

        operator.wait_ticks(8, as_before)
        # Cannot be reached; or what its last query met was the shutdown.
        assert "Prometheus backend 'default' " in cluster.status("chat")["lastDecision"]["reason"]
        assert operator.healthy() == 200
    finally:
        prometheus.start()
    cluster.load("chat", 20.0)
    cluster.wait_condition("chat", "MetricsAvailable", ("True", "ValidMetrics"))


def test_goes_on_after_the_api_server_was_away_for_longer_than_a_lease(
    cluster: Cluster, operator: OperatorProcess
) -> None:
    terms = operator.log().count("Leading as")
    cluster.plane.stop_apiserver()
    away = time.monotonic()
    wait_until(
        lambda: "The lease was not renewed for 4 s; this operator stops writing." in operator.log(),
        PATIENCE,
        "it stops writing",
    )
    # A Lease runs out by the clock alone: nobody can be asked.
    wait_until(lambda: time.monotonic() - away > LEASE_S, PATIENCE, "the Lease has run out")
    cluster.plane.start_apiserver()
    assert operator.process.running, operator.process.log_tail()
    before = cluster.replicas("chat")
    cluster.plane.client.patch(
        cluster.path("chat"), {"spec": {"targets": [{"name": "chat", "min": before + 1, "max": 8}]}}
    )
    wait_until(lambda: cluster.replicas("chat") == before + 1, PATIENCE, "what the pool says now is done")
    assert operator.log().count("Leading as") > terms


def test_a_deleted_pool_leaves_its_workload_and_no_series(cluster: Cluster, operator: OperatorProcess) -> None:
    wait_until(lambda: operator.figure("servingpool_desired_replicas", pool="idle") is not None, PATIENCE, "a series")
    before = cluster.replicas("idle")
    cluster.plane.client.delete(cluster.path("idle"))
    wait_until(lambda: operator.figure("servingpool_desired_replicas", pool="idle") is None, PATIENCE, "no series")
    assert cluster.replicas("idle") == before


def test_resumes_with_what_it_had_learned_after_a_crash(cluster: Cluster, operator: OperatorProcess) -> None:
    learned = cluster.status("chat")["profile"]
    before = cluster.replicas("chat")
    operator.process.kill()
    killed, terms = time.time(), operator.log().count("Leading as")
    operator.start()
    wait_until(lambda: operator.log().count("Leading as") > terms, PATIENCE, "it leads again")
    wait_until(lambda: decided_since(cluster, killed), PATIENCE, "a decision after the restart")
    status = cluster.status("chat")
    assert status["lastDecision"]["need"] > 0, "rates are known in the first tick: windows were filled from history"
    assert status["profile"]["learned"] >= learned["learned"]
    assert cluster.replicas("chat") >= before


def decided_since(cluster: Cluster, since: float) -> bool:
    at = cluster.status("chat").get("lastDecision", {}).get("at", "")
    return bool(at) and time.mktime(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone > since


def test_stops_with_grace(cluster: Cluster, operator: OperatorProcess) -> None:
    before = cluster.status("chat")["profile"]
    # After 15 s it would be killed, and the status another one.
    assert operator.process.stop() == 0, operator.process.log_tail()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/servingpool-operator"
    assert cluster.plane.client.get(lease)["spec"]["holderIdentity"] == ""
    assert cluster.status("chat")["profile"]["learned"] > before["learned"]


def certificate(plane: ControlPlane, directory: Path) -> Path:
    return plane.user_kubeconfig("by-certificate", ["system:masters"])


def plugin(plane: ControlPlane, directory: Path) -> Path:
    """As the kubeconfigs of managed clusters are: a program prints the token."""
    kubeconfig = yaml.safe_load(plane.kubeconfig.read_text())
    user = kubeconfig["users"][0]["user"]
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": user["token"]},
    }
    (directory / "answer.json").write_text(json.dumps(answer))
    program = {"apiVersion": answer["apiVersion"], "command": "cat", "args": [str(directory / "answer.json")]}
    kubeconfig["users"][0]["user"] = {"exec": program}
    path = directory / "plugin.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


@pytest.mark.parametrize("login", [certificate, plugin])
def test_logs_in_as_kubectl_does_and_keeps_to_its_namespaces(
    cluster: Cluster,
    prometheus: Prometheus,
    tmp_path: Path,
    login: Callable[[ControlPlane, Path], Path],
) -> None:
    namespace = f"logs-in-by-{login.__name__}"
    cluster.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = settings_on(prometheus.url, namespaces=[namespace])
    own = Cluster(cluster.plane, cluster.traffic, namespace)
    own.pool("orphan")
    seen = cluster.found("orphan")["metadata"]["resourceVersion"]
    logged_in = OperatorProcess(cluster.plane, tmp_path, settings, kubeconfig=login(cluster.plane, tmp_path))
    with logged_in.running() as operator:
        own.wait_condition("orphan", "Ready", ("False", "TargetNotFound"))
        wait_until(lambda: operator.figure("servingpool_pools") == 1, PATIENCE, "one pool is watched")
        cluster.plane.client.delete(f"/api/v1/namespaces/{namespace}")
    assert cluster.found("orphan")["metadata"]["resourceVersion"] == seen


def test_a_start_that_cannot_succeed_ends_at_once_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    settings = {"backends": [{"name": "default", "url": "http://127.0.0.1:9"}]}
    operator = OperatorProcess(cluster.plane, tmp_path, settings, kubeconfig=tmp_path / "no-such")
    operator.process.start()
    wait_until(lambda: not operator.process.running, PATIENCE, "it ends")
    assert operator.process.exit_code == 1
    assert f"Cannot read the cluster's credentials: file {tmp_path / 'no-such'} does not exist" in operator.log()
