"""The emulator's page of each engine, read by the operator's profile of that engine, is what the simulation shows."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from servingpool.adapters.prometheus import page as pages
from servingpool.adapters.prometheus.engines import profile_of
from servingpool.adapters.prometheus.samples import ReadRequest, with_own_buckets
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics, Unknown
from servingpool.decision.pool import Slo
from servingpool_lab.emulator.engine_pages import PAGES
from servingpool_lab.emulator.exposition import Server, render
from servingpool_lab.engine_pod.options import Options
from servingpool_simulation.conduct import CONDUCTS
from servingpool_simulation.engine import Engine
from servingpool_simulation.fleet import Fleet
from servingpool_simulation.hardware import flat_profile
from servingpool_simulation.scrape import ScrapeOptions, Scraper
from servingpool_simulation.traces import Trace

from .engine_pods import QUICK, engine_pod

FIXTURES = Path(__file__).parents[2] / "fixtures" / "engines"
SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1)
LATE = {"trtllm_prompt_cached_tokens_total"}
"""Not on the recorded page: an engine prints it from its first cached token on."""
CROWD = 24


def printed(engine: str, at: float) -> str:
    """The page of an emulated engine on which 24 requests of 100 tokens came at once, eight at a time, 60 ms a step."""
    profile = replace(flat_profile(0.06, max_num_seqs=8), conduct=CONDUCTS[engine])
    one = Engine(profile, start=0.0)
    for _ in range(CROWD):
        one.submit(0.0, 500, 100)
    one.advance(at)
    return render(Server("org/model", profile, 0.0), one.metrics()).decode()


def simulated(engine: str, at: float) -> ReplicaMetrics:
    """What the simulation shows a policy of the same."""
    trace = Trace("crowd", np.zeros(CROWD), np.full(CROWD, 500), np.full(CROWD, 100), duration=60.0)
    fleet = Fleet(replace(flat_profile(0.06, max_num_seqs=8), conduct=CONDUCTS[engine]), trace)
    fleet.start_ready(1)
    watch = Scraper(fleet, SLO, ScrapeOptions(interval=0.001))
    watch.arm(at)
    fleet.advance(at)
    metrics = watch.observe().metrics
    assert not isinstance(metrics, Unknown)
    return metrics[0]


@pytest.mark.parametrize("at", [3.03, 6.07, 30.0])
@pytest.mark.parametrize("engine", PAGES)
def test_the_operator_reads_off_the_page_what_the_simulation_shows(engine: str, at: float) -> None:
    profile = profile_of(engine)
    request = ReadRequest(engine, ttft_bounds=frozenset({2.0}), tpot_bounds=frozenset({0.1}))
    read = pages.read(profile, pages.parse(printed(engine, at)), request)["org/model" if profile.model_label else ""]
    read = with_own_buckets(read, 2.0, 0.1)
    shown = simulated(engine, at)
    for one in fields(ReplicaMetrics):
        ours, theirs = getattr(read, one.name), getattr(shown, one.name)
        if one.name in {"replica", "scraped_at", "kv_cache_usage", "admission_rejections"}:
            continue
        if one.name == "begun" and theirs is NOT_EXPOSED:
            continue
        if isinstance(theirs, Histogram):
            assert isinstance(ours, Histogram), one.name
            assert (ours.count, ours.total) == (theirs.count, pytest.approx(theirs.total)), one.name
            mine = dict(zip(ours.bounds, ours.counts, strict=True))
            assert all(mine[le] == count for le, count in zip(theirs.bounds, theirs.counts, strict=True) if le in mine)
        else:
            assert ours == theirs, one.name


@pytest.mark.parametrize("engine", PAGES)
def test_each_name_and_label_is_one_of_the_engines_own_page(engine: str) -> None:
    real = labels_by_name("".join(path.read_text() for path in sorted(FIXTURES.glob(f"{engine}-*.txt"))))
    for name, labels in labels_by_name(printed(engine, 30.0)).items():
        if name not in LATE:
            assert labels <= real[name], name


def labels_by_name(page: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for sample in pages.parse(page):
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_an_engine_that_finishes_what_it_has_is_not_told_for_how_long() -> None:
    def timeout(*arguments: str) -> float:
        return Options.parse(["serve", "org/model", *arguments]).shutdown_timeout

    assert (timeout(), timeout("--engine", "sglang")) == (0.0, math.inf)
    assert timeout("--engine", "sglang", "--shutdown-timeout", "20") == 20.0


async def test_an_engine_that_finishes_what_it_has_says_in_its_health_that_it_ends() -> None:
    for engine, status in (("sglang", 503), ("vllm", 200)):
        async with engine_pod(replace(QUICK, conduct=CONDUCTS[engine])) as pod, aiohttp.ClientSession() as http:
            for draining, expected in ((False, 200), (True, status)):
                pod.server.draining = draining
                async with http.get(f"{pod.url}/health") as answer:
                    assert (engine, answer.status) == (engine, expected)
