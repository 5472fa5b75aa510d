"""Idle, zero, the first request, serving: the whole operator behind a real vllm-router."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import PATIENCE, Cluster, OperatorProcess, Traffic, deployment, install, serving_pool, settings_on
from .real_router import ENGINE, HOLDS, ROUTER, Answer, Served, router_program

NAMESPACE = "zero"
IDLE = 60.0
"""Seconds of spec.behavior.idleAfter, the least that is allowed."""

pytestmark = pytest.mark.timeout(420, func_only=True)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    install(control_plane, NAMESPACE)
    yield Cluster(control_plane, Traffic(control_plane, pod_metrics), NAMESPACE)
    control_plane.client.delete(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture(scope="module")
def served(
    cluster: Cluster, pod_metrics: dict[tuple[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    program = router_program()
    for name in (ENGINE, ROUTER):
        cluster.plane.apply(deployment(NAMESPACE, name, 1))
    wait_until(lambda: len(cluster.pods(ROUTER)) == 1, PATIENCE, "the router's pod")
    with Served(cluster, pod_metrics, program, tmp_path_factory.mktemp("router"), HOLDS) as served:
        yield served


@pytest.fixture(scope="module", autouse=True)
def operator(
    cluster: Cluster, served: Served, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    settings = settings_on(prometheus.url, namespaces=[cluster.namespace])
    cluster.plane.apply(
        serving_pool(
            NAMESPACE,
            ENGINE,
            targets=[{"name": ENGINE, "min": 0, "max": 1}],
            metrics={"gateway": {"name": "vllm-router", "workload": ROUTER, "holdsFor": "2m"}},
            behavior={"calibration": "5s", "coldStart": "2s", "scaleDownWindow": "5s", "idleAfter": "1m"},
        )
    )
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        yield operator


def test_it_goes_to_zero_after_idle_after_and_the_router_still_tells_of_requests(
    cluster: Cluster, served: Served, operator: OperatorProcess
) -> None:
    for _ in range(20):
        assert served.ask().status == 200
    last = time.monotonic()
    wait_until(lambda: cluster.replicas(ENGINE) == 0, IDLE + 60, "0 replicas")
    assert time.monotonic() - last >= IDLE - 5.0
    cluster.wait_condition(ENGINE, "MetricsAvailable", ("True", "ScaledToZero"))
    assert "idle for" in cluster.status(ENGINE)["history"][0]["why"]
    assert cluster.status(ENGINE)["fleet"] == "0/0/1"
    wait_until(lambda: not served.engine.running, PATIENCE, "the engine is gone")
    operator.wait_ticks(5)  # at zero, in which nothing must happen
    assert cluster.replicas(ENGINE) == 0


def test_ten_first_requests_wait_in_the_router_and_are_served(
    cluster: Cluster,
    served: Served,
    pod_metrics: dict[tuple[str, str], str],
    record_property: Callable[[str, object], None],
) -> None:
    answers: list[Answer] = []
    clients = [threading.Thread(target=lambda: answers.append(served.ask())) for _ in range(10)]
    began = time.monotonic()
    for client in clients:
        client.start()
    try:
        wait_until(lambda: cluster.replicas(ENGINE) == 1, PATIENCE, "a replica")
    except TimeoutError as late:
        page = [
            line for line in pod_metrics[NAMESPACE, next(iter(cluster.pods(ROUTER)))].splitlines() if "_total" in line
        ]
        raise AssertionError(f"{late}: {json.dumps(cluster.status(ENGINE), indent=1)}; {page}") from None
    ordered = time.monotonic() - began
    for client in clients:
        client.join()
    record_property("first_request_to_order_seconds", round(ordered, 1))
    record_property("first_ten_clients", sorted(f"{one.status} after {one.seconds:.1f} s" for one in answers))
    assert [one.status for one in answers] == [200] * 10
    assert "at the gateway at 0 replicas" in cluster.status(ENGINE)["history"][0]["why"]
    cluster.wait_condition(ENGINE, "MetricsAvailable", ("True", "ValidMetrics"))
    # Two minutes are enough for a start of a few seconds.
    cluster.wait_condition(ENGINE, "ZeroReady", ("True", "HoldsFirstRequest"))
    assert "vllm-router/router tries a request again for 2m" in cluster.told(ENGINE, "ZeroReady")
