"""Targets of other kinds than Deployment on a real API server: a StatefulSet with its real controller, LeaderWorkerSet
with its own where that can be built, and three kinds by their real CRDs with stand-ins for their controllers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab.api_client import load_manifests
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .leader_worker_set import API_VERSION, controller, leader_worker_set
from .operators import PATIENCE, Cluster, OperatorProcess, Service, Traffic, deployment, install
from .side_by_side import Begun, SideBySide
from .stand_ins import ROLE_SCALER, SCALING_ADAPTER, SCALING_GROUP, Kind, StandIn

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "tests/fixtures/crds"
NAMESPACE = "kinds"
KINDS = (ROLE_SCALER, SCALING_ADAPTER, SCALING_GROUP)
NAMES = {ROLE_SCALER: "scaler", SCALING_ADAPTER: "adapter", SCALING_GROUP: "cliques"}

side_by_side = SideBySide()


def rights(binaries: dict[str, Path], directory: Path) -> list[Mapping[str, Any]]:
    """The chart's ClusterRole with the kinds of these tests as a user adds them."""
    extra = [
        {"apiGroups": [kind.api_version.partition("/")[0]], "resources": [kind.plural]}
        for kind in (*KINDS, LEADER_WORKER_SET)
    ]
    home = {f"HELM_{part}_HOME": str(directory / part) for part in ("CACHE", "CONFIG", "DATA")}
    rendered = subprocess.run(
        [
            *(binaries["helm"], "template", "servingpool-operator", ROOT / "charts/servingpool-operator"),
            *("--namespace=servingpool-system", f"--set-json=extraTargets={json.dumps(extra)}"),
            "--set=image.repository=any",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **home},
    ).stdout
    return [each for each in load_manifests(rendered) if each["kind"] == "ClusterRole"]


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane,
    pod_metrics: dict[tuple[str, str], str],
    binaries: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    install(control_plane, NAMESPACE)
    control_plane.apply(rights(binaries, tmp_path_factory.mktemp("helm")))
    control_plane.apply(CRDS)
    control_plane.add_gpu_node("gpu-kinds", gpus=64)
    with Traffic(control_plane, pod_metrics) as traffic, StandIn(control_plane, NAMESPACE, KINDS):
        yield Cluster(control_plane, traffic, NAMESPACE)
    control_plane.client.delete(f"/api/v1/namespaces/{NAMESPACE}")
    control_plane.client.delete("/api/v1/nodes/gpu-kinds")


@dataclass(frozen=True)
class Story:
    """What a story is told with."""

    cluster: Cluster
    operator: OperatorProcess
    directory: Path


def path(kind: Kind, name: str) -> str:
    return f"/apis/{kind.api_version}/namespaces/{NAMESPACE}/{kind.plural}/{name}"


STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets", "", ())


def pool(cluster: Cluster, kind: Kind, name: str) -> None:
    target = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "min": 1, "max": 4}
    cluster.pool(name, targets=[target])


def replicas(cluster: Cluster, kind: Kind, name: str) -> int:
    return int(cluster.plane.client.get(f"{path(kind, name)}/scale")["spec"]["replicas"])


def up(cluster: Cluster, kind: Kind, name: str) -> int:
    """Load comes, and then goes; the most replicas that there were."""
    cluster.wait_condition(name, "MetricsAvailable", ("True", "ValidMetrics"))
    cluster.load(name, 20.0)
    wait_until(lambda: replicas(cluster, kind, name) >= 2, PATIENCE, f"{name} is scaled up")
    wait_until(lambda: cluster.status(name).get("readyReplicas", 0) >= 2, PATIENCE, "the new replicas serve")
    cluster.load(name, 1.0)
    return replicas(cluster, kind, name)


def back(cluster: Cluster, kind: Kind, name: str, most: int) -> None:
    """Replicas are given back; on a busy machine ticks come late, and so does that."""
    wait_until(lambda: replicas(cluster, kind, name) < most, PATIENCE, f"{name} is scaled down")
    assert cluster.condition(name, "Ready") == ("True", "SucceededGetScale")
    assert cluster.told(name, "Ready") == f"{kind.kind} {name} can be scaled."
    assert not cluster.events(name, "VictimsNotChosen")


def up_and_back(cluster: Cluster, kind: Kind, name: str) -> int:
    """The most replicas that there were."""
    most = up(cluster, kind, name)
    back(cluster, kind, name, most)
    return most


def gpus(operator: OperatorProcess, name: str) -> float:
    """Of a replica, as the operator counts them."""
    all_, replicas = (operator.figure(f"servingpool_{one}", pool=name) for one in ("gpus", "requested_replicas"))
    return (all_ or 0.0) / (replicas or 1.0)


def has_gpus(operator: OperatorProcess, name: str, expected: float) -> bool:
    return gpus(operator, name) == expected


def stateful_set(name: str) -> dict[str, Any]:
    manifest = deployment(NAMESPACE, name, 1)
    manifest["kind"] = "StatefulSet"
    manifest["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return manifest


@pytest.fixture(scope="module")
def workloads(cluster: Cluster, prometheus: Prometheus) -> None:
    """One of each kind that a stand-in or Kubernetes itself makes pods for, with its traffic; scraped."""
    cluster.plane.apply([stateful_set("sts"), *(kind.manifest(NAMESPACE, name, 1) for kind, name in NAMES.items())])
    for name in ("sts", *NAMES.values()):
        cluster.traffic.services[NAMESPACE, name] = Service(name, 4.0)
    first = {"sts-0", *(f"{name}-0-0" for name in NAMES.values())}
    series = f'vllm:num_requests_running{{namespace="{NAMESPACE}"}}'

    def scraped() -> set[str]:
        return {each["metric"]["pod"] for each in prometheus.query(series)}

    wait_until(lambda: first <= scraped(), PATIENCE, "the first replica of each is scraped")


@pytest.fixture(scope="module")
def begun(
    cluster: Cluster, operator: OperatorProcess, workloads: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Begun]:
    story = Story(cluster, operator, tmp_path_factory.mktemp("stories"))
    with side_by_side.begin(lambda: [story]) as begun:
        yield begun


@side_by_side
def test_kinds_of_other_projects_are_scaled_by_their_crds_alone(story: Story) -> None:
    """Their controllers are stand-ins: each replica is two pods, of which one serves."""
    cluster, operator = story.cluster, story.operator
    for kind, name in NAMES.items():
        pool(cluster, kind, name)
    most = {name: up(cluster, kind, name) for kind, name in NAMES.items()}
    for kind, name in NAMES.items():
        back(cluster, kind, name, most[name])
        # The stand-in removes pods up to half a second after the replicas.
        wait_until(partial(has_gpus, operator, name, 2.0), PATIENCE, "2 GPUs, of both pods")


LEADER_WORKER_SET = Kind(API_VERSION, "LeaderWorkerSet", "leaderworkersets", "", ())


@side_by_side
def test_a_leader_worker_set_is_scaled_group_by_group_with_its_own_controller(story: Story) -> None:
    cluster, operator = story.cluster, story.operator
    with controller(cluster.plane, NAMESPACE, story.directory):
        cluster.plane.apply(leader_worker_set(NAMESPACE, "lws", 2, app="lws"))
        cluster.traffic.services[NAMESPACE, "lws"] = Service("lws", 4.0)
        pool(cluster, LEADER_WORKER_SET, "lws")
        most = up_and_back(cluster, LEADER_WORKER_SET, "lws")
        assert gpus(operator, "lws") == 3.0, "of a leader with 1 and a worker with 2"
        wait_until(lambda: len(cluster.pods("lws")) < most, PATIENCE, "the group of the highest index goes")
        leaders = cluster.pods("lws")
        assert set(leaders) == {f"lws-{index}" for index in range(len(leaders))}
        cluster.pool("beneath", targets=[{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "lws", "max": 2}])
        cluster.wait_condition("beneath", "Ready", ("False", "OwnedByParent"))
        said = "LeaderWorkerSet 'lws' sets the replicas of StatefulSet lws. Name it in spec.targets[] instead."
        assert cluster.told("beneath", "Ready") == said


@side_by_side
def test_what_cannot_be_scaled_is_told_and_the_others_go_on(story: Story) -> None:
    cluster, operator = story.cluster, story.operator
    cluster.pool("unknown", targets=[{"apiVersion": "example.com/v1", "kind": "Fleet", "name": "x", "max": 2}])
    cluster.pool("unscalable", targets=[{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "max": 2}])
    cluster.pool("forbidden", targets=[{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "max": 2}])
    cluster.pool("absent", targets=[{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "max": 2}])
    manifest = stateful_set("child")
    owner = {
        "apiVersion": "apps.nvidia.com/v1alpha1",
        "kind": "NIMService",
        "name": "nim",
        "uid": "1",
        "controller": True,
    }
    manifest["metadata"]["ownerReferences"] = [owner]
    cluster.plane.apply(manifest)
    pool(cluster, STATEFUL_SET, "child")
    for name, reason in (
        ("unknown", "UnknownKind"),
        ("unscalable", "NoScaleSubresource"),
        ("forbidden", "ForbiddenGetScale"),
        ("absent", "TargetNotFound"),
        ("child", "OwnedByParent"),
    ):
        cluster.wait_condition(name, "Ready", ("False", reason))
    assert "NIMService 'nim' sets the replicas of StatefulSet child." in cluster.told("child", "Ready")
    assert operator.healthy() == 200


def test_commands_take_any_kind_as_kubectl_names_it(begun: Begun, cluster: Cluster, prometheus: Prometheus) -> None:
    wait(begun.values())  # a pod that has just come is not scraped yet

    def run(command: str, target: str) -> str:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "servingpool.cli.main", command, target, "-n", NAMESPACE),
                *(f"--kubeconfig={cluster.plane.kubeconfig}", f"--prometheus={prometheus.url}"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for target, said in (
        ("sts/sts", f"StatefulSet {NAMESPACE}/sts"),
        ("podcliquescalinggroup.grove.io/cliques", f"PodCliqueScalingGroup {NAMESPACE}/cliques"),
        ("rbgsa/adapter", f"RoleBasedGroupScalingAdapter {NAMESPACE}/adapter"),
    ):
        assert said in run("check", target)
    found = yaml.safe_load(run("suggest", "rbgsa/adapter"))["spec"]["targets"][0]
    assert (found["apiVersion"], found["kind"]) == (SCALING_ADAPTER.api_version, SCALING_ADAPTER.kind)
    assert found["gpusPerReplica"] == 2
