"""Prometheus is deleted, with its data, and comes back empty."""

from __future__ import annotations

import time

import pytest

from .cluster import Cluster, seconds_since
from .engines import Engine, engine_manifests
from .load import LoadGenerator
from .pools import condition, message, serving_pool, wait_condition
from .prometheus import PrometheusRelease
from .release import OperatorRelease
from .results import Results
from .steady import Steady, unharmed
from .waiting import eventually, throughout

pytestmark = pytest.mark.disruptive


NAME = "blind"
"""A pool that one replica is plenty for, however slow the machine is."""
NAMESPACES = (NAME,)
TOO_MANY = 3


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    engine = Engine(name=NAME, namespace=cluster.namespace(NAME), model=NAME, load_seconds=2)
    cluster.apply(engine_manifests(engine))
    cluster.wait_serving(NAME, NAME)
    load.start(engine.url, NAME, "0.2x3600")
    cluster.apply(serving_pool(NAME, NAME))


def test_a_fleet_is_not_shrunk_blindly(
    cluster: Cluster, operator: OperatorRelease, prometheus: PrometheusRelease, steady: Steady, results: Results
) -> None:
    """It is made larger than its traffic asks for, so that the operator would shrink it if it dared."""
    operator.wait_up()
    moment = time.time()
    wait_condition(cluster, NAME, NAME, "MetricsAvailable", ("True", "ValidMetrics"))
    prometheus.uninstall()
    cluster.client.patch(f"/apis/apps/v1/namespaces/{NAME}/deployments/{NAME}/scale", {"spec": {"replicas": TOO_MANY}})
    started = time.monotonic()
    wait_condition(cluster, NAME, NAME, "MetricsAvailable", ("False", "FailedGetMetrics"))
    noticed, said = seconds_since(started), message(cluster, NAME, NAME, "MetricsAvailable")
    assert "http" not in said, "no address is told to whoever may read a pool"
    throughout(lambda: cluster.replicas(NAME, NAME) == TOO_MANY, 45, "the fleet stays")
    assert condition(cluster, NAME, NAME, "Ready")[0] == "True"
    assert cluster.events(NAME, NAME, "FailedGetMetrics")
    prometheus.install()
    started = time.monotonic()
    wait_condition(cluster, NAME, NAME, "MetricsAvailable", ("True", "ValidMetrics"))
    recovered = seconds_since(started)
    # What it did not do without metrics it does with them: else the wait above would have shown nothing.
    eventually(lambda: cluster.replicas(NAME, NAME) < TOO_MANY, 240, "the fleet shrinks on fresh metrics")
    figures = unharmed(steady.since(moment))
    results.add(
        scenario="Prometheus deleted and made anew",
        outcome=f"no scale-down meanwhile; FailedGetMetrics: {said}",
        noticed_s=noticed,
        recovered_s=recovered,
        shrunk_after_s=seconds_since(started),
        **figures,
    )
