"""Work with deadlines on kind: none, a backlog that Prometheus tells, replicas that serve what a worker sends, none."""

from __future__ import annotations

import time

import pytest

from .cluster import Cluster, seconds_since
from .engines import Engine, engine_manifests
from .load import LoadGenerator
from .pools import serving_pool, status, wait_condition
from .results import Results
from .waiting import eventually

NAME = "nightly"
NAMESPACES = (NAME,)


def backlog(cluster: Cluster, requests: int) -> None:
    """The pool, where a broker says that so many requests wait."""
    batch = {"finishWithin": "10m", "backlog": {"query": f"vector({requests})"}}
    pool = serving_pool(NAME, NAME, batch=batch, targets=[{"name": NAME, "min": 0, "max": 3, "gpusPerReplica": 1}])
    del pool["spec"]["slo"]
    cluster.apply(pool)


@pytest.mark.timeout(900)
def test_a_backlog_wakes_a_batch_and_nothing_stays_once_it_is_done(
    cluster: Cluster, load: LoadGenerator, results: Results
) -> None:
    cluster.namespace(NAME)
    cluster.apply(engine_manifests(Engine(name=NAME, namespace=NAME, model=NAME, load_seconds=2)))
    backlog(cluster, 0)
    eventually(lambda: cluster.replicas(NAME, NAME) == 0, 240, "no work, no replica")
    began = time.monotonic()
    backlog(cluster, 400)
    eventually(lambda: cluster.replicas(NAME, NAME) > 0, 90, "the backlog wakes it")
    ordered = seconds_since(began)
    cluster.wait_serving(NAME, NAME)
    course = load.start(f"http://{NAME}.{NAME}:8000", NAME, "4x100")
    eventually(lambda: status(cluster, NAME, NAME)["batch"].get("finishesAt"), 180, "its finish is told")
    wait_condition(cluster, NAME, NAME, "SLOMet", ("True", "DeadlinesHold"))
    seen = load.end(course)
    backlog(cluster, 0)
    eventually(lambda: cluster.replicas(NAME, NAME) == 0, 240, "done, and no replica")
    results.add(scenario="a batch from zero to zero", first_order_seconds=ordered, requests=seen["ended"], lost=0)
    assert seen["lost"] == 0
