"""The emulated fleet behind real pods, scraped by a real Prometheus."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from servingpool_lab import kwok, workload
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local, wait_until
from servingpool_lab.prometheus import Prometheus
from servingpool_lab.scenario import WORKLOADS, Scenario

from .operators import ANSWERS, PATIENCE


@dataclass
class Case:
    plane: ControlPlane
    prometheus: Prometheus
    url: str
    scenario: Scenario

    @property
    def deployment(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.scenario.namespace}/deployments/{self.scenario.workload.name}"

    def scale(self, replicas: int) -> None:
        self.plane.client.patch(f"{self.deployment}/scale", {"spec": {"replicas": replicas}})

    def truth(self) -> dict[str, Any]:
        with open_local(f"{self.url}/truth", ANSWERS) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def pods(self) -> dict[str, dict[str, Any]]:
        items = self.plane.client.items(f"/api/v1/namespaces/{self.scenario.namespace}/pods")
        return {item["metadata"]["name"]: item for item in items}

    def series(self, metric: str) -> list[dict[str, Any]]:
        return self.prometheus.query(f'{metric}{{namespace="{self.scenario.namespace}"}}')

    def by_pod(self, metric: str) -> dict[str, float]:
        return {row["metric"]["pod"]: float(row["value"][1]) for row in self.series(metric)}


@pytest.fixture
def case(control_plane: ControlPlane, binaries: dict[str, Path], namespace: str, tmp_path: Path) -> Iterator[Case]:
    """Two replicas under the conversation trace; a third would find no GPUs on the node."""
    scenario = Scenario(WORKLOADS["conv"], load_seconds=2.0, namespace=namespace)
    control_plane.apply(workload.emulator_rights(scenario.namespace))
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "servingpool_lab.emulator"),
        f"--kubeconfig={control_plane.user_kubeconfig(workload.EMULATOR)}",
        f"--namespace={namespace}",
        f"--selector={kwok.APP_LABEL}={scenario.workload.name}",
        f"--port={port}",
        f"--model={scenario.workload.model}",
        *("--trace=conv", "--start-at=600", "--seconds=60", "--ttft=2", "--tpot=0.15", "--open-with=2", "--max=3"),
    ]
    emulator = SupervisedProcess("emulator", command, tmp_path / "emulator.log", ready=http_ready(f"{url}/healthz"))
    viewer = control_plane.viewer_kubeconfig("prometheus")
    prometheus = Prometheus(
        tmp_path / "prometheus", viewer, f"127.0.0.1:{port}", scrape_interval_seconds=1.0, binary=binaries["prometheus"]
    )
    try:
        emulator.start().wait_ready()
        with prometheus:
            control_plane.apply(workload.deployment(scenario))
            yield Case(control_plane, prometheus, url, scenario)
    finally:
        emulator.stop()


def test_a_deployments_pods_become_series_under_load(case: Case) -> None:
    wait_until(lambda: len(case.series("vllm:num_requests_running")) == 2, PATIENCE, "two replicas scraped")
    pods = case.pods()
    for row in case.series("vllm:generation_tokens_total"):
        labels = row["metric"]
        assert labels["pod"] in pods
        assert labels["namespace"] == case.scenario.namespace
        assert (labels["model_name"], labels["engine"]) == (case.scenario.workload.model, "0")
    answered = "vllm:request_time_per_output_token_seconds_count"
    wait_until(
        lambda: sum(count > 0 for count in case.by_pod(answered).values()) == 2, PATIENCE, "both replicas answer"
    )
    bounds = {row["metric"]["le"] for row in case.series("vllm:time_to_first_token_seconds_bucket")}
    assert {"0.001", "1.0", "2.5", "2560.0", "+Inf"} <= bounds
    told = sum(float(row["value"][1]) for row in case.series("vllm:request_success_total"))
    truth = case.truth()
    assert truth["open"]
    assert 0 < told <= truth["ended"]["finished"] <= truth["arrived"]
    assert truth["static"]["replicas"] >= 1


def test_scaling_changes_who_serves_and_loses_no_request(case: Case) -> None:
    wait_until(lambda: case.truth()["arrived"] > 50, PATIENCE, "traffic on two replicas")
    before = set(case.pods())

    case.scale(1)
    wait_until(lambda: case.truth()["replicas"]["draining"] == 1, PATIENCE, "one replica drains")
    leaving = next(name for name, pod in case.pods().items() if "deletionTimestamp" in pod["metadata"])
    (staying,) = before - {leaving}
    sent = case.by_pod("vllm:prompt_tokens_total")[leaving]
    # Its hook sleeps for 15 s and its grace period is 150 s: it leaves when it is done, not when it is cut off.
    wait_until(lambda: leaving not in case.pods(), PATIENCE, "the drained pod exits")
    wait_until(lambda: set(case.by_pod("vllm:num_requests_running")) == {staying}, PATIENCE, "it is no longer scraped")
    truth = case.truth()
    assert truth["ended"]["lost"] == 0
    assert sent > 0

    case.scale(2)
    wait_until(lambda: len(case.pods()) == 2, PATIENCE, "a second pod")
    (newcomer,) = set(case.pods()) - {staying}
    assert newcomer != leaving
    wait_until(
        lambda: case.by_pod("vllm:generation_tokens_total").get(newcomer, 0) > 0, PATIENCE, "the newcomer serves"
    )
    assert case.truth()["replicas"]["ready"] == 2


def test_a_pod_that_loads_is_no_target_and_gets_no_request(case: Case) -> None:
    slow = replace(case.scenario, load_seconds=600.0)
    # Two that are there, then none, then two others: else what still loads, or still goes, is taken for what comes.
    wait_until(lambda: case.truth()["replicas"]["ready"] == 2, PATIENCE, "two replicas")
    case.plane.client.delete(case.deployment)
    wait_until(lambda: not case.pods(), PATIENCE, "the first two are gone")
    case.plane.apply(workload.deployment(slow))
    wait_until(lambda: case.truth()["replicas"]["loading"] == 2, PATIENCE, "two replicas load")
    name = next(iter(case.pods()))
    with (
        pytest.raises(OSError, match="503"),
        open_local(f"{case.url}/pods/{case.scenario.namespace}/{name}/metrics", 5),
    ):
        pass
    assert name not in case.by_pod("vllm:num_requests_running")


def test_traffic_goes_on_while_the_api_server_is_away(case: Case) -> None:
    wait_until(lambda: case.truth()["arrived"] > 10, PATIENCE, "traffic on two replicas")
    case.plane.stop_apiserver()
    try:
        before = case.truth()
        wait_until(lambda: case.truth()["arrived"] > before["arrived"] + 10, PATIENCE, "more requests")
        assert case.truth()["replicas"]["ready"] == 2
    finally:
        case.plane.start_apiserver()
    case.scale(1)
    wait_until(lambda: case.truth()["replicas"]["draining"] == 1, PATIENCE, "the watch is back")
    assert case.truth()["ended"]["lost"] == 0
