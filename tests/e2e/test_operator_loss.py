"""The operator dies in every way it can, and its fleets serve on."""

from __future__ import annotations

import time

import pytest

from . import release
from .cluster import Cluster, seconds_since
from .helm import Helm
from .images import Images
from .prometheus import PrometheusRelease
from .release import TWINS, OperatorRelease
from .results import Results
from .steady import NAME, Steady, unharmed
from .waiting import eventually

pytestmark = pytest.mark.disruptive

LEASE_SECONDS = 15.0
"""As the chart has it: a leader that gives nothing back is replaced after this."""


def acts_again(cluster: Cluster) -> float:
    """Seconds until the operator puts right what someone set below the pool's min."""
    cluster.client.patch(f"/apis/apps/v1/namespaces/{NAME}/deployments/{NAME}/scale", {"spec": {"replicas": 1}})
    started = time.monotonic()
    eventually(lambda: cluster.replicas(NAME, NAME) >= 2, 60, "the operator acts")
    acted = seconds_since(started)
    eventually(lambda: cluster.ready(NAME, NAME) >= 2, 120, "the steady fleet")
    return acted


def test_a_leader_that_crashes_is_replaced_when_its_lease_runs_out(
    cluster: Cluster, operator: OperatorRelease, steady: Steady, results: Results
) -> None:
    operator.wait_up()
    before, leader, fleet, moment = operator.holder(), operator.leader(), steady.replicas(), time.time()
    started = time.monotonic()
    operator.crash(leader)
    # The standby, or the crashed pod under a new name: whichever tries first after the Lease has run out.
    operator.wait_other_holder(before, LEASE_SECONDS + 30)
    taken = seconds_since(started)
    assert steady.replicas() == fleet
    operator.wait_up()
    acted = acts_again(cluster)
    figures = unharmed(steady.since(moment))
    results.add(
        scenario="operator pod killed (SIGKILL to the leader)",
        outcome="another process leads, and acts",
        take_over_s=taken,
        acts_s=acted,
        **figures,
    )
    # A try every 2 s, and this machine is busy.
    assert taken <= LEASE_SECONDS + 10


def test_a_leader_that_is_told_to_go_hands_over_at_once(
    cluster: Cluster, operator: OperatorRelease, steady: Steady, results: Results
) -> None:
    operator.wait_up()
    before, leader, moment = operator.holder(), operator.leader(), time.time()
    started = time.monotonic()
    operator.delete(leader)
    after = operator.wait_other_holder(before, 30)
    while not after:  # given back, not yet taken
        after = operator.wait_other_holder("", 30)
    taken = seconds_since(started)
    assert not after.startswith(leader), "the standby leads"
    operator.wait_up()
    acted = acts_again(cluster)
    figures = unharmed(steady.since(moment))
    results.add(
        scenario="leader deleted, a second replica stands by",
        outcome="the standby leads, and acts",
        take_over_s=taken,
        acts_s=acted,
        **figures,
    )
    assert taken < LEASE_SECONDS, "sooner than by waiting for the Lease"


def test_without_any_operator_fleets_stay_and_an_alert_fires(
    operator: OperatorRelease, prometheus: PrometheusRelease, steady: Steady, results: Results
) -> None:
    operator.wait_up()
    fleet, moment = steady.replicas(), time.time()
    started = time.monotonic()
    operator.scale(0)

    def alerted() -> bool:
        states = prometheus.states("ServingPoolNoLeader")
        return (states.get("chart"), states.get("shortened")) in {("pending", "firing"), ("firing", "firing")}

    eventually(alerted, 90, "ServingPoolNoLeader")
    alone = seconds_since(started)
    assert steady.replicas() == fleet
    assert steady.serves()
    operator.scale(2)
    started = time.monotonic()
    eventually(lambda: prometheus.value("sum(servingpool_leader)") == 1.0, 60, "a leader is scraped")
    eventually(lambda: not prometheus.states("ServingPoolNoLeader"), 90, "the alert is over")
    figures = unharmed(steady.since(moment))
    results.add(
        scenario="no operator at all",
        outcome="the fleet stays; ServingPoolNoLeader fires, and ends when one is back",
        seconds=alone,
        back_s=seconds_since(started),
        **figures,
    )


def test_two_that_lead_are_told(
    cluster: Cluster, helm: Helm, images: Images, prometheus: PrometheusRelease, results: Results
) -> None:
    """A release of its own, without election and with nothing to scale. The chart allows it one pod: a person scales it."""
    namespace = cluster.namespace(TWINS)
    repository, _, tag = images.operator.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag},
        "replicas": 1,
        "deploymentStrategy": {"type": "Recreate"},
        "leaderElection": {"enabled": False},
        "watchNamespaces": [namespace],
        "crds": {"enabled": False},
        "rbac": {"aggregate": False},
        "interval": "5s",
    }
    helm.install(TWINS, release.CHART, namespace, values)
    cluster.kubectl("scale", "deployment", "--all", "--replicas=2", f"--namespace={namespace}")
    try:
        states = {"chart": "pending", "shortened": "firing"}
        eventually(lambda: prometheus.states("ServingPoolTwoLeaders") == states, 90, "ServingPoolTwoLeaders")
    finally:
        helm("uninstall", TWINS, f"--namespace={namespace}", "--wait")
    results.add(scenario="two operators without election", outcome="ServingPoolTwoLeaders fires")
