"""A real Prometheus scrapes each gateway's own page; a pool is told what the page says, or why it is not told."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from servingpool.adapters.gateways.own_gateway import gateway_of
from servingpool.adapters.gateways.totals import GatewayTotals
from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.gateways import GatewayProfile, shipped_gateways
from servingpool.adapters.prometheus.samples import FleetReading, ReadRequest
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import GatewayMetrics, Histogram, ReplicaMetrics, Unknown

from .scrapes import each_second, page_job, read_when, served

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
NAMESPACE = "gateways"
PAGES = {path.stem.removeprefix("gateway-"): path.read_text() for path in sorted(ENGINES.glob("gateway-*.txt"))}
SHADOWED = ("litellm-1.105.7", "llm-d-epp-0.10.0", "sglang-router-0.3.2")
"""Their targets have labels of their own that the gateways use too."""
COLLIDE = {"model": "x", "requested_model": "x", "target_model_name": "x", "streaming": "x", "user": "x", "route": "x"}
CHANGING = {"epp-0": "llm-d-epp-0.10.0", "epp-1": "llm-d-epp-0.10.0-after"}
"""Pods of the tests that change a page, with the one that they have at first."""
PICKERS = {"alone": {"org/model": 10}, "shared": {"org/model": 10, "org/other": 3}}
"""Endpoint pickers whose queue of 40 names no model, by pod: the requests that each sent on, by model."""
FLOWS = {
    "idle": (("llm_d_epp_request_total",), {"org/model": [7170]}),
    "adapters": (
        ("llm_d_epp_request_total", "llm_d_epp_flow_control_queue_size"),
        {"org/model": [100, 0], "sql-lora": [300, 25], "chat-lora": [200, 15], "other": [9, 9]},
    ),
}
"""Series and models of llm-d's picker, by pod: its flow was idle for five minutes; LoRA adapters and a model of nobody."""
BOUND = 2.0


def picker(sent: dict[str, int]) -> str:
    """A page of the inference extension 1.1 and 1.2, where the queue has these two labels alone."""
    counts = (
        f'inference_objective_request_total{{model_name="{model}",target_model_name="{model}"}} {count}\n'
        for model, count in sent.items()
    )
    queue = 'inference_extension_flow_control_queue_size{fairness_id="default-flow",priority="0"} 40\n'
    return f"# TYPE inference_objective_request_total counter\n{''.join(counts)}{queue}"


def flows(names: tuple[str, ...], models: dict[str, list[int]]) -> str:
    own = 'fairness_id="default-flow",priority="0"'
    pairs = ((model, *each) for model, counts in models.items() for each in zip(names, counts, strict=True))
    text = (
        f'{name}{{{own},model_name="{model}",target_model_name="{model}"}} {count}\n' for model, name, count in pairs
    )
    return "".join(text) + 'llm_d_epp_flow_control_pool_saturation{inference_pool="pool"} 1\n'


def pod(name: str) -> str:
    return name.replace(".", "-")


def gateway(name: str) -> str:
    return next(one for one in shipped_gateways() if name.startswith(one))


def profile(name: str) -> GatewayProfile:
    return shipped_gateways()[gateway(name)]


def asking(name: str) -> ReadRequest:
    return ReadRequest(engine=gateway(name), gateway=True, ttft_bounds=frozenset({BOUND}))


def configuration(target: str) -> dict[str, Any]:
    job = functools.partial(page_job, target, NAMESPACE)
    jobs = [job(pod(name), **(COLLIDE if name in SHADOWED else {})) for name in PAGES]
    jobs += [job(pod(name), f"{pod(name)}-twice") for name in PAGES if name not in SHADOWED]
    jobs += [job(name) for name in (*CHANGING, *(f"{one}-0" for one in (*PICKERS, *FLOWS)))]
    return each_second(jobs)


EXPOSED = {
    **{(NAMESPACE, pod(name)): text for name, text in PAGES.items()},
    **{(NAMESPACE, name): PAGES[first] for name, first in CHANGING.items()},
    **{(NAMESPACE, f"{name}-0"): picker(sent) for name, sent in PICKERS.items()},
    **{(NAMESPACE, f"{name}-0"): text for name, text in ((one, flows(*given)) for one, given in FLOWS.items())},
}
url = served(NAMESPACE, EXPOSED, configuration)


def model_of(name: str) -> str:
    return "org/model" if profile(name).model_label else ""


def on_page(name: str) -> ReplicaMetrics:
    """By the page alone; tests/unit/adapters/prometheus/test_gateway_pages.py holds the truth."""
    return page.read(profile(name).metrics, page.parse(PAGES[name]), asking(name))[model_of(name)]


def standing(metrics: ReplicaMetrics) -> ReplicaMetrics:
    """Without what differs from scrape to scrape, and from one pod's buckets to the fleet's; and the parts, which no page tells."""
    ttft = metrics.time_to_first_token
    at_bound = ttft if isinstance(ttft, Unknown) else _around(ttft)
    return replace(metrics, replica="", scraped_at=0.0, sources=1.0, time_to_first_token=at_bound)


def _around(ttft: Histogram) -> Histogram:
    counts = {le: count for le, count in zip(ttft.bounds, ttft.counts, strict=True) if 1.0 <= le <= 2.5}
    return Histogram(tuple(counts), tuple(counts.values()), ttft.total, ttft.count)


@pytest.mark.parametrize("name", PAGES)
async def test_every_figure_of_every_page_is_read_back(url: str, name: str) -> None:
    """Two jobs scrape most pods, and some targets have labels that collide with the gateway's."""
    key = (NAMESPACE, pod(name))
    reading = await read_when(url, asking(name), lambda one: key in one.samples)
    assert standing(reading.samples[key][model_of(name)]) == standing(on_page(name))


@pytest.mark.parametrize("workload", PICKERS)
async def test_a_queue_that_names_no_model_is_read_or_said_to_be_unknown(url: str, workload: str) -> None:
    key = (NAMESPACE, f"{workload}-0")
    reading = await read_when(url, asking("inference-extension"), lambda one: "org/model" in one.samples.get(key, {}))
    told = Pool(url, workload, gateway="inference-extension").heard(reading)
    if workload == "alone":
        assert told.queue == 40.0
    else:
        assert isinstance(told.queue, Unknown)
        assert "names no model, and several are served" in told.queue.reason


async def test_a_flow_that_is_idle_holds_nothing_and_the_adapters_requests_are_the_pools(url: str) -> None:
    wanted = {(NAMESPACE, f"{name}-0") for name in FLOWS}
    reading = await read_when(url, asking("llm-d-epp"), lambda one: wanted <= one.samples.keys())
    idle = Pool(url, "idle").heard(reading)
    assert (idle.queue, idle.at_zero) == (0.0, 0.0)
    pool = Pool(url, "adapters", adapters=("sql-lora", "chat-lora"))
    assert pool.heard(reading).queue == 40.0
    assert pool.totals.last[NAMESPACE, "adapters-0"].begun == 640.0


@dataclass
class Pool:
    """A pool behind the changing gateway, as the operator reads it."""

    url: str
    workload: str | None = "epp"
    model: str = "org/model"
    gateway: str = "llm-d-epp"
    adapters: tuple[str, ...] = ()
    totals: GatewayTotals = field(default_factory=GatewayTotals)

    async def told(self, wanted: Callable[[dict[str, float]], bool]) -> GatewayMetrics:
        """Once the pods' own counts of first tokens are as wanted."""

        def counts(reading: FleetReading) -> dict[str, float]:
            told = {name: models["org/model"].time_to_first_token for (_, name), models in reading.samples.items()}
            return {name: ttft.count for name, ttft in told.items() if name in CHANGING and isinstance(ttft, Histogram)}

        return self.heard(await read_when(self.url, asking(self.gateway), lambda one: wanted(counts(one))))

    def heard(self, reading: FleetReading) -> GatewayMetrics:
        """What the pool makes of a reading."""
        own = {"name": self.gateway, **({"workload": self.workload} if self.workload else {})}
        spec = {
            "model": self.model,
            "slo": {"timeToFirstToken": f"{BOUND:g}s", "measuredAt": "Gateway"},
            "targets": [{"name": "vllm", "min": 0, "max": 9}],
            "metrics": {"gateway": own, "adapters": [*self.adapters]},
        }
        meta = {"namespace": NAMESPACE, "name": "pool", "uid": "u", "generation": 1, "resourceVersion": "1"}
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        pool = ServingPool.model_validate({"metadata": meta, "spec": spec})
        gateway = gateway_of(pool, BackendConfig(url=self.url))
        assert gateway is not None
        return self.totals.read(pool, gateway, profile(self.gateway), reading)


async def test_what_two_pods_count_is_added_through_a_restart_and_a_lost_scrape(
    url: str, pod_metrics: dict[tuple[str, str], str]
) -> None:
    before, after = PAGES["llm-d-epp-0.10.0"], PAGES["llm-d-epp-0.10.0-after"]
    pool = Pool(url)
    first = await pool.told(lambda seen: seen == {"epp-0": 7.0, "epp-1": 8.0})
    assert (first.queue, first.arrivals) == (1.0, 0.0)
    pod_metrics[NAMESPACE, "epp-0"] = after
    del pod_metrics[NAMESPACE, "epp-1"]
    second = await pool.told(lambda seen: seen == {"epp-0": 8.0})
    assert (second.queue, second.arrivals) == (0.0, 0.0), "the one that was held had come before"
    assert isinstance(second.time_to_first_token, Histogram)
    assert second.time_to_first_token.count == 1.0, "the one that was held for 12 s"
    assert second.time_to_first_token.total == pytest.approx(12.1)
    restarted = before.replace("} 10\n", "} 3\n").replace("} 7\n", "} 1\n")
    pod_metrics[NAMESPACE, "epp-0"], pod_metrics[NAMESPACE, "epp-1"] = restarted, after
    lower = await pool.told(lambda seen: seen == {"epp-0": 1.0, "epp-1": 8.0})
    assert lower.arrivals == 0.0, "it may be one damaged scrape: 3 of 11, and one held"
    third = lower
    for _ in range(600):
        if third.arrivals != lower.arrivals:
            break
        await asyncio.sleep(0.1)
        third = await pool.told(lambda seen: seen == {"epp-0": 1.0, "epp-1": 8.0})
    assert third.arrivals == 4.0
