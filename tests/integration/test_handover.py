"""adopt and release against the real HPA controller and real KEDA, killed between steps, with a person's rights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import build_keda
from servingpool_lab import audit
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from . import keda
from .operators import ACCOUNT, NAMESPACE, PATIENCE, Cluster, OperatorProcess, cluster_in, settings_on

OPERATOR = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
HPA_CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
HPAS = "/apis/autoscaling/v2/namespaces/handover/horizontalpodautoscalers"
SCALED_OBJECT = "/apis/keda.sh/v1alpha1/namespaces/handover/scaledobjects/queued"
RULES = [
    {"apiGroups": ["servingpool.dev"], "resources": ["servingpools"], "verbs": ["get", "list", "patch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    {
        "apiGroups": ["autoscaling"],
        "resources": ["horizontalpodautoscalers"],
        "verbs": ["get", "list", "delete", "create"],
    },
    {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["get", "list", "patch"]},
]
"""All that the documentation says a person needs."""


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    with cluster_in(control_plane, pod_metrics, "handover") as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def _operator(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    settings = settings_on(prometheus.url, namespaces=[cluster.namespace])
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("handover"), settings).running() as operator:
        yield operator


@pytest.fixture(scope="module")
def person(cluster: Cluster) -> Path:
    """The kubeconfig of one who may do what the documentation asks for, and nothing else."""
    api, kind = "rbac.authorization.k8s.io", "ClusterRole"
    role = {"apiVersion": f"{api}/v1", "kind": kind, "metadata": {"name": "hands-over"}, "rules": RULES}
    binding = {
        "apiVersion": f"{api}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "hands-over", "namespace": "handover"},
        "roleRef": {"apiGroup": api, "kind": kind, "name": "hands-over"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": api}],
    }
    for manifest in (role, binding):
        cluster.plane.apply(manifest)
    return cluster.plane.user_kubeconfig("alice")


def command(person: Path, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-u",
        "-m",
        "servingpool.cli.main",
        *arguments,
        "-n",
        "handover",
        "--kubeconfig",
        str(person),
    ]


def run(person: Path, *arguments: str) -> str:
    done = subprocess.run(command(person, *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def killed_after(step: int, person: Path, *arguments: str) -> None:
    """Kill the command as soon as it says that a step is done."""
    process = subprocess.Popen(command(person, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.startswith(f"  {step}. ") and any(one == "\n" for one in said[said.index("Steps\n") :]):
                return
    finally:
        process.kill()
        process.wait()
    raise AssertionError("".join(said))


def spans(cluster: Cluster, name: str) -> list[tuple[str, list[audit.Write]]]:
    """Who set a Deployment's replicas, one after the other."""
    scales = [one for one in audit.writes(cluster.plane, "handover") if one.name == name and one.replicas is not None]
    by_robots = [one for one in scales if one.user in {OPERATOR, HPA_CONTROLLER, keda.USER}]
    return [(user, list(each)) for user, each in groupby(by_robots, key=lambda one: one.user)]


def times(cluster: Cluster, verb: str, resource: str, name: str) -> list[str]:
    """When there was such a write."""
    return [
        one.at
        for one in audit.writes(cluster.plane, "handover")
        if (one.verb, one.resource) == (verb, resource)
        and name in {one.name, (one.body or {}).get("metadata", {}).get("name")}
    ]


def beside(cluster: Cluster, name: str) -> None:
    """A pool in Recommend mode, which wants 4 replicas at least, and its Deployment under light load."""
    cluster.serve(name, rate=1.0)
    cluster.pool(name, mode="Recommend", targets=[{"name": name, "min": 4, "max": 8}])


def settled(cluster: Cluster, name: str) -> None:
    """The other autoscaler has set its 3 replicas, and the operator says 4 of a fleet that it knows."""

    def known() -> bool:
        status = cluster.status(name)
        learned = cluster.condition(name, "Calibrating") == ("False", "Learned")
        return learned and (status.get("replicas"), status.get("desiredReplicas")) == (3, 4)

    wait_until(lambda: cluster.replicas(name) == 3, PATIENCE, "the autoscaler scales")
    wait_until(known, PATIENCE, f"{name} is known: {json.dumps(cluster.status(name))}")


def hpa(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "handover", "labels": {"team": "chat"}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 3,
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {"metric": {"name": "n"}, "target": {"type": "AverageValue", "averageValue": "16"}},
                }
            ],
        },
    }


def test_an_hpa_is_adopted_and_given_back_though_the_command_is_killed_after_each_step(
    cluster: Cluster, person: Path
) -> None:
    cluster.plane.apply(hpa("chat"))
    beside(cluster, "chat")
    settled(cluster, "chat")
    taken = cluster.plane.client.get(f"{HPAS}/chat")
    refused = subprocess.run(command(person, "adopt", "chat", "--yes"), capture_output=True, text=True, check=False)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "Auto would change 3 replicas to 4 at once." in refused.stdout

    for step in (1, 2):
        killed_after(step, person, "adopt", "chat", "--yes", "--accept")
    assert "in Auto: 3 -> 4 replicas." in run(person, "adopt", "chat", "--yes", "--accept")
    assert cluster.replicas("chat") == 4
    again = run(person, "adopt", "chat", "--yes")
    assert again.endswith("It is in mode Auto, and nothing else scales its target.\n")

    for step in (1, 2):
        killed_after(step, person, "release", "chat", "--yes")
    run(person, "release", "chat", "--yes")
    wait_until(lambda: cluster.replicas("chat") == 3, PATIENCE, "the HPA has it back")
    given = cluster.plane.client.get(f"{HPAS}/chat")
    assert (given["spec"], given["metadata"]["labels"]) == (taken["spec"], taken["metadata"]["labels"])
    assert cluster.found("chat")["spec"]["mode"] == "Recommend"

    spanned = spans(cluster, "chat")
    assert [user for user, _ in spanned] == [HPA_CONTROLLER, OPERATOR, HPA_CONTROLLER]
    [deleted] = times(cluster, "delete", "horizontalpodautoscalers", "chat")
    [created] = times(cluster, "create", "horizontalpodautoscalers", "chat")
    before, ours, after = ([one.at for one in each] for _, each in spanned)
    assert before[-1] < deleted < ours[0]
    assert ours[-1] < created < after[0]


@pytest.mark.skipif(
    not (build_keda.home() / build_keda.PROGRAM).is_file(),
    reason=f"KEDA {build_keda.VERSION} is not built: `make keda` builds it once, in about 8 minutes",
)
def test_keda_is_paused_and_unpaused_though_the_command_is_killed_meanwhile(
    cluster: Cluster, person: Path, tmp_path: Path
) -> None:
    with keda.keda(cluster.plane, "handover", tmp_path):
        cluster.plane.apply(
            {
                "apiVersion": "keda.sh/v1alpha1",
                "kind": "ScaledObject",
                "metadata": {"name": "queued", "namespace": "handover"},
                "spec": {
                    "scaleTargetRef": {"name": "queued"},
                    "minReplicaCount": 3,
                    "maxReplicaCount": 3,
                    "triggers": [
                        {
                            "type": "cron",
                            "metadata": {
                                "timezone": "UTC",
                                "start": "0 0 * * *",
                                "end": "59 23 * * *",
                                "desiredReplicas": "3",
                            },
                        }
                    ],
                },
            }
        )
        try:
            beside(cluster, "queued")
            settled(cluster, "queued")
            killed_after(3, person, "adopt", "queued", "--yes", "--accept")
            paused = cluster.plane.client.get(SCALED_OBJECT)
            assert paused["metadata"]["annotations"]["autoscaling.keda.sh/paused"] == "true"
            wait_until(lambda: cluster.replicas("queued") == 4, PATIENCE, "the operator has taken over")
            killed_after(1, person, "release", "queued", "--yes")
            run(person, "release", "queued", "--yes")
            wait_until(lambda: cluster.replicas("queued") == 3, PATIENCE, "KEDA has it back")
            assert "autoscaling.keda.sh/paused" not in cluster.plane.client.get(SCALED_OBJECT)["metadata"].get(
                "annotations", {}
            )
        finally:
            cluster.plane.client.delete(SCALED_OBJECT)
            wait_until(lambda: not _exists(cluster), PATIENCE, "KEDA has let go of its ScaledObject")

    spanned = [(user in {HPA_CONTROLLER, keda.USER}, each) for user, each in spans(cluster, "queued")]
    assert [theirs for theirs, _ in groupby(spanned, key=lambda one: one[0])] == [True, False, True]
    deleted = times(cluster, "delete", "horizontalpodautoscalers", "keda-hpa-queued")[0]
    unpaused = times(cluster, "create", "horizontalpodautoscalers", "keda-hpa-queued")[1]
    ours = [one.at for theirs, each in spanned if not theirs for one in each]
    rest = [one.at for theirs, each in spanned if theirs for one in each]
    assert deleted < ours[0]
    assert ours[-1] < unpaused
    assert [at for at in rest if deleted < at < unpaused] == []


def _exists(cluster: Cluster) -> bool:
    return any(
        one["metadata"]["name"] == "queued" for one in cluster.plane.client.items(SCALED_OBJECT.rpartition("/")[0])
    )
