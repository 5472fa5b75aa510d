"""Two operators on a real API server: one writes, and the other takes over, whatever ends the first."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import ELECTION, NAMESPACE, PATIENCE, Cluster, OperatorProcess, cluster_in, settings_on

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/servingpool-operator"
DURATION = float(ELECTION["duration"].removesuffix("s"))

pytestmark = pytest.mark.timeout(240, func_only=True)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    with cluster_in(control_plane, pod_metrics, "leading") as cluster:
        cluster.serve("chat", rate=4.0)
        cluster.pool("chat")
        yield cluster


@pytest.fixture(scope="module")
def pair(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OperatorProcess, ...]]:
    settings = settings_on(
        prometheus.url,
        namespaces=[cluster.namespace],
        leaderElection=ELECTION,
    )
    directory = tmp_path_factory.mktemp("pair")
    both = tuple(OperatorProcess(cluster.plane, directory / name, settings) for name in ("a", "b"))
    for operator in both:
        operator.start()
    yield both
    for operator in both:
        operator.process.stop()


@pytest.fixture
def leader_and_heir(pair: tuple[OperatorProcess, ...]) -> tuple[OperatorProcess, OperatorProcess]:
    """Both run again, whoever was ended by the test before."""
    for operator in pair:
        if not operator.process.running:
            operator.start()
    wait_until(lambda: sum(map(leads, pair)) == 1, PATIENCE, "one leads")
    leader, heir = sorted(pair, key=leads, reverse=True)
    return leader, heir


def leads(operator: OperatorProcess) -> bool:
    return operator.process.running and operator.figure("servingpool_leader") == 1


def writes(operator: OperatorProcess) -> float:
    return operator.figure("servingpool_api_writes_total") or 0.0


def lease(cluster: Cluster) -> dict[str, Any]:
    spec: dict[str, Any] = cluster.plane.client.get(LEASE)["spec"]
    return spec


def holder(cluster: Cluster) -> str:
    return str(lease(cluster)["holderIdentity"])


def test_one_of_two_writes_and_both_are_well(
    cluster: Cluster, leader_and_heir: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, heir = leader_and_heir
    cluster.wait_condition("chat", "Calibrating", ("False", "Learned"))
    cluster.load("chat", 20.0)
    wait_until(lambda: cluster.replicas("chat") >= 2, PATIENCE, "chat is scaled up")
    wait_until(lambda: bool(cluster.events("chat", "SuccessfulRescale")), PATIENCE, "an event")
    assert writes(leader) > 0
    assert writes(heir) == 0
    assert heir.figure("servingpool_pools") == 1, "its watches are warm"
    assert leader.healthy() == heir.healthy() == 200


def test_the_other_takes_over_after_a_crash(
    cluster: Cluster, leader_and_heir: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, heir = leader_and_heir
    before, identity = cluster.replicas("chat"), holder(cluster)
    leader.process.kill()
    renewed = lease(cluster)["renewTime"]
    wait_until(lambda: leads(heir), PATIENCE, "the other leads")
    waited = datetime.fromisoformat(lease(cluster)["acquireTime"]) - datetime.fromisoformat(renewed)
    assert waited.total_seconds() >= DURATION, "the Lease had not run out: two could have written"
    assert holder(cluster) != identity
    cluster.load("chat", 45.0)
    wait_until(lambda: cluster.replicas("chat") > before, PATIENCE, "the heir scales")
    assert writes(heir) > 0


def test_a_leader_that_stops_hands_over_at_once(
    cluster: Cluster, leader_and_heir: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, heir = leader_and_heir
    identity = holder(cluster)
    assert leader.process.stop() == 0, leader.process.log_tail()
    # That a Lease without a holder is taken at once, tests/unit/adapters/cluster/test_lease.py has on virtual time.
    assert holder(cluster) != identity, "it is given back, not left to run out"
    wait_until(lambda: leads(heir), PATIENCE, "the other leads")


def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes(
    cluster: Cluster, leader_and_heir: tuple[OperatorProcess, OperatorProcess]
) -> None:
    # A node that is suspended, or a cgroup that is frozen: the process wakes believing that no time has passed.
    leader, heir = leader_and_heir
    pid = leader.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: leads(heir), PATIENCE, "the other leads")
        cluster.load("chat", 20.0)
        events = len(cluster.events("chat", "SuccessfulRescale"))
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not leader.process.running, PATIENCE, "it leaves")
    assert leader.process.exit_code == 1, leader.process.log_tail()
    assert "The lease was lost" in leader.log()
    assert leads(heir)
    assert len(cluster.events("chat", "SuccessfulRescale")) - events <= 1
