"""Two operators on a real API server: one writes, and the other takes over, whatever ends the first."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import ELECTION, PATIENCE, Cluster, OperatorProcess, cluster_in, settings_on


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
    settings = settings_on(prometheus.url, namespaces=[cluster.namespace], leaderElection=ELECTION)
    directory = tmp_path_factory.mktemp("pair")
    both = tuple(OperatorProcess(cluster.plane, directory / name, settings) for name in ("a", "b"))
    for operator in both:
        operator.start()
    yield both
    for operator in both:
        operator.process.stop()


def leads(operator: OperatorProcess) -> bool:
    return operator.process.running and operator.figure("servingpool_leader") == 1


def writes(operator: OperatorProcess) -> float:
    return operator.figure("servingpool_api_writes_total") or 0.0


def test_one_of_two_writes_and_the_other_takes_over_though_the_first_wakes_again(
    cluster: Cluster, pair: tuple[OperatorProcess, ...]
) -> None:
    """A node that is suspended, or a cgroup that is frozen: the process wakes and believes that no time has passed.

    How a leader ends otherwise, tests/unit/adapters/cluster/test_lease.py has on virtual time and tests/e2e on kind.
    """
    wait_until(lambda: sum(map(leads, pair)) == 1, PATIENCE, "one leads")
    leader, heir = sorted(pair, key=leads, reverse=True)
    cluster.wait_condition("chat", "Calibrating", ("False", "Learned"))
    cluster.load("chat", 20.0)
    wait_until(lambda: cluster.replicas("chat") >= 2, PATIENCE, "chat is scaled up")
    cluster.wait_event("chat", "SuccessfulRescale")
    assert writes(leader) > 0
    assert writes(heir) == 0
    assert heir.figure("servingpool_pools") == 1, "its watches are warm"
    assert leader.healthy() == heir.healthy() == 200

    pid = leader.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: leads(heir), PATIENCE, "the other leads")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not leader.process.running, PATIENCE, "it leaves")
    assert leader.process.exit_code == 1, leader.process.log_tail()
    assert "The lease was lost" in leader.log()
    before = cluster.replicas("chat")
    cluster.load("chat", 45.0)
    wait_until(lambda: cluster.replicas("chat") > before, PATIENCE, "the heir scales")
    assert writes(heir) > 0
