"""The API server hangs for longer than a Lease lasts."""

from __future__ import annotations

import time

import pytest

from .cluster import Cluster, FrozenApiServer, seconds_since
from .release import OperatorRelease
from .results import Results
from .steady import Steady, unharmed
from .test_operator_loss import acts_again
from .waiting import eventually

pytestmark = pytest.mark.disruptive

FROZEN = 35.0
"""Seconds; with 50 the node would count as lost, and with 80 the kubelet would restart the API server."""
PATIENCE = 3.0
"""Seconds that a request waits before it counts as not answered."""


def test_traffic_does_not_notice_and_the_operator_goes_on(
    cluster: Cluster, operator: OperatorRelease, steady: Steady, results: Results
) -> None:
    operator.wait_up()
    fleet, restarts, moment = steady.replicas(), operator.restarts(), time.time()
    with FrozenApiServer(cluster):
        until = time.monotonic() + FROZEN
        for _ in range(2):  # at its beginning and at its end
            with pytest.raises(OSError, match="timed out"):
                cluster.client.request("GET", "/version", timeout_seconds=PATIENCE)
            time.sleep(max(0.0, until - PATIENCE - time.monotonic()))
    started = time.monotonic()
    held = eventually(operator.holder, 60, "the Lease is held")
    first = eventually(lambda: cluster.replicas("steady", "steady"), 60, "the API server answers")
    recovered = seconds_since(started)
    assert first == fleet
    acted = acts_again(cluster)
    operator.wait_up()
    figures = unharmed(steady.since(moment))
    results.add(
        scenario=f"API server frozen for {FROZEN:g} s",
        outcome=f"fleet untouched; {held.split('-')[-1]} leads and acts",
        operator_restarts=operator.restarts() - restarts,
        acts_again_s=acted,
        recovered_s=recovered,
        **figures,
    )
