"""The past of a pool, told by a real Prometheus that scrapes the real operator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from servingpool.cli.main import app
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import PATIENCE, Cluster, OperatorProcess, Traffic, install, prometheus, settings_on

OPERATOR = "servingpool-operator"


@dataclass
class Past:
    """The cluster, and the Prometheus that scrapes its operator."""

    cluster: Cluster
    url: str

    def run(self, command: str, name: str, *options: str) -> Result:
        pool = f"{self.cluster.namespace}/{name}"
        environment = {"COLUMNS": "200", "KUBECONFIG": "/nonexistent"}  # from Prometheus alone
        return CliRunner().invoke(app, [command, pool, f"--prometheus={self.url}", *options], env=environment)

    def told(self, command: str, name: str, *options: str) -> Any:
        """What it prints as JSON; None where it has nothing to tell yet."""
        shown = self.run(command, name, *options, "-o", "json")
        assert shown.exit_code in {0, 3}, shown.stderr
        return json.loads(shown.stdout) if shown.exit_code == 0 else None


@pytest.fixture(scope="module")
def past(
    control_plane: ControlPlane,
    pod_metrics: dict[tuple[str, str], str],
    prometheus_of_pods: str,
    binaries: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Past]:
    install(control_plane, "past")
    settings = settings_on(prometheus_of_pods, namespaces=["past"])
    operator = OperatorProcess(control_plane, tmp_path_factory.mktemp("operator"), settings, name="past")
    target = f"127.0.0.1:{operator.metrics_port}"
    scrape = {"job_name": "operator", "honor_labels": True, "static_configs": [{"targets": [target]}]}
    configuration = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
    with (
        Traffic(control_plane, pod_metrics) as traffic,
        prometheus(binaries["prometheus"], configuration, tmp_path_factory.mktemp("of-operator")) as url,
    ):
        cluster = Cluster(control_plane, traffic, "past")
        operator.start()
        yield Past(cluster, url)
        operator.process.stop()
    control_plane.client.delete("/api/v1/namespaces/past")


@pytest.fixture(scope="module")
def prometheus_of_pods(prometheus: Prometheus) -> str:
    return prometheus.url


def test_a_past_scale_up_is_listed_and_explained_from_prometheus_alone(past: Past) -> None:
    past.cluster.serve("burst", rate=4.0)
    past.cluster.pool("burst")
    past.cluster.wait_condition("burst", "Calibrating", ("False", "Learned"))
    past.cluster.load("burst", 20.0)

    def kept() -> list[dict[str, Any]]:
        history: list[dict[str, Any]] = past.cluster.status("burst").get("history", [])
        return [one for one in history if one["to"] > one["from"] and one.get("outcome", "").startswith("ready after")]

    wait_until(lambda: kept() != [], PATIENCE, "a scale-up whose replicas are ready")
    change = kept()[0]
    assert change["by"] == OPERATOR
    assert change["why"].startswith(f"scale up {change['from']} -> {change['to']}: ")

    def listed() -> list[dict[str, Any]]:
        told = past.told("history", "burst", "--since", "10m", "--step", "1s") or []
        return [one for one in told if one["at"] == change["at"]]

    wait_until(lambda: any("outcome" in one for one in listed()), PATIENCE, "the change is scraped")
    (found,) = listed()
    assert (found["from"], found["to"], found["by"]) == (change["from"], change["to"], OPERATOR)
    assert found["outcome"].startswith("ready after")

    explained = past.told("explain", "burst", "--at", change["at"].replace("Z", "+00:00"))
    assert explained is not None
    assert explained["lastDecision"]["candidates"]
    shown = past.run("explain", "burst", "--at", change["at"].replace("Z", "+00:00"))
    assert shown.exit_code == 0, shown.stderr
    assert "from the operator's metrics in Prometheus" in shown.stdout
    assert "SLO 2s" in shown.stdout


def test_a_recommendation_beside_another_writer_is_compared_and_an_event(past: Past) -> None:
    past.cluster.serve("beside", replicas=4, rate=2.0)
    target = {"name": "beside", "min": 1, "max": 6, "gpusPerReplica": 2, "costPerReplicaHour": 10.0}
    past.cluster.pool("beside", mode="Recommend", targets=[target])
    past.cluster.wait_event("beside", "Recommended")
    (event, *_) = past.cluster.events("beside", "Recommended")
    assert re.match(r"Recommended [123] replicas, 4 are requested; reason: scale down 4 -> [123]: ", event["message"])

    def cheaper() -> bool:
        told = past.told("compare", "beside", "--since", "5m")
        return told is not None and 0.0 < told["recommended"]["dollars"] < told["stood"]["dollars"]

    wait_until(cheaper, PATIENCE, "a smaller recommendation is scraped")
