"""`servingpool check deployment/NAME` on real pods behind a real Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from servingpool.cli.main import app
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .conftest import own_namespace
from .operators import PATIENCE, deployment, ready_pods

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
SGLANG = (ENGINES / "sglang-0.5.23.txt").read_text()
ROUTER = (ENGINES / "gateway-vllm-router-0.1.17.txt").read_text()
RUNNING = 'count by (pod) (sglang:num_running_reqs{namespace="NAMESPACE"})'
PROCESSED = 'count by (pod) (vllm_router_processed_requests_total{namespace="NAMESPACE"})'
FAILS = "The scrape fails (up is 0): check path, port and credentials."

Check = Callable[..., Result]

pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """One for all: only what the pods expose differs."""
    with own_namespace(control_plane) as name:
        yield name


@pytest.fixture(scope="module")
def pods(control_plane: ControlPlane, namespace: str) -> list[str]:
    """Of the Deployment llama, Ready."""
    control_plane.apply(deployment(namespace, "llama", 2))
    return ready_pods(control_plane, namespace, 2)


@pytest.fixture
def pages(
    pods: list[str], namespace: str, prometheus: Prometheus, pod_metrics: dict[tuple[str, str], str]
) -> dict[tuple[str, str], str]:
    """What the pods expose: at first that of SGLang, as Prometheus has read of both."""
    pod_metrics.update({(namespace, pod): SGLANG for pod in pods})
    scraped(prometheus, namespace, f"{RUNNING} unless on (pod) {PROCESSED}", 2)
    return pod_metrics


@pytest.fixture
def check(control_plane: ControlPlane, prometheus: Prometheus, namespace: str) -> Check:
    def run(*arguments: str, target: str = "deployment/llama") -> Result:
        command = ["check", target, "-n", namespace, "--prometheus", prometheus.url]
        return CliRunner().invoke(app, [*command, "--kubeconfig", str(control_plane.kubeconfig), *arguments])

    return run


def scraped(prometheus: Prometheus, namespace: str, expression: str, count: int) -> None:
    query = expression.replace("NAMESPACE", namespace)
    wait_until(lambda: len(prometheus.query(query)) == count, PATIENCE, query)


def test_it_finds_engine_and_model_and_shows_where_each_figure_stands(
    check: Check, prometheus: Prometheus, namespace: str, pages: dict[tuple[str, str], str]
) -> None:
    done = check()
    assert done.exit_code == 0, done.stderr
    assert "2 ready pods, as engine sglang:" in done.stdout
    assert "The pods export metrics of: sglang. Set spec.engine to sglang." in done.stdout
    assert "Their model_name is 'org/model'. Set spec.model to 'org/model'." in done.stdout
    lines = {line.split()[0]: line.split(maxsplit=5) for line in done.stdout.splitlines() if line}
    assert lines["waiting"][1] == "2"
    assert 0 <= int(lines["waiting"][2]) <= 3, "seconds since the newest sample"
    assert lines["waiting"][5].startswith('sglang:num_queue_reqs{dp_rank="0|1", engine_type="unified"')
    assert "counted at finish" in lines["timePerOutputToken"][5]
    assert done.stderr == ""


def test_it_says_what_is_wrong_with_each_pod(
    check: Check, prometheus: Prometheus, namespace: str, pods: list[str], pages: dict[tuple[str, str], str]
) -> None:
    del pages[namespace, pods[0]]
    scraped(prometheus, namespace, f'up{{namespace="NAMESPACE", pod="{pods[0]}"}} == 0', 1)
    done = check("--model", "llama")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        f"{FAILS} (pod {pods[0]}) Prometheus says: HTTP status 404: wrong path.",
        (
            "The pods export model_name 'org/model', and --model is 'llama': set --model to 'org/model'. "
            f"(pod {pods[1]})"
        ),
    ]


def test_read_as_another_engine_nothing_is_found(
    check: Check, prometheus: Prometheus, namespace: str, pods: list[str], pages: dict[tuple[str, str], str]
) -> None:
    done = check("--engine", "lmdeploy")
    assert done.exit_code == 1
    assert f"The pods export metrics of engine 'sglang', and --engine is 'lmdeploy'. (pod {pods[0]})" in done.stderr
    assert "Missing, and needed for decisions: generationTokens, interTokenLatency, promptTokens" in done.stderr
    assert "none of (lmdeploy:num_requests_waiting + lmdeploy:num_api_requests_waiting)" in done.stdout


def test_a_deployment_that_does_not_exist_is_the_clusters_answer(check: Check) -> None:
    done = check(target="deployment/nobody")
    assert done.exit_code == 1
    assert "nobody" in done.stderr


def test_it_shows_what_a_gateway_tells(
    check: Check, prometheus: Prometheus, namespace: str, pods: list[str], pages: dict[tuple[str, str], str]
) -> None:
    """One server speaks for all pods, so a pod's page is the engine's and the gateway's."""
    pages[namespace, pods[0]] = SGLANG + ROUTER
    scraped(prometheus, namespace, PROCESSED, 1)
    done = check("--gateway", "vllm-router/llama")
    assert done.exit_code == 0, done.stderr
    _, _, told = done.stdout.partition(f"Gateway vllm-router in namespace {namespace}, 1 pods:")
    lines = {line.split()[0]: line.split(maxsplit=5) for line in told.splitlines() if line}
    assert lines["queue"][1:3] == ["0", "-"]
    assert lines["arrivals"][1] == "1"
    assert 0 <= int(lines["arrivals"][2]) <= 3, "seconds since the newest sample"
    assert "(vllm_router_processed_requests_total + vllm_router_retries_exhausted_total){" in lines["arrivals"][5]


def test_it_says_what_a_gateway_lacks(
    check: Check, prometheus: Prometheus, namespace: str, pods: list[str], pages: dict[tuple[str, str], str]
) -> None:
    pages[namespace, pods[0]] = SGLANG + ROUTER
    scraped(prometheus, namespace, PROCESSED, 1)
    said = {
        "vllm-router": "vllm-router does not name the model in its metrics: set spec.metrics.gateway.workload",
        "litellm": f"Prometheus has no series of a gateway litellm in namespace {namespace}.",
    }
    for name, why in said.items():
        done = check("--gateway", name)
        assert done.exit_code == 1
        assert why in done.stderr
    done = check("--gateway", "acme")
    assert done.exit_code == 2
    assert "--gateway must be one of envoy-ai-gateway, inference-extension" in done.stderr
