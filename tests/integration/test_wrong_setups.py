"""Eleven wrong set-ups before the whole operator and `servingpool check`: each has its own reason, and none looks healthy.

Real API server, real Prometheus. The record is held by the test: `SERVINGPOOL_UPDATE_DOCS=1` writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servingpool.catalogue.conditions import Reason
from servingpool.cli.main import app
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import open_local, wait_until

from .operators import (
    ANSWERS,
    PATIENCE,
    Cluster,
    OperatorProcess,
    Traffic,
    deployment,
    install,
    prometheus,
    serving_pool,
    settings_on,
)
from .pod_pages import UNAUTHORIZED
from .stand_in_engine import Engine

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs/records/wrong-setups.md"
UPDATE = "SERVINGPOOL_UPDATE_DOCS"
NAMESPACE = "wrong-setups"
ENGINES = ROOT / "tests/fixtures/engines"
VLLM = (ROOT / "tests/fixtures/vllm-0.32.0-metrics.txt").read_text()
SGLANG = (ENGINES / "sglang-0.5.23.txt").read_text()
ROUTER = (ENGINES / "gateway-production-stack-0.1.12.txt").read_text()
MODEL = re.search(r'model_name="([^"]+)"', VLLM)[1]  # type: ignore[index]


@dataclass(frozen=True)
class SetUp:
    """One way to get it wrong."""

    name: str
    what: str
    reason: Reason
    page: str = VLLM
    pool: dict[str, Any] = field(default_factory=dict)
    scraped: bool = True
    twice: bool = False
    """At two addresses."""

    @property
    def healthy(self) -> bool:
        return self.reason is Reason.DOUBLED_SERIES


def without(series: str) -> str:
    """After some requests."""
    engine = Engine()
    engine.serve(4.0, 60.0)
    return "".join(line for line in engine.page(MODEL).splitlines(keepends=True) if series not in line)


SET_UPS = [
    SetUp("unscraped", "No PodMonitor selects the pods", Reason.NOT_SCRAPED, scraped=False),
    SetUp("wrong-model", "`spec.model` is not the served name", Reason.NO_SERIES_FOR_MODEL, pool={"model": "llama"}),
    SetUp("wrong-engine", "The pods run SGLang, `spec.engine` is vllm", Reason.WRONG_ENGINE, SGLANG),
    SetUp("html", "A login page instead of metrics", Reason.SCRAPE_FAILED, "<html><body>Sign in</body></html>"),
    SetUp("no-credentials", "The metrics need credentials (401)", Reason.SCRAPE_FAILED, UNAUTHORIZED),
    SetUp(
        "old-version",
        "An engine older than its profile",
        Reason.MISSING_FIGURES,
        without("vllm:inter_token_latency_seconds"),
    ),
    SetUp("no-buckets", "The monitor drops the buckets", Reason.MISSING_FIGURES, without("_bucket{")),
    SetUp("no-stats", "vLLM with `--disable-log-stats`", Reason.NO_ENGINE_SERIES, "process_open_fds 12\n"),
    SetUp("two-engines", "Two engines in a pod, one `pod` label", Reason.DOUBLED_SERIES, twice=True),
    SetUp(
        "no-model-label",
        "Relabelling drops `model_name`",
        Reason.WRONG_LABELS,
        VLLM.replace(f'model_name="{MODEL}"', 'kept="yes"'),
    ),
    SetUp("router", "The pool's target is a router, not the engines", Reason.ROUTER_SERIES, ROUTER),
]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    install(control_plane, NAMESPACE)
    found = Cluster(control_plane, Traffic(control_plane, pod_metrics), NAMESPACE)
    for each in SET_UPS:
        control_plane.apply(deployment(NAMESPACE, each.name, 1))
        spec = {"model": MODEL, "targets": [{"name": each.name, "min": 1, "max": 4}], **each.pool}
        control_plane.apply(serving_pool(NAMESPACE, each.name, **spec))
    wait_until(lambda: all(ready(found, each.name) for each in SET_UPS), PATIENCE, "all pods serve")
    yield found
    with_pods = [(NAMESPACE, pod) for each in SET_UPS for pod in found.pods(each.name)]
    control_plane.client.delete(f"/api/v1/namespaces/{NAMESPACE}")
    for key in with_pods:
        pod_metrics.pop(key, None)


def ready(cluster: Cluster, name: str) -> bool:
    return bool(cluster.ready(name))


@pytest.fixture(scope="module")
def url(
    cluster: Cluster,
    pod_metrics: dict[tuple[str, str], str],
    metrics_target: str,
    binaries: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """One Prometheus, which has scraped each of them."""
    jobs = []
    for each in SET_UPS:
        (pod,) = cluster.pods(each.name)
        pod_metrics[NAMESPACE, pod] = each.page
        labels = {"namespace": NAMESPACE, "pod": pod}
        addresses = ["10.0.0.1:8000", "10.0.0.1:8001"] if each.twice else ["10.0.0.1:8000"]
        jobs += [
            {
                "job_name": f"{each.name}-{number}",
                "metrics_path": f"/pods/{NAMESPACE}/{pod}/metrics",
                "static_configs": [{"targets": [metrics_target], "labels": {**labels, "instance": address}}],
            }
            for number, address in enumerate(addresses)
            if each.scraped
        ]
    configuration = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    directory = tmp_path_factory.mktemp("wrong-setups")
    with prometheus(binaries["prometheus"], configuration, directory) as found:
        wait_until(lambda: len(series(found)) == len(jobs), PATIENCE, "each target was scraped")
        yield found


def series(url: str) -> list[str]:
    with open_local(f"{url}/api/v1/query?query=up", ANSWERS) as response:
        return re.findall('"job":"([^"]+)"', response.read().decode())


@pytest.fixture(scope="module", autouse=True)
def _operator(cluster: Cluster, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    settings = settings_on(url, namespaces=[NAMESPACE])
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running():
        yield


@pytest.mark.parametrize("wrong", SET_UPS, ids=lambda wrong: wrong.name)
def test_the_condition_says_what_is_wrong_and_nothing_is_scaled(cluster: Cluster, wrong: SetUp) -> None:
    cluster.wait_condition(wrong.name, "MetricsAvailable", ("True" if wrong.healthy else "False", wrong.reason))
    assert wrong.healthy or "Replicas stay as they are." in cluster.told(wrong.name, "MetricsAvailable")
    assert cluster.changes(wrong.name) == 0


@pytest.fixture(scope="module")
def checked(cluster: Cluster, url: str) -> dict[str, tuple[int, list[str]]]:
    """What `servingpool check deployment/NAME --prometheus URL` says of each, without the table of figures."""

    def check(name: str) -> tuple[int, list[str]]:
        command = ["check", f"deployment/{name}", "-n", NAMESPACE, "--prometheus", url]
        done = CliRunner().invoke(app, [*command, "--kubeconfig", str(cluster.plane.kubeconfig)])
        return done.exit_code, [said(cluster, name, line) for line in done.output.splitlines() if told(line)]

    return {each.name: check(each.name) for each in SET_UPS}


def told(line: str) -> bool:
    """Whether a line is a sentence, and no row of the table."""
    return line.endswith(".")


def said(cluster: Cluster, name: str, text: str) -> str:
    """With a name for the pod that is the same in each run."""
    (pod,) = cluster.pods(name)
    return text.replace(pod, "POD")


@pytest.mark.parametrize("wrong", SET_UPS, ids=lambda wrong: wrong.name)
def test_check_says_what_to_do(checked: dict[str, tuple[int, list[str]]], wrong: SetUp) -> None:
    code, lines = checked[wrong.name]
    # A wrong name in the pool alone: the pods are sound, and check tells the right one.
    suggests = {"wrong-model": f"Set spec.model to '{MODEL}'.", "wrong-engine": "Set spec.engine to 'sglang'."}
    if wrong.name in suggests:
        assert (code, any(suggests[wrong.name] in line for line in lines)) == (0, True)
    else:
        assert (code, lines != []) == (1, True)


def test_the_record_is_current(cluster: Cluster, checked: dict[str, tuple[int, list[str]]]) -> None:
    for wrong in SET_UPS:
        cluster.wait_condition(wrong.name, "MetricsAvailable", ("True" if wrong.healthy else "False", wrong.reason))
    text = record(
        {each.name: said(cluster, each.name, cluster.told(each.name, "MetricsAvailable")) for each in SET_UPS}, checked
    )
    if os.environ.get(UPDATE):
        RECORD.write_text(text)
    assert RECORD.read_text() == text, f"run this test with {UPDATE}=1"


def record(messages: dict[str, str], checked: dict[str, tuple[int, list[str]]]) -> str:
    lines = [
        "# What a wrong set-up is told",
        "",
        "Recorded from the whole operator on a real kube-apiserver with a real Prometheus. The condition is `MetricsAvailable`;",
        "`check` is `servingpool check deployment/NAME --prometheus URL`, without its table of figures. It does not read the pool:",
        "it exits with 0 where the pods export every figure, and suggests `spec.engine` and `spec.model`. `action` is the advice in",
        "[Conditions](../reference/conditions.md). POD stands for the",
        "pod's name.",
        "",
        f"To record again: `{UPDATE}=1 .venv/bin/python -m pytest tests/integration/test_wrong_setups.py`.",
        "",
        "| set-up | condition | check says | action |",
        "|---|---|---|---|",
    ]
    for each in SET_UPS:
        status = "True" if each.healthy else "False"
        code, printed = checked[each.name]
        cells = [
            each.what,
            f"{status} `{each.reason.value}`: {messages[each.name]}",
            f"{' '.join(printed)} (exit {code})",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in [*cells, each.reason.action]) + " |")
    return "\n".join(lines) + "\n"
