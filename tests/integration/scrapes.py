"""Pages of pods that one server speaks for, scraped by a real Prometheus and read as the operator reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.samples import FleetReading, PodSamples, ReadRequest
from servingpool.decision.observation import Unknown

from .backends import Serve


def page_job(target: str, namespace: str, pod: str, name: str = "", **labels: str) -> dict[str, Any]:
    """A job that scrapes the page of a pod at that host and port; its target has these labels too."""
    return {
        "job_name": name or pod,
        "metrics_path": f"/pods/{namespace}/{pod}/metrics",
        "static_configs": [{"targets": [target], "labels": {"namespace": namespace, "pod": pod, **labels}}],
    }


def each_second(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """The configuration of a Prometheus with these jobs."""
    return {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}


def served(namespace: str, pages: Mapping[tuple[str, str], str], configuration: Callable[[str], dict[str, Any]]) -> Any:
    """The fixture `url` of a module: these pages, scraped as the configuration for their server's address says."""

    @pytest.fixture(scope="module")
    def url(
        serve: Serve,
        pod_metrics: dict[tuple[str, str], str],
        metrics_target: str,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[str]:
        pod_metrics.update(pages)
        with serve(configuration(metrics_target), tmp_path_factory.mktemp(namespace)) as url:
            yield url

    return url


async def read_once(url: str, request: ReadRequest, **settings: Any) -> FleetReading | Unknown:
    """A reading now. `settings`: further ones of the backend."""
    async with aclosing(PrometheusBackend(BackendConfig(url=url, **settings))) as backend:
        return await backend.read(request, time.time())


async def past_of(
    url: str, request: ReadRequest, start: float, end: float, *namespaces: str
) -> Sequence[tuple[float, PodSamples]]:
    """The history from `start` to `end`, Unix seconds, each second."""
    async with aclosing(PrometheusBackend(BackendConfig(url=url))) as backend:
        past = await backend.history(request, start=start, end=end, step=1, namespaces=namespaces)
    assert not isinstance(past, Unknown)
    return past


async def read_when(
    url: str, request: ReadRequest, wanted: Callable[[FleetReading], bool], **settings: Any
) -> FleetReading:
    """A reading as wanted, whose buckets were looked up when it was so already."""
    reading: FleetReading | Unknown = Unknown("not read")
    complete = False
    for _ in range(600):
        reading = await read_once(url, request, **settings)
        if not isinstance(reading, Unknown) and wanted(reading):
            if complete:
                return reading
            complete = True  # the buckets were looked up before the samples, so perhaps too early
        else:
            await asyncio.sleep(0.1)
    raise AssertionError(f"not so in 600 looks: {reading}")
