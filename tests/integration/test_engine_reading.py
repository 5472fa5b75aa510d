"""A real Prometheus scrapes each engine's own page; all figures read back agree with it, or why there are none is said."""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.backend_config import SeriesLabels
from servingpool.adapters.prometheus.diagnosis import Cause
from servingpool.adapters.prometheus.engines import profile_of, shipped, usable
from servingpool.adapters.prometheus.engines.profile import EngineMetrics
from servingpool.adapters.prometheus.samples import FleetReading, ReadRequest
from servingpool.decision.observation import NOT_EXPOSED, ReplicaMetrics, Unknown

from .backends import BACKENDS, Serve
from .scrapes import each_second, page_job, past_of, read_once, read_when, served

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
NAMESPACE = "engines"
PAGES = {
    path.stem: path.read_text()
    for path in sorted(ENGINES.glob("*.txt"))
    if any(path.name.startswith(engine) for engine in usable(shipped()))
}
SHADOWED = "sglang-0.5.23"
"""Its target has labels of its own that the engine uses too."""
WRONG = {
    "down": "",
    "html": "<html><body>Sign in</body></html>",
    "silent": "# TYPE process_open_fds gauge\nprocess_open_fds 12\n",
    "other-engine": PAGES["lmdeploy-0.18.0"],
    "other-model": PAGES["sglang-0.5.10"].replace("org/model", "org/other"),
    "no-model": PAGES["sglang-0.5.10"].replace('model_name="org/model",', ""),
}
"""Pods of a pool with engine sglang and model org/model."""
RESTARTED = "restarted"
"""A pod of the one test that changes a page."""


def asking(engine: str, **more: Any) -> ReadRequest:
    return ReadRequest(engine=engine, ttft_bounds=frozenset({2.0}), tpot_bounds=frozenset({0.1}), **more)


def engine_of(name: str) -> str:
    return next(engine for engine in sorted(shipped(), key=len, reverse=True) if name.startswith(engine))


def model_of(profile: EngineMetrics) -> str:
    return "org/model" if profile.model_label else ""


def configuration(target: str) -> dict[str, Any]:
    job = functools.partial(page_job, target, NAMESPACE)
    jobs = [job(name) for name in [*PAGES, *WRONG, RESTARTED] if name != SHADOWED]
    jobs += [job(name, f"{name}-twice") for name in PAGES if name != SHADOWED]
    collide = {"model_name": "gpu", "engine_type": "gpu", "mode": "gpu", "is_streaming": "gpu", "dp_rank": "9"}
    collide["priority"] = "high"  # as of a pod: it is no priority of the engine's requests
    jobs.append(job(SHADOWED, **collide))
    return each_second(jobs)


EXPOSED = {(NAMESPACE, pod): text for pod, text in [*PAGES.items(), *WRONG.items()] if pod != "down"}
url = served(NAMESPACE, EXPOSED | {(NAMESPACE, RESTARTED): PAGES["sglang-0.5.23-after"]}, configuration)


async def read(url: str, request: ReadRequest, pods: set[str]) -> FleetReading:
    """A reading in which these pods have a sample, or a cause why not."""
    return await read_when(url, request, lambda reading: pods <= scraped(reading))


def scraped(reading: FleetReading) -> set[str]:
    """Pods with a sample, or with another cause than that they are no target yet."""
    seen = [key for key, missing in reading.causes.items() if missing.cause is not Cause.NOT_SCRAPED]
    return {pod for _, pod in [*reading.samples, *seen]}


def on_page(name: str) -> ReplicaMetrics:
    """The figures as the page alone tells them; tests/unit/adapters/prometheus/test_engine_pages.py holds the truth."""
    profile = profile_of(engine_of(name))
    return page.read(profile, page.parse(PAGES[name]), asking(engine_of(name)))[model_of(profile)]


def standing(metrics: ReplicaMetrics) -> ReplicaMetrics:
    """Without what differs from scrape to scrape, and the parts, which a page does not tell."""
    return replace(metrics, replica="", scraped_at=0.0, sources=1.0)


@pytest.mark.parametrize(
    "engine", [engine for engine in usable(shipped()) if engine != "vllm" and not profile_of(engine).metered]
)
async def test_every_figure_of_every_page_is_read_back(url: str, engine: str) -> None:
    """Two jobs scrape each pod, and one target has labels that collide with the engine's."""
    names = {name for name in PAGES if engine_of(name) == engine}
    reading = await read(url, asking(engine), names)
    model = model_of(profile_of(engine))
    assert names
    for name in names:
        found, wanted = standing(reading.samples[NAMESPACE, name][model]), standing(on_page(name))
        wanted = replace(wanted, queue_time=NOT_EXPOSED)  # it serves recorded histories alone
        # One fleet, one look at the buckets: a page's own neighbours of a bound are among more.
        for field in ("time_to_first_token", "time_per_output_token"):
            ours, theirs = getattr(found, field), getattr(wanted, field)
            if not isinstance(theirs, Unknown):
                counts = dict(zip(ours.bounds, ours.counts, strict=True))
                assert {le: counts[le] for le in theirs.bounds} == dict(zip(theirs.bounds, theirs.counts, strict=True))
                found = replace(found, **{field: replace(ours, bounds=theirs.bounds, counts=theirs.counts)})
        # VictoriaMetrics keeps 15 digits of a sum.
        for field in ("time_to_first_token", "time_per_output_token", "inter_token_latency"):
            ours, theirs = getattr(found, field), getattr(wanted, field)
            if not isinstance(theirs, Unknown) and ours.total == pytest.approx(theirs.total, rel=1e-13):
                found = replace(found, **{field: replace(ours, total=theirs.total)})
        assert found == wanted, name


async def test_prompt_tokens_are_read_of_a_llamacpp_that_counts_no_cached_ones(url: str) -> None:
    name = "llamacpp-0.3.32"
    reading = await read(url, asking("llamacpp"), {name})
    metrics = reading.samples[NAMESPACE, name][""]
    assert (metrics.prompt_tokens, metrics.cached_prompt_tokens) == (6886.0, NOT_EXPOSED)


async def test_an_engine_that_restarts_counts_from_zero(url: str, pod_metrics: dict[tuple[str, str], str]) -> None:
    request = asking("sglang")
    before = (await read(url, request, {RESTARTED})).samples[NAMESPACE, RESTARTED]["org/model"]
    pod_metrics[NAMESPACE, RESTARTED] = PAGES["sglang-0.5.23-idle"]
    for _ in range(600):
        after = (await read(url, request, {RESTARTED})).samples[NAMESPACE, RESTARTED]["org/model"]
        if after.generation_tokens != before.generation_tokens:
            break
        await asyncio.sleep(0.1)
    assert (before.generation_tokens, after.generation_tokens) == (1396, 14)
    assert isinstance(after.inter_token_latency, Unknown)


async def test_the_past_is_read_as_the_present(url: str) -> None:
    request = asking("sglang", models=frozenset({"org/model"}), pods=f"{SHADOWED}|sglang-0.5.10")
    await read(url, request, {SHADOWED, "sglang-0.5.10"})
    end = time.time()
    found = (await past_of(url, request, end - 5, end, NAMESPACE))[-1][1]
    assert {pod for _, pod in found} == {SHADOWED, "sglang-0.5.10"}
    assert found[NAMESPACE, SHADOWED]["org/model"].generation_tokens == 707


async def test_each_wrong_set_up_has_its_own_reason(serve: Serve, url: str) -> None:
    failed = ("SCRAPE_FAILED", "The scrape fails (up is 0): check path, port and credentials")
    silent = (
        "NO_ENGINE_SERIES",
        "The pods are scraped and export no sglang:num_running_reqs; perhaps SGLang runs without --enable-metrics",
    )
    pods = [*WRONG, "unscraped"]
    request = asking("sglang", explain=frozenset((NAMESPACE, pod) for pod in pods))
    reading = await read(url, request, {*WRONG})
    missing = reading.select(NAMESPACE, pods, "org/model").missing
    assert {pod: (one.cause.name, one.reason) for pod, one in missing.items()} == {
        "down": failed,
        # VictoriaMetrics leaves out lines that it cannot read, and counts a page without any other as scraped (up is 1).
        "html": silent if serve is BACKENDS["victoria-metrics-scraping"] else failed,
        "silent": silent,
        "other-engine": ("OTHER_ENGINE", "The pods export metrics of engine 'lmdeploy', and spec.engine is 'sglang'"),
        "other-model": (
            "OTHER_MODEL",
            "The pods export model_name 'org/other', and spec.model is 'org/model': set spec.model to 'org/other'",
        ),
        "no-model": ("WRONG_LABELS", "The pods export sglang:num_running_reqs without label model_name"),
        "unscraped": ("NOT_SCRAPED", "Prometheus does not scrape the pods (no series up)"),
    }


async def test_a_label_that_the_configuration_misnames_is_told(url: str) -> None:
    """The pods are named by another label than the configuration says."""
    request = asking("sglang", explain=frozenset({(NAMESPACE, "any")}))
    await read(url, replace(request, explain=frozenset()), {"sglang-0.5.10"})
    reading = await read_once(url, request, labels=SeriesLabels(pod="kubernetes_pod_name"))
    assert isinstance(reading, FleetReading)
    missing = reading.select(NAMESPACE, ["any"], "org/model").missing["any"]
    assert missing.cause.name == "WRONG_LABELS"
    assert "without label namespace or kubernetes_pod_name; set backends[].labels" in missing.reason
