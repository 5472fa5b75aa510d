"""What a read costs Prometheus: its own query log, for a real vLLM page of each of 1,000 pods.

`python benchmarks/query_cost.py` starts a real Prometheus, writes ten minutes of scrapes through its remote-write
receiver, and reads them as a tick of the operator does: once with the look-up of the buckets, once without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from history_in_prometheus import field, receiving, send, series
from prometheus_client.parser import text_string_to_metric_families
from reporting import ROOT, show, write

from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.samples import FleetReading, ReadRequest

PAGE = ROOT / "tests" / "fixtures" / "vllm-0.32.0-metrics.txt"
SCRAPED = 15.0
"""Seconds between two scrapes."""
LASTS, AHEAD = 600.0, 600.0
"""Seconds of scrapes before the run, and after its begin: it takes minutes, and nothing may be stale when it reads."""
REQUEST = ReadRequest(ttft_bounds=frozenset({2.0}), tpot_bounds=frozenset({0.1}))
"""One SLO for all pools."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--no-results", action="store_true", help="write neither figures nor page")
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        found = measured(Path(directory), options.pods)
    name = f"A read of {options.pods} pods, in Prometheus"
    show(name, found)
    if not options.no_results:
        write(name, found)


def measured(directory: Path, pods: int) -> dict[str, Any]:
    """What a tick's read cost, as Prometheus has logged it."""
    log, began, held = directory / "queries.log", time.time(), 0
    with receiving(directory, f"global: {{query_log_file: {log}}}") as url:
        for number in range(pods):
            count, body = scrapes(number, began)
            held += count
            send(url, body)
        logged = asyncio.run(reads(url, log))
    return {
        "pods": pods,
        "series": held,
        "seconds_between_scrapes": SCRAPED,
        "first_tick": summary(logged[0]),
        "steady": summary(logged[1]),
    }


def scrapes(number: int, began: float) -> tuple[int, bytes]:
    """How many series a pod has, and a remote-write request with all that was scraped of it. Counters grow."""
    at = np.arange(began - LASTS, began + AHEAD, SCRAPED)
    body, count = bytearray(), 0
    target = {
        "namespace": f"team-{number // 40}",
        "pod": f"llm-{number}",
        "job": "vllm",
        "instance": f"llm-{number}:8000",
    }
    for family in text_string_to_metric_families(PAGE.read_text()):
        grows = family.type in ("counter", "histogram")
        for sample in family.samples:
            values = sample.value * (1 + (at - at[0]) / 3600) if grows else np.full(len(at), sample.value)
            body += field(1, series({"__name__": sample.name, **sample.labels, **target}, at, values, np.empty(0)))
            count += 1
    return count, bytes(body)


async def reads(url: str, log: Path) -> list[list[dict[str, Any]]]:
    """Prometheus's log of the queries of two reads; the first looks up the buckets."""
    backend = PrometheusBackend(BackendConfig(url=url, timeout="60s"))
    logged: list[list[dict[str, Any]]] = []
    try:
        for _ in range(2):
            found = await backend.read(REQUEST, time.monotonic())
            assert isinstance(found, FleetReading), found
            assert not found.stale, "the scrapes are too old: raise AHEAD"
            entries = [json.loads(line) for line in log.read_text().splitlines()]  # noqa: ASYNC240, nothing else runs
            logged.append(entries[sum(len(one) for one in logged) :])
            assert len(logged[-1]) == found.queries
    finally:
        await backend.close()
    return logged


def summary(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What some queries cost, together."""
    samples = [entry["stats"]["samples"] for entry in entries]
    return {
        "queries": len(entries),
        "samples_read": sum(one["totalQueryableSamples"] for one in samples),
        "samples_held_at_most": max(one["peakSamples"] for one in samples),
        "seconds_of_evaluation": round(sum(entry["stats"]["timings"]["evalTotalTime"] for entry in entries), 3),
    }


if __name__ == "__main__":
    main()
