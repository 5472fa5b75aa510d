"""A real Prometheus scrapes recorded pages, and every figure that is read back agrees with the page."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from servingpool.adapters.cluster.kinds import DEPLOYMENT
from servingpool.adapters.cluster.names import pods_of_any
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.plan import MOST_SLICES
from servingpool.adapters.prometheus.samples import ReadRequest
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics, Unknown

from .scrapes import each_second, page_job, past_of, served

THROUGH = ("prometheus", "installed")
"""The current Prometheus, which rewrites `le`, and the distribution's where there is one: 2.x keeps it as scraped."""
RECORDED = (Path(__file__).parents[1] / "fixtures" / "vllm-0.32.0-metrics.txt").read_text()
STARTED = time.time()
"""Before the first scrape."""
REQUEST = ReadRequest(ttft_bounds=frozenset({2.0}), tpot_bounds=frozenset({0.1}))
TTFT_BUCKETS = (0.5, 1.0, 2.5, 5.0, 7.5)
TPOT_BUCKETS = (0.025, 0.05, 0.1, 0.15, 0.2, 0.4)


def filled(scale: int, *, engine: str = "0") -> str:
    """The recorded page of an engine that has worked: each sample has a value of its own, buckets are cumulative."""
    lines, observed = [], 0
    for index, line in enumerate(RECORDED.splitlines()):
        name, _, old = line.rpartition(" ")
        value: float | str = old
        if "_bucket{" in name:
            observed += scale * (1 + index % 3)
            value = observed
        elif re.match(r"vllm:\w+_count\{", name):
            value, observed = observed, 0
        elif re.match(r"vllm:\w+\{", name) and not re.match(r"vllm:\w+_(created|info)\{", name):
            value = scale * (index + 0.5)
        lines.append(f"{name} {value}".replace('engine="0"', f'engine="{engine}"'))
    return "\n".join(lines) + "\n"


def samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def figure(page: str, name: str, **labels: str) -> float:
    """The sum of a page's samples of that name."""
    found = [
        value
        for sample, carried, value in samples(page)
        if sample == f"vllm:{name}" and all(carried.get(label) == wanted for label, wanted in labels.items())
    ]
    assert found, f"{name} is not on the page"
    return sum(found)


def histogram(page: str, name: str, bounds: tuple[float, ...]) -> Histogram:
    counts = tuple(figure(page, f"{name}_bucket", le=str(bound)) for bound in bounds)
    return Histogram(bounds, counts, figure(page, f"{name}_sum"), figure(page, f"{name}_count"))


def expected(page: str, pod: str, scraped_at: float) -> ReplicaMetrics:
    return ReplicaMetrics(
        replica=pod,
        scraped_at=scraped_at,
        running=figure(page, "num_requests_running"),
        waiting=figure(page, "num_requests_waiting"),
        generation_tokens=figure(page, "generation_tokens_total"),
        prompt_tokens=figure(page, "prompt_tokens_total"),
        cached_prompt_tokens=figure(page, "prompt_tokens_by_source_total", source="local_cache_hit")
        + figure(page, "prompt_tokens_by_source_total", source="external_kv_transfer"),
        admission_rejections=figure(page, "admission_rejections_total"),
        time_to_first_token=histogram(page, "time_to_first_token_seconds", TTFT_BUCKETS),
        inter_token_latency=histogram(page, "inter_token_latency_seconds", ()),
        time_per_output_token=histogram(page, "request_time_per_output_token_seconds", TPOT_BUCKETS),
    )


def two_ranks() -> str:
    """A data-parallel engine: a second rank's samples, less the one metric that has no rank."""
    second = [line for line in filled(3, engine="1").splitlines() if 'engine="1"' in line]
    return filled(1) + "\n".join(second) + "\n"


def before_0_12() -> str:
    """The page by the names of vLLM 0.9."""
    gone = ("inter_token", "by_source", "admission_rejections")
    page = "\n".join(line for line in filled(1).splitlines() if not any(name in line for name in gone))
    page = page.replace("request_time_per_output_token_seconds", "time_per_output_token_seconds")
    return f"{page}\n"


def not_a_number() -> str:
    return re.sub(r"(vllm:num_requests_waiting\{.*\}) .*", r"\1 NaN", filled(1))


PAGES = {
    "plain": filled(1),
    "plain-2": filled(2),
    "ranks": two_ranks(),
    "old": before_0_12(),
    "nan": not_a_number(),
    "silent": "\n".join(line for line in RECORDED.splitlines() if "vllm:" not in line) + "\n",
    "shadowed": two_ranks(),
}
"""Pods of one namespace. `silent` runs with --disable-log-stats."""


def configuration(target: str) -> dict[str, Any]:
    job = functools.partial(page_job, target, "reading")
    jobs = [job(pod) for pod in PAGES if pod != "shadowed"]
    jobs.append(job("plain", "twice"))  # a ServiceMonitor and a PodMonitor that match the same pod
    jobs.append(job("shadowed", model_name="gpu-workload", engine="vllm", source="kubernetes"))
    return each_second(jobs)


url = served("reading", {("reading", pod): page for pod, page in PAGES.items()}, configuration)


async def scraped(url: str, pods: set[str]) -> PrometheusBackend:
    """A backend whose Prometheus has scraped all these pods; it looked the buckets up when they were all there."""
    backend = PrometheusBackend(BackendConfig(url=url))
    for _ in range(600):
        reading = await backend.read(REQUEST, time.time())
        if not isinstance(reading, Unknown) and pods <= {pod for _, pod in reading.samples}:
            await backend.aclose()
            backend = PrometheusBackend(BackendConfig(url=url))
            await backend.read(REQUEST, time.time())
            return backend
        await asyncio.sleep(0.1)
    raise AssertionError(f"not scraped in 600 looks: {reading}")


async def test_every_figure_agrees_with_the_page(url: str) -> None:
    backend = await scraped(url, PAGES.keys() - {"silent"})
    reading = await backend.read(REQUEST, time.time())
    await backend.aclose()
    assert not isinstance(reading, Unknown)
    selection = reading.select("reading", PAGES, "tiny")
    pages = {page.replica: page for page in selection.samples}
    assert all(STARTED < page.scraped_at <= reading.at for page in selection.samples)
    at = {pod: page.scraped_at for pod, page in pages.items()}

    assert pages["plain"] == expected(PAGES["plain"], "plain", at["plain"])
    assert pages["plain-2"] == expected(PAGES["plain-2"], "plain-2", at["plain-2"])
    for pod in ("ranks", "shadowed"):
        assert pages[pod] == replace(expected(PAGES[pod], pod, at[pod]), sources=2.0)
    assert isinstance(pages["nan"].waiting, Unknown)
    assert pages["nan"].running == pages["plain"].running

    old = pages["old"]
    assert old.cached_prompt_tokens == figure(PAGES["old"], "prefix_cache_hits_total")
    assert old.admission_rejections is NOT_EXPOSED
    assert old.time_per_output_token == histogram(PAGES["old"], "time_per_output_token_seconds", TPOT_BUCKETS)
    assert old.inter_token_latency == old.time_per_output_token

    assert selection.explain() == "Not scraped, or vLLM runs with --disable-log-stats (pod silent)"
    assert reading.queries == 1


async def test_time_left_is_read_bucket_by_bucket_as_any_histogram_is(url: str) -> None:
    backend = await scraped(url, PAGES.keys() - {"silent"})
    name = "time_to_first_token_seconds_bucket"
    found = await backend.time_left(f'sum by (le) (vllm:{name}{{pod="plain-2"}})', 1.0)
    several = await backend.time_left(f"vllm:{name}", 1.0)
    await backend.aclose()
    counts = [figure(PAGES["plain-2"], name, le=le) for le in ("0.001", "2560.0", "+Inf")]
    assert isinstance(found, tuple)
    assert (found[0], found[-2:]) == ((1.0, counts[0]), ((640.0, counts[1]), (2560.0, counts[2])))
    assert isinstance(several, Unknown)
    assert "sum by (le) makes one" in several.reason


async def test_slices_together_are_the_whole(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = await scraped(url, PAGES.keys() - {"silent"})
    whole = await backend.read(REQUEST, time.time())
    monkeypatch.setattr("servingpool.adapters.prometheus.plan.ROWS_PER_SLICE", 10)
    sliced = await backend.read(REQUEST, time.time())
    await backend.aclose()
    assert not isinstance(whole, Unknown)
    assert not isinstance(sliced, Unknown)
    assert sliced.queries == MOST_SLICES
    # Their figures stand still; when each was scraped does not.
    pages = [
        {
            (pod, model): replace(page, scraped_at=0.0)
            for pod, models in reading.samples.items()
            for model, page in models.items()
        }
        for reading in (sliced, whole)
    ]
    assert pages[0] == pages[1]


async def test_a_label_matcher_narrows_the_reading(url: str) -> None:
    backend = await scraped(url, PAGES.keys() - {"silent"})
    request = ReadRequest(REQUEST.engine, REQUEST.ttft_bounds, REQUEST.tpot_bounds, (("job", "plain-2"),))
    reading = await backend.read(request, time.time())
    await backend.aclose()
    assert not isinstance(reading, Unknown)
    assert list(reading.samples) == [("reading", "plain-2")]


async def test_history_is_read_as_it_was(url: str) -> None:
    await (await scraped(url, PAGES.keys() - {"silent"})).aclose()
    end = time.time()
    past = await past_of(url, replace(REQUEST, recorded=True), end - 3600, end, "reading", "no-such")
    elsewhere = await past_of(url, REQUEST, end - 10, end, "no-such")
    assert len(past) == 3601
    assert past[0][1] == {}
    (page,) = past[-1][1]["reading", "plain"].values()
    waits = histogram(PAGES["plain"], "request_queue_time_seconds", (0.5, 1.0, 2.0, 2.5, 5.0, 10.0))
    assert page == replace(expected(PAGES["plain"], "plain", page.scraped_at), queue_time=waits)
    assert STARTED < page.scraped_at <= end
    assert all(pages == {} for _, pages in elsewhere)


async def test_only_the_requested_pods_are_read_from_history(url: str) -> None:
    """As a real Prometheus reads the expressions."""
    await (await scraped(url, {"plain", "plain-2"})).aclose()
    end = time.time()
    found = set()
    for pattern in ("plain-[0-9]{1,2}", pods_of_any([("plain-2", DEPLOYMENT), ("a" * 60, DEPLOYMENT)])):
        past = await past_of(url, replace(REQUEST, pods=pattern), end - 5, end, "reading")
        found.add(tuple(sorted({pod for _, pages in past for _, pod in pages})))
    assert found == {("plain-2",), ()}
