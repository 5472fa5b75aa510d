"""Prefill and decode in one pool on a real API server: what is written, and what the status keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servingpool_lab import audit
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import PATIENCE, Cluster, OperatorProcess, Service, deployment, settings_on
from .stand_in_engine import Shape

PROMPT, OUTPUT = 2000, 500
PREFILL = Shape(PROMPT, output=1)
"""0.14 replica-seconds of a request."""
DECODE = Shape(PROMPT, OUTPUT, transferred=True)
"""0.04 replica-seconds."""
TARGETS = [{"name": "prefill", "role": "prefill", "max": 8}, {"name": "decode", "role": "decode", "max": 8}]
MOST_PREFILL = 1.5
"""Prefill replicas for each decode replica, at most."""
SETTLED = 5.0
"""Seconds: replicas that stood for so long, five ticks, were what the operator wanted."""


@pytest.fixture
def operator(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    settings = settings_on(prometheus.url, namespaces=[cluster.namespace])
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        yield operator


def serve(cluster: Cluster, rate: float, before: dict[str, int]) -> None:
    """Each Deployment with so many replicas; the model `apart` on two of them takes `rate` requests/s."""
    for name, replicas in before.items():
        cluster.plane.apply(deployment(cluster.namespace, name, replicas))
    for name, shape in (("prefill", PREFILL), ("decode", DECODE)):
        cluster.traffic.services[cluster.namespace, name] = Service("apart", rate, shape=shape)


def load(cluster: Cluster, rate: float) -> None:
    for name in ("prefill", "decode"):
        cluster.load(name, rate)


def standing(cluster: Cluster, before: dict[str, int]) -> list[tuple[float, dict[str, int]]]:
    """Replicas of each Deployment from each Unix time on, as the API server wrote down what set them."""
    replicas, found = dict(before), []
    for one in audit.writes(cluster.plane, cluster.namespace):
        if one.resource == "deployments/scale" and one.replicas is not None:
            replicas[one.name] = one.replicas
            found.append((one.seconds, dict(replicas)))
    return found


def wait(cluster: Cluster, what: Callable[[], bool], said: str) -> None:
    try:
        wait_until(what, PATIENCE, said)
    except TimeoutError as late:
        status = {key: value for key, value in cluster.status("apart").items() if key != "profile"}
        raise AssertionError(f"{late}; {standing(cluster, {})}; {json.dumps(status, indent=1)}") from None


def of_roles(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {one["role"]: one for one in cluster.status("apart").get("roles", ())}


def settled(cluster: Cluster) -> bool:
    """Both roles have the replicas that they shall have, and no request waits."""
    roles = of_roles(cluster).values()
    served = [one["readyReplicas"] == one["desiredReplicas"] == one["replicas"] for one in roles]
    pods = [pod for name in ("prefill", "decode") for pod in cluster.pods(name)]
    engines = [cluster.traffic.engines.get((cluster.namespace, pod)) for pod in pods]
    return len(served) == 2 and all(served) and all(one is not None and one.waiting < 1.0 for one in engines)


def learned(cluster: Cluster) -> dict[str, float]:
    """Seconds that each role has learned from."""
    return {role: one["learned"] for role, one in cluster.status("apart")["profile"]["roles"].items()}


def test_each_role_reaches_its_own_size_and_a_restart_forgets_neither(
    cluster: Cluster, operator: OperatorProcess
) -> None:
    before = {"prefill": 1, "decode": 1}
    serve(cluster, 10.0, before)
    cluster.pool("apart", targets=TARGETS, prefillPerDecode={"max": MOST_PREFILL})
    cluster.wait_condition("apart", "MetricsAvailable", ("True", "ValidMetrics"))

    # A request is 0.14 replica-seconds of prefill and 0.04 of decode: one prefill engine cannot serve ten of them.
    wait(cluster, lambda: cluster.replicas("prefill") > 1 and settled(cluster), "each has what it needs")
    first = cluster.replicas("prefill")
    cluster.wait_condition("apart", "Calibrating", ("False", "Learned"))

    # More requests: prefill needs more, and decode follows by the ratio.
    load(cluster, 28.0)
    wait(cluster, lambda: cluster.replicas("prefill") > first, "more for prefill")
    wait(cluster, lambda: "for prefill" in json.dumps(of_roles(cluster)["decode"]["lastDecision"]), "decode follows")
    # While most requests of the last minutes came late, no load is known at which the SLO holds.
    wait(
        cluster,
        lambda: settled(cluster) and all("safeLoad" in one["lastDecision"] for one in of_roles(cluster).values()),
        "it is enough",
    )

    # Stopped, it writes what both have learned. The API server drops what its schema does not have.
    assert operator.process.stop() == 0, operator.process.log_tail()
    shapes = {"prefill": PREFILL, "decode": DECODE}
    assert of_roles(cluster).keys() == shapes.keys()
    for role, one in of_roles(cluster).items():
        assert one["replicas"] == one["desiredReplicas"] == cluster.replicas(role)
        work = one["lastDecision"]["figures"]["workPerRequest"]
        assert work == pytest.approx(shapes[role].work, rel=0.3), "by its own part"

    # The next one goes on from there: of pools with several targets nothing else is told, Prometheus's history neither.
    # On a busy machine its first ticks may see no new scrape, and teach nothing.
    kept = learned(cluster)
    operator.start()
    operator.wait_ticks(5)
    assert operator.process.stop() == 0, operator.process.log_tail()
    assert cluster.condition("apart", "Calibrating") == ("False", "Learned")
    assert all(again >= kept[role] > 0.0 for role, again in learned(cluster).items()), (kept, learned(cluster))

    stood = standing(cluster, before)
    for (at, replicas), (until, _) in zip(stood, [*stood[1:], (math.inf, {})], strict=True):
        if until - at >= SETTLED:
            assert replicas["prefill"] <= MOST_PREFILL * replicas["decode"], stood
    assert "Traceback" not in operator.log()
