"""What a replayed query has for elements, beside what a real Prometheus answers: KEDA takes one and no more."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from servingpool.adapters.prometheus.engines import shipped
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool_backtest.promql_nodes import Value
from servingpool_backtest.promql_value import Names, read
from servingpool_lab.binaries import ensure_binaries

from .operators import prometheus

NAMESPACE = "elements"
PODS = {"vllm-1": 1.0, "vllm-2": 2.0}
"""Waiting requests, by pod; ten times as many run."""
PAGE = """\
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="llama"}} {waiting}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="llama"}} {running}
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{model_name="llama",le="1.0"}} 5
vllm:time_to_first_token_seconds_bucket{{model_name="llama",le="+Inf"}} 5
vllm:time_to_first_token_seconds_sum{{model_name="llama"}} 1
vllm:time_to_first_token_seconds_count{{model_name="llama"}} 5
"""
TTFT = "vllm:time_to_first_token_seconds_bucket"
QUERIES = [
    "vllm:num_requests_waiting",
    "sum(vllm:num_requests_waiting)",
    "vllm:num_requests_waiting or vector(0)",
    "sum(vllm:num_requests_waiting) or vector(0)",
    "sum by (pod) (vllm:num_requests_waiting)",
    "sum by (model_name) (vllm:num_requests_waiting)",
    "sum without (instance) (vllm:num_requests_waiting)",
    "sum(vllm:num_requests_waiting) without (pod, instance)",
    "vllm:num_requests_waiting * 2",
    "vllm:num_requests_waiting / sum(vllm:num_requests_running)",
    "vllm:num_requests_waiting + vllm:num_requests_running",
    "sum(vllm:num_requests_waiting) / 0",
    "sum(vllm:num_requests_waiting) + 3 * 2",
    "max(max_over_time(vllm:num_requests_running[1m]))",
    "max_over_time(vllm:num_requests_running[1m])",
    f"histogram_quantile(0.9, sum by (le) (rate({TTFT}[30s])))",
    f"histogram_quantile(0.9, sum by (le, pod) (rate({TTFT}[30s])))",
    f"histogram_quantile(0.9, rate({TTFT}[30s]))",
    f"histogram_quantile(0.9, sum without (pod, instance) (rate({TTFT}[30s])))",
]


@pytest.fixture(scope="module")
def url(
    pod_metrics: dict[tuple[str, str], str], metrics_target: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    pages = {pod: PAGE.format(waiting=waiting, running=10.0 * waiting) for pod, waiting in PODS.items()}
    pod_metrics.update({(NAMESPACE, pod): page for pod, page in pages.items()})
    targets = [
        {
            "targets": [metrics_target],
            "labels": {"namespace": NAMESPACE, "pod": pod, "__metrics_path__": f"/pods/{NAMESPACE}/{pod}/metrics"},
        }
        for pod in PODS
    ]
    jobs = [{"job_name": "vllm", "static_configs": targets}]
    configuration = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    directory = tmp_path_factory.mktemp("elements")
    with prometheus(ensure_binaries("prometheus")["prometheus"], configuration, directory) as url:
        yield url


def look(now: float) -> Observation:
    metrics = tuple(
        ReplicaMetrics(
            pod, now, running=10.0 * waiting, waiting=waiting, time_to_first_token=Histogram((1.0,), (5.0,), 1.0, 5.0)
        )
        for pod, waiting in PODS.items()
    )
    return Observation(2, ready=tuple(Replica(pod, 900.0, 800.0) for pod in PODS), metrics=metrics)


def replayed(query: str) -> Value:
    node = read(query, Names.of(shipped()["vllm"]))
    node(look(1000.0), 1000.0)
    return node(look(1015.0), 1015.0)


def elements(value: Value) -> list[str]:
    each = value.values() if isinstance(value, dict) else [] if value is None else [value]
    return sorted(str(float(one)) for one in each)


async def answered(url: str, query: str) -> list[dict[str, Any]]:
    asked = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    body = await asyncio.to_thread(lambda: urllib.request.urlopen(asked).read())
    found: list[dict[str, Any]] = json.loads(body)["data"]["result"]
    return found


@pytest.mark.parametrize("query", QUERIES)
async def test_a_replayed_query_has_the_elements_that_prometheus_answers_with(url: str, query: str) -> None:
    for _ in range(600):
        if len(await answered(url, f"count_over_time({TTFT}{{le='1.0'}}[30s]) > 1")) == len(PODS):
            break
        await asyncio.sleep(0.1)
    found = [str(float(one["value"][1])) for one in await answered(url, query)]
    assert elements(replayed(query)) == sorted(found)
