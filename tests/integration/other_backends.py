"""What only a server over several stores has: answers in part, HA pairs, tenants.

`make test-backends` names this file; `make test` does not collect it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.samples import FleetReading, ReadRequest
from servingpool.decision.observation import ReplicaMetrics, Unknown

from .backends import Thanos, VictoriaMetrics, programs, writing
from .conftest import PodMetrics
from .scrapes import each_second, page_job, past_of, read_once, read_when
from .test_prometheus_reading import expected, filled
from .test_promql_value import answered

NAMESPACE = "stores"
PODS = ("one", "two")
REQUEST = ReadRequest(
    ttft_bounds=frozenset({2.0}), tpot_bounds=frozenset({0.1}), explain=frozenset((NAMESPACE, pod) for pod in PODS)
)
TEAMS = ("team-a", "team-b")
PARTIAL = "Prometheus backend 'default' gave a partial answer; check the stores that it reads from"


@pytest.fixture
def jobs(pod_metrics: PodMetrics, metrics_target: str) -> dict[str, dict[str, Any]]:
    """A job that scrapes each pod."""
    pod_metrics.update({(NAMESPACE, pod): filled(scale) for scale, pod in enumerate(PODS, start=1)})
    return {pod: page_job(metrics_target, NAMESPACE, pod) for pod in PODS}


def found(reading: FleetReading) -> set[str]:
    return {pod for namespace, pod in reading.samples if namespace == NAMESPACE}


def both(reading: FleetReading) -> bool:
    return found(reading) == {*PODS}


def assert_as_on_the_pages(reading: FleetReading) -> None:
    for scale, pod in enumerate(PODS, start=1):
        (sample,) = reading.samples[NAMESPACE, pod].values()
        assert sample == expected(filled(scale), pod, sample.scraped_at)


async def until(wanted: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(600):
        if await wanted():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("not so in 600 looks")


async def copies(url: str, count: int) -> None:
    """Wait until each pod is there so many times."""

    async def there() -> bool:
        return [len(await answered(url, f'up{{pod="{pod}"}}')) for pod in PODS] == [count] * len(PODS)

    await until(there)


@pytest.mark.parametrize(("label", "merged"), [("replica", True), ("replica", False), ("copy", False)])
async def test_a_pair_behind_thanos_counts_once(
    jobs: dict[str, Any], tmp_path: Path, label: str, *, merged: bool
) -> None:
    """Whether Thanos knows the label of its replicas or not, and whatever its name is."""
    programs("thanos")
    with Thanos(tmp_path) as parts:
        pair = [parts.scraper(each_second([*jobs.values()]), name, **{label: name}) for name in ("a", "b")]
        stores = [parts.sidecar(url, f"sidecar-{place}") for place, url in enumerate(pair)]
        flags = [f"--query.replica-label={label}"] if merged else []
        url = parts.querier(*flags, *(f"--endpoint={one.address}" for one in stores))
        await copies(url, 1 if merged else 2)
        assert_as_on_the_pages(await read_when(url, REQUEST, both))


@pytest.mark.parametrize("label", ["prometheus_replica", "copy"])
async def test_a_pair_that_writes_to_victoriametrics_counts_once(
    jobs: dict[str, Any], tmp_path: Path, label: str
) -> None:
    programs("victoria-metrics")
    with VictoriaMetrics(tmp_path) as parts:
        url = parts.server()
        for name in ("a", "b"):
            parts.scraper(writing(each_second([*jobs.values()]), url), name, **{label: name})
        await copies(url, 2)
        assert_as_on_the_pages(await read_when(url, REQUEST, both))


class Course:
    """Readings while a store stops and comes back."""

    def __init__(self, url: str) -> None:
        self.backend = PrometheusBackend(BackendConfig(url=url))
        self.seen: list[FleetReading | Unknown] = []

    async def until(self, wanted: Callable[[FleetReading | Unknown], bool]) -> FleetReading | Unknown:
        """The first reading as wanted; all are kept."""

        async def read() -> bool:
            self.seen.append(await self.backend.read(REQUEST, time.time()))
            return wanted(self.seen[-1])

        await until(read)
        return self.seen[-1]


def whole(reading: FleetReading | Unknown) -> bool:
    return isinstance(reading, FleetReading) and both(reading)


def partial(reading: FleetReading | Unknown) -> bool:
    return reading == Unknown(PARTIAL)


async def test_a_thanos_whose_store_is_gone_is_unknown_until_it_is_back(jobs: dict[str, Any], tmp_path: Path) -> None:
    """Each pod is in one store. With --endpoint-strict the answer stays a partial one."""
    programs("thanos")
    with Thanos(tmp_path) as parts:
        scrapers = [parts.scraper(each_second([job]), pod, cluster=pod) for pod, job in jobs.items()]
        stores = [parts.sidecar(url, f"sidecar-{place}") for place, url in enumerate(scrapers)]
        url = parts.querier(*(f"--endpoint-strict={one.address}" for one in stores))
        course = Course(url)
        await course.until(whole)
        start = len(course.seen)
        stores[1].process.stop()
        await course.until(partial)
        for _ in range(100):  # ten seconds: Thanos looks for its stores every five
            await course.until(lambda _: True)
            await asyncio.sleep(0.1)
        assert all(whole(one) or partial(one) for one in course.seen[start:])
        assert partial(course.seen[-1])
        stores[1].process.start().wait_ready()
        await course.until(whole)
        await course.backend.aclose()


async def test_a_pod_of_a_store_that_thanos_forgot_is_not_scraped(jobs: dict[str, Any], tmp_path: Path) -> None:
    """Without --endpoint-strict Thanos answers as if the store had never been."""
    programs("thanos")
    with Thanos(tmp_path) as parts:
        scrapers = [parts.scraper(each_second([job]), pod, cluster=pod) for pod, job in jobs.items()]
        stores = [parts.sidecar(url, f"sidecar-{place}") for place, url in enumerate(scrapers)]
        course = Course(parts.querier(*(f"--endpoint={one.address}" for one in stores)))
        await course.until(whole)
        stores[1].process.stop()

        def told(one: FleetReading | Unknown) -> bool:
            """The samples and the causes are two queries: at first the one may be whole and the other still partial."""
            return isinstance(one, FleetReading) and found(one) == {"one"} and (NAMESPACE, "two") in one.causes

        reading = await course.until(told)
        assert isinstance(reading, FleetReading)
        (missing,) = reading.select(NAMESPACE, PODS, "tiny").missing.values()
        assert missing.cause.name == "NOT_SCRAPED"
        await course.backend.aclose()


async def told_of_another_tenant(url: str, **settings: Any) -> None:
    """A reading has nothing, and says why."""
    reading = await read_once(url, REQUEST, **settings)
    assert isinstance(reading, FleetReading)
    assert reading.samples == {}
    said = {one.reason for one in reading.select(NAMESPACE, PODS, "tiny").missing.values()}
    assert said == {
        "Prometheus has no series up at all: check url and headers of the backend, which may name another tenant"
    }


async def test_a_tenant_of_thanos_is_a_header(jobs: dict[str, Any], tmp_path: Path) -> None:
    programs("thanos")
    for job in jobs.values():
        job["static_configs"][0]["labels"]["tenant_id"] = "team-a"
    with Thanos(tmp_path) as parts:
        store = parts.sidecar(parts.scraper(each_second([*jobs.values()]), replica="a"))
        url = parts.querier(f"--endpoint={store.address}", "--query.enforce-tenancy")
        assert_as_on_the_pages(await read_when(url, REQUEST, both, headers={"THANOS-TENANT": "team-a"}))
        await told_of_another_tenant(url, headers={"THANOS-TENANT": "team-b"})
        await told_of_another_tenant(url)


async def test_a_tenant_of_victoriametrics_is_a_token(jobs: dict[str, Any], tmp_path: Path) -> None:
    """vmauth gives each token the path and the labels of its tenant."""
    programs("victoria-metrics")
    for job in jobs.values():
        job["static_configs"][0]["labels"]["tenant"] = "team-a"
    with VictoriaMetrics(tmp_path) as parts:
        server = parts.server()
        parts.scraper(writing(each_second([*jobs.values()]), server))
        users = [{"bearer_token": one, "url_prefix": f"{server}?extra_label=tenant={one}"} for one in TEAMS]
        (tmp_path / "auth.yaml").write_text(yaml.safe_dump({"users": users}))
        url = parts.part("vmauth", f"-auth.config={tmp_path / 'auth.yaml'}")
        tokens = {one: tmp_path / one for one in (*TEAMS, "nobody")}
        for one, file in tokens.items():
            file.write_text(one)
        assert_as_on_the_pages(await read_when(url, REQUEST, both, bearer_token_file=tokens["team-a"]))
        await told_of_another_tenant(url, bearer_token_file=tokens["team-b"])
        reading = await read_once(url, REQUEST, bearer_token_file=tokens["nobody"])
        assert reading == Unknown("Prometheus backend 'default' answered HTTP 401")


async def test_victoriametrics_tells_each_second_what_prometheus_tells(
    jobs: dict[str, Any], pod_metrics: PodMetrics, tmp_path: Path
) -> None:
    """The same scrapes: counters that rise, a restart, and a pod that is gone. No figure may differ by anything."""
    programs("victoria-metrics")
    with VictoriaMetrics(tmp_path) as parts:
        server = parts.server()
        scraper = parts.scraper(writing(each_second([*jobs.values()]), server))
        await read_when(server, REQUEST, both)
        start = time.time()
        for scale in (*range(2, 8), 1):
            pod_metrics[NAMESPACE, "one"] = filled(scale)
            await asyncio.sleep(1.1)
        del pod_metrics[NAMESPACE, "two"]
        for url in (scraper, server):
            await read_when(url, REQUEST, lambda one: found(one) == {"one"})
        end = time.time()
        await read_when(server, REQUEST, lambda one: one.at > end + 6)  # it answers for its last 5 s as of before
        told = []
        for url in (scraper, server):
            past = await past_of(url, REQUEST, start, end, NAMESPACE)
            told.append([(round(at - start), _rounded(samples)) for at, samples in past])
        ours, theirs = told
        assert len({str(samples) for _, samples in ours}) > 5
        assert theirs == ours


def _rounded(samples: Any) -> dict[str, ReplicaMetrics]:
    """Scrape times to the millisecond that both keep."""
    return {
        pod: replace(sample, scraped_at=round(sample.scraped_at, 3))
        for (_, pod), models in sorted(samples.items())
        for sample in models.values()
    }


async def test_the_newest_scrape_is_read(jobs: dict[str, Any], tmp_path: Path) -> None:
    """VictoriaMetrics answers as of 30 s ago where nobody asks for more."""
    programs("victoria-metrics")
    with VictoriaMetrics(tmp_path) as parts:
        url = parts.server()
        parts.scraper(writing(each_second([*jobs.values()]), url))
        reading = await read_when(url, REQUEST, both)
        ages = [reading.at - sample.scraped_at for models in reading.samples.values() for sample in models.values()]
        assert max(ages) < 15.0
