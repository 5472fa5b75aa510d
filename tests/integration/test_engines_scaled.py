"""The whole operator scales pods that export other engines' metrics, one of an engine that only its configuration knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import PATIENCE, Cluster, OperatorProcess, cluster_in, settings_on
from .side_by_side import Begun, SideBySide
from .stand_in_engine import OUTPUT

ACME = {
    "modelLabel": "served",
    "figures": {
        "running": ["acme_busy"],
        "waiting": ["acme_queue"],
        "generationTokens": [{"name": "acme_tokens_total", "labels": {"kind": "output"}}],
        "promptTokens": [{"name": "acme_tokens_total", "labels": {"kind": ["input", "cached"]}}],
        "timeToFirstToken": ["acme_ttft"],
        "interTokenLatency": [{"sum": ["acme_itl_sum"], "count": ["acme_itl_count"]}],
        "timePerOutputToken": ["acme_tpot"],
    },
}

pytestmark = pytest.mark.timeout(300, func_only=True)
side_by_side = SideBySide()

Names = dict[str, str]


def renamed(names: Names, model: str) -> Callable[[str], str]:
    """A page of vLLM as another engine writes it. A name may end in a label to add."""

    def line(found: re.Match[str]) -> str:
        for ours, theirs in names.items():
            if found[1].startswith(ours):
                name, _, label = theirs.partition(" ")
                return f"{name}{found[1].removeprefix(ours)}{{{label + ',' if label else ''}"
        return f"unused_{found[1]}{{"

    return lambda page: re.sub(r"vllm:(\w+)\{", line, page).replace("model_name=", f"{model}=")


def silent(_: str) -> str:
    """Of an engine whose metrics are off."""
    return "process_open_fds 12\n"


ENGINES = {
    "acme": renamed(
        {
            "num_requests_running": "acme_busy",
            "num_requests_waiting": "acme_queue",
            "generation_tokens_total": 'acme_tokens_total kind="output"',
            "prompt_tokens_total": 'acme_tokens_total kind="input"',
            "time_to_first_token_seconds": "acme_ttft",
            "inter_token_latency_seconds": "acme_itl",
            "request_time_per_output_token_seconds": "acme_tpot",
        },
        "served",
    ),
    "sglang": renamed(
        {
            "num_requests_running": "sglang:num_running_reqs",
            "num_requests_waiting": "sglang:num_queue_reqs",
            "generation_tokens_total": 'sglang:realtime_tokens_total mode="decode"',
            "prompt_tokens_total": 'sglang:realtime_tokens_total mode="prefill_compute"',
            "time_to_first_token_seconds": 'sglang:time_to_first_token_seconds is_streaming="true"',
            "inter_token_latency_seconds": "sglang:inter_token_latency_seconds",
        },
        "model_name",
    ),
    "tensorrt-llm": renamed(
        {
            "num_requests_": "trtllm_num_requests_",
            "generation_tokens_total": "trtllm_generation_tokens_total",
            "prompt_tokens_total": "trtllm_prompt_tokens_total",
            "time_to_first_token_seconds": "trtllm_time_to_first_token_seconds",
            "inter_token_latency_seconds": "trtllm_request_decode_time_seconds",
            "request_time_per_output_token_seconds": "trtllm_time_per_output_token_seconds",
        },
        "undefined",
    ),
    "tgi": renamed(
        {
            "num_requests_running": "tgi_batch_current_size",
            "num_requests_waiting": "tgi_queue_size",
            "generation_tokens_total": "tgi_request_generated_tokens_sum",
            "prompt_tokens_total": "tgi_request_input_length_sum",
            "request_success_total": "tgi_request_queue_duration_count",
            "time_to_first_token_seconds": 'tgi_batch_inference_duration method="prefill"',
            "inter_token_latency_seconds": "tgi_request_inference_duration",
            "request_time_per_output_token_seconds": "tgi_request_mean_time_per_token_duration",
        },
        "undefined",
    ),
    "silent": silent,
}
"""By the name that a Deployment begins with."""


class Pages(dict[tuple[str, str], str]):
    """Hands each page on as the pod's engine writes it."""

    def __init__(self, shown: dict[tuple[str, str], str]) -> None:
        self._shown = shown

    def __setitem__(self, key: tuple[str, str], page: str) -> None:
        written = next(write for engine, write in ENGINES.items() if key[1].startswith(engine))
        self._shown[key] = written(page)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    with cluster_in(control_plane, Pages(pod_metrics), "engines") as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def begun(cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    settings = settings_on(prometheus.url, engines={"acme": ACME}, namespaces=[cluster.namespace])
    for engine in ("acme", "sglang", "tensorrt-llm", "tgi"):
        cluster.serve(engine, rate=4.0)
        cluster.pool(engine, engine=engine)
    cluster.serve("acme-mistaken", rate=1.0)
    cluster.pool("acme-mistaken", engine="sglang")
    cluster.serve("silent", rate=1.0)
    cluster.pool("silent")
    cluster.serve("sglang-unheard", rate=1.0)
    cluster.pool("sglang-unheard", engine="unheard-of")
    operator = OperatorProcess(cluster.plane, tmp_path_factory.mktemp("engines"), settings)
    with operator.running(), side_by_side.begin(lambda: [cluster]) as begun:
        yield begun


@side_by_side.each("sglang", "tensorrt-llm", "tgi")
def test_a_pool_of_another_engine_is_scaled_up_when_load_grows(cluster: Cluster, engine: str) -> None:
    cluster.wait_condition(engine, "MetricsAvailable", ("True", "ValidMetrics"))
    cluster.load(engine, 20.0)
    wait_until(lambda: cluster.replicas(engine) >= 2, PATIENCE, f"{engine} is scaled up")
    wait_until(lambda: cluster.status(engine).get("readyReplicas", 0) >= 2, PATIENCE, "they serve")
    cluster.wait_condition(engine, "MetricsAvailable", ("True", "ValidMetrics"))
    judge_throughput(cluster, engine)
    cluster.load(engine, 4.0)


@side_by_side
def test_a_pool_of_an_engine_that_only_the_configuration_knows_grows_and_gives_back(cluster: Cluster) -> None:
    cluster.wait_condition("acme", "MetricsAvailable", ("True", "ValidMetrics"))
    cluster.load("acme", 20.0)
    wait_until(lambda: cluster.status("acme").get("readyReplicas", 0) >= 2, PATIENCE, "acme is scaled up")
    judge_throughput(cluster, "acme")
    cluster.load("acme", 1.0)
    try:
        wait_until(lambda: cluster.replicas("acme") == 1, 4 * PATIENCE, "acme gives its replicas back")
    except TimeoutError as late:
        raise AssertionError(f"{late}; it was decided: {cluster.status('acme')['lastDecision']['reason']}") from None
    cluster.wait_condition("acme", "MetricsAvailable", ("True", "ValidMetrics"))


def judge_throughput(cluster: Cluster, pool: str) -> None:
    tokens = cluster.status(pool)["throughput"]
    # The status is written once a minute where only figures change, so the load is that of some time since the start.
    assert 0 < tokens["generationTokensPerSecond"] <= 20.0 * OUTPUT * 2
    assert tokens["promptTokensPerSecond"] > 0


def test_a_pool_that_names_another_engine_than_its_pods_run_says_so(cluster: Cluster) -> None:
    cluster.wait_condition("acme-mistaken", "MetricsAvailable", ("False", "WrongEngine"))
    said = "The pods export metrics of engine 'acme', and spec.engine is 'sglang' ("
    assert said in cluster.told("acme-mistaken", "MetricsAvailable")
    assert cluster.changes("acme-mistaken") == 0


def test_a_pool_whose_pods_export_no_metrics_of_an_engine_says_so(cluster: Cluster) -> None:
    cluster.wait_condition("silent", "MetricsAvailable", ("False", "NoEngineSeries"))
    assert "perhaps vLLM runs with --disable-log-stats" in cluster.told("silent", "MetricsAvailable")


def test_a_pool_of_an_engine_that_nobody_knows_is_refused_with_those_that_are(cluster: Cluster) -> None:
    cluster.wait_condition("sglang-unheard", "Ready", ("False", "UnknownEngine"))
    known = "known engines are acme, llamacpp, lmdeploy, nim, ollama, sglang, tensorrt-llm, tgi, vllm."
    assert cluster.told("sglang-unheard", "Ready").endswith(known)
