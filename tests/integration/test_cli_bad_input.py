"""Wrong input to the command line on a real API server and a real Prometheus: rights, names, and no history."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from servingpool.cli.main import app
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from ..cli_page import Told, hold  # noqa: TID252, tests are no package of an installed name
from .operators import PATIENCE, deployment, serving_pool

ROOT = Path(__file__).parents[2]
NAMESPACE = "cli-bad-input"
READS = (
    "explain chat",
    "pause chat",
    "adopt chat",
    "release chat",
    "check deployment/llama",
    "suggest deployment/llama",
    "suggest -A",
)
RIGHTS = (*READS, "record deployment/llama -f llama.rec", "backtest deployment/llama --ttft 2s --max 4")
NOBODY = ("pause nobody", "resume nobody", "adopt nobody", "explain nobody", "check deployment/nobody")
OWN = ("history chat", "compare chat", "explain chat --at 2026-11-20T03:12")
CASES = {
    "No rights": RIGHTS,
    "A login that the API server does not know": ("explain chat", "suggest deployment/llama"),
    "A pool or a Deployment that is not there": (*NOBODY, "suggest deployment/nobody", "suggest hpa/nobody"),
    "No history of the operator": OWN,
    "Pods whose engine is not scraped": (
        "suggest deployment/llama",
        "record deployment/llama -f llama.rec",
        "record deployment/llama --engine vllm --model llama -f llama.rec",
    ),
    "No pods": ("suggest deployment/none", "check deployment/none"),
}


@pytest.fixture(scope="module")
def told(
    control_plane: ControlPlane, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Told]]:
    control_plane.apply(ROOT / "crds")
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    control_plane.apply(serving_pool(NAMESPACE, "chat", mode="Recommend"))
    control_plane.apply(deployment(NAMESPACE, "llama", 1))
    control_plane.apply(deployment(NAMESPACE, "none", 0))
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/llama"
    ready = lambda: control_plane.client.get(path).get("status", {}).get("readyReplicas") == 1  # noqa: E731
    wait_until(ready, PATIENCE, "a pod is ready")
    directory = tmp_path_factory.mktemp("cli")
    settings = yaml.safe_load(control_plane.kubeconfig.read_text())
    settings["users"][0]["user"] = {"token": "none"}
    unknown = directory / "unknown"
    unknown.write_text(yaml.safe_dump(settings))
    configs = {
        "No rights": control_plane.user_kubeconfig("ann"),
        "A login that the API server does not know": unknown,
    }
    yield {
        (case, command): run(case, command, configs.get(case, control_plane.kubeconfig), prometheus.url, directory)
        for case, commands in CASES.items()
        for command in commands
    }
    control_plane.client.delete(f"/api/v1/namespaces/{NAMESPACE}")


def run(case: str, command: str, kubeconfig: Path, url: str, directory: Path) -> Told:
    words = command.split()
    where = [] if "-A" in words else ["-n", NAMESPACE]
    asks = words[0] in {"history", "compare", "check", "suggest", "record", "backtest"} or "--at" in words
    given = ["--kubeconfig", str(kubeconfig), *(["--prometheus", url] if asks else [])]
    with contextlib.chdir(directory):
        done = CliRunner().invoke(app, [*words, *where, *given])
    text = re.sub(r"llama-\w+-\w+", "POD", done.stderr.strip().replace(url, "http://prometheus"))
    return Told(case, command, done.exit_code, re.sub(r"\s*\n\s*", " / ", text))


@pytest.mark.parametrize("case", CASES)
def test_each_ends_with_one_message_and_none_with_success(told: dict[tuple[str, str], Told], case: str) -> None:
    for command in CASES[case]:
        row = told[case, command]
        assert row.code in {1, 3, 4}, row
        assert "Traceback" not in row.message, row
        assert " / " not in row.message, row
        assert len(row.message) > 30, row


def test_the_table_is_current(told: dict[tuple[str, str], Told]) -> None:
    hold("On a real API server with a real Prometheus", told.values())
