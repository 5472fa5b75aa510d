"""A pool that misses its SLO is brought into each state, and condition, `explain` and dashboard tell that state.

Real API server, real Prometheus, emulated engines. `SERVINGPOOL_UPDATE_DOCS=1` writes the record.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from servingpool.adapters.cluster import pools
from servingpool.catalogue.conditions import Reason
from servingpool.cli.main import app
from servingpool_dashboard.app import application
from servingpool_dashboard.board import Board
from servingpool_dashboard.guard import LOCAL
from servingpool_dashboard.record import Courses
from servingpool_lab import kwok
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import Cluster, OperatorProcess, Service, cluster_in, deployment, serving_pool, settings_on

RECORD = Path(__file__).parents[2] / "docs/records/missed-slo.md"
UPDATE = "SERVINGPOOL_UPDATE_DOCS"
NAMESPACE = "missed"
BUDGET = "/apis/servingpool.dev/v1alpha1/gpubudgets/missed"
PATIENCE = 120.0
pytestmark = pytest.mark.timeout(600, func_only=True)


@dataclass(frozen=True)
class State:
    """One way to miss the SLO. The pool that goes through several comes first: meanwhile the others settle."""

    reason: Reason
    pool: str
    what: str
    """What was done."""
    template: str
    """What the message has after the figures of the attainment."""
    names: str
    """What the message must name."""
    act: Callable[[Cluster], None] = lambda _: None
    """What brings it about. It is done at each look, for pods come one by one."""


def fill(cluster: Cluster) -> None:
    """Once the engine is known: its speed is learned at the usual load."""
    if cluster.condition("chat", "Calibrating") == ("False", "Learned"):
        cluster.load("chat", 22.0)


def raise_max(cluster: Cluster) -> None:
    cluster.plane.client.patch(cluster.path("chat"), {"spec": {"targets": [{"name": "chat", "min": 1, "max": 8}]}})


def finish_starts(cluster: Cluster) -> None:
    """The new replicas come up. The other pool's turn is next, so its traffic rises meanwhile."""
    cluster.load("shared", 22.0)
    loaded(cluster)


def loaded(cluster: Cluster) -> None:
    """Pods that are there become Ready; until then a state lasts as long as it is looked at."""
    for name, pod in cluster.pods("chat").items():
        if pod["metadata"]["annotations"][kwok.NEVER_READY_ANNOTATION] == "true":
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
            cluster.plane.client.patch(path, {"metadata": {"annotations": {kwok.NEVER_READY_ANNOTATION: "false"}}})


STATES = (
    State(
        Reason.MAX_TOO_LOW,
        "chat",
        "22 requests/s instead of 4 for two replicas; `max` is 2",
        Reason.MAX_TOO_LOW.template,
        "max allows 2. Raise max",
        act=fill,
    ),
    State(
        Reason.REPLICAS_STARTING,
        "chat",
        "Then `max` is raised to 8",
        Reason.REPLICAS_STARTING.template,
        "replicas are starting",
        act=raise_max,
    ),
    State(
        Reason.RECOVERING,
        "chat",
        "Then the new replicas are ready, and a minute passes",
        Reason.RECOVERING.template,
        "the misses are from before",
        act=finish_starts,
    ),
    State(
        Reason.OBJECTIVE_UNATTAINABLE,
        "strict",
        "A bound of 10 ms per output token; an idle engine takes 16 ms",
        Reason.OBJECTIVE_UNATTAINABLE.template,
        "even an idle engine takes ",
    ),
    State(
        Reason.SCALE_UP_HELD_BACK,
        "shared",
        "22 requests/s instead of 2 for one replica, and a GPUBudget of one GPU",
        Reason.SCALE_UP_HELD_BACK.template,
        "GPUBudget holds the fleet back: GPUBudget missed allows 1: 1 of 1 GPUs are in use",
    ),
)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    with cluster_in(control_plane, pod_metrics, NAMESPACE) as cluster:
        yield cluster
        control_plane.client.delete(BUDGET)


@pytest.fixture(scope="module", autouse=True)
def _operator(cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    cluster.serve("strict", rate=2.0)
    cluster.pool("strict", slo={"timePerOutputToken": "10ms"})
    labels = {"budget": "missed"}
    budget = {"gpus": 1, "poolSelector": {"matchLabels": labels}}
    manifest = {"apiVersion": "servingpool.dev/v1alpha1", "kind": "GPUBudget", "metadata": {"name": "missed"}}
    cluster.plane.apply({**manifest, "spec": budget})
    cluster.serve("shared", rate=2.0)
    targets = [{"name": "shared", "min": 1, "max": 8, "gpusPerReplica": 1}]
    shared = serving_pool(NAMESPACE, "shared", targets=targets)
    shared["metadata"]["labels"] = labels
    cluster.plane.apply(shared)
    chat = deployment(NAMESPACE, "chat", 2)
    chat["spec"]["template"]["metadata"]["annotations"][kwok.NEVER_READY_ANNOTATION] = "true"
    cluster.plane.apply(chat)
    wait_until(lambda: len(cluster.pods("chat")) == 2, PATIENCE, "both pods")
    loaded(cluster)
    cluster.traffic.services[NAMESPACE, "chat"] = Service("chat", 4.0)
    cluster.pool(
        "chat",
        targets=[{"name": "chat", "min": 1, "max": 2}],
        behavior={"calibration": "5s", "coldStart": "2s", "scaleDownWindow": "5m"},
    )
    # Of all namespaces: an operator of some does not read GPUBudgets.
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings_on(prometheus.url)).running():
        yield


@pytest.fixture(scope="module")
def dashboard(cluster: Cluster) -> Iterator[TestClient]:
    """Its pages, from the API server alone."""
    board = Board(lambda: pools.Pools.connect(str(cluster.plane.kubeconfig), None), NAMESPACE)
    board.start()

    yield TestClient(application(board, Courses(None), LOCAL), base_url="http://127.0.0.1:8765")
    board.stop()


MISSED = (
    "{attained}% of the last hour's requests met the SLO, of the last 5 minutes {recent}, of the last minute {minute}; "
    "the objective is {objective}%."
)


def pattern(template: str) -> str:
    """What a message of this template looks like."""
    return "".join(
        re.escape(text) + ("" if field is None else ".+") for text, field, _, _ in Formatter().parse(template)
    )


def message(cluster: Cluster, state: State) -> str:
    """The message of SLOMet once it is False for this reason, and names what it must."""
    found: list[str] = []

    def so() -> bool:
        state.act(cluster)
        conditions = cluster.status(state.pool).get("conditions", ())
        slo = next((one for one in conditions if one["type"] == "SLOMet"), None)
        found[:] = [] if slo is None else [slo["reason"], slo["message"]]
        return found[:1] == [state.reason] and state.names in found[1]

    try:
        wait_until(so, PATIENCE, state.reason)
    except TimeoutError as late:
        raise AssertionError(f"{state.pool}: {late}; it is {found}, {cluster.status(state.pool)}") from None
    return found[1]


def test_every_state_is_told_by_condition_explain_and_dashboard(cluster: Cluster, dashboard: TestClient) -> None:
    said: dict[Reason, str] = {}
    for state in STATES:
        told = said[state.reason] = message(cluster, state)
        assert re.match(pattern(f"{MISSED} {state.template}"), told), told

        command = ["explain", f"{NAMESPACE}/{state.pool}", f"--kubeconfig={cluster.plane.kubeconfig}"]
        shown = CliRunner().invoke(app, command, env={"COLUMNS": "1000"})
        assert f"{state.reason}: " in shown.stdout, shown.output
        assert f"What to do: {state.reason.action}" in shown.stdout

        shows(dashboard, f"/pools/{NAMESPACE}/{state.pool}", f"{state.reason.action}</p>")
    if os.environ.get(UPDATE):
        RECORD.write_text(record(said))
    rows = [re.escape(row(state, "SAID")).replace("SAID", f".+{pattern(state.template)}") for state in STATES]
    assert re.search("\n".join(rows), RECORD.read_text()), f"run this test with {UPDATE}=1"


def shows(dashboard: TestClient, page: str, what: str) -> None:
    wait_until(lambda: what in html.unescape(dashboard.get(page).text), PATIENCE, f"{page} shows {what}")


def row(state: State, said: str) -> str:
    return f"| {state.what} | `{state.reason}` | {said} | {state.reason.action} |"


def record(said: dict[Reason, str]) -> str:
    lines = [
        "# What a missed SLO is told",
        "",
        "Recorded from the whole operator on a real kube-apiserver with a real Prometheus and emulated engines. Each state is the",
        "reason of the condition `SLOMet`, which is False. `servingpool explain` and the dashboard show the same sentence with what",
        "to do; [Conditions](../reference/conditions.md#slomet) has all states.",
        "",
        f"To record again: `{UPDATE}=1 .venv/bin/python -m pytest tests/integration/test_missed_slo.py`.",
        "",
        "| what happened | reason | `SLOMet` says | what to do |",
        "|---|---|---|---|",
        *(row(state, said[state.reason].replace("|", "\\|")) for state in STATES),
    ]
    return "\n".join(lines) + "\n"
