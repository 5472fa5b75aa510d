"""Which engine a pool names, and why its pods have no sample: each has its own reason, and nothing is scaled on it."""

from __future__ import annotations

import re

import pytest

from servingpool.adapters.prometheus.diagnosis import Cause, Missing
from servingpool.adapters.prometheus.engines import EngineMetrics, shipped
from servingpool.adapters.prometheus.rows import Unread
from servingpool.adapters.prometheus.samples import ANY_MODEL
from servingpool.api.serving_pool import ServingPool
from servingpool.loop.backfill import apart, past
from servingpool.reconcile.collect.readings import Readings

from .fake_cluster import FakeCluster
from .stories import serving, without_ttft

KNOWN = "llamacpp, lmdeploy, nim, ollama, sglang, tensorrt-llm, tgi, vllm"


def test_an_engine_that_nobody_knows_is_told_with_those_that_can_be_used() -> None:
    world = serving(30.0, minutes=5, engine="vlllm")
    assert world.condition("Ready") == ("False", "UnknownEngine")
    assert world.message("Ready") == f"spec.engine 'vlllm' cannot be used: known engines are {KNOWN}."
    assert world.writes.scales == []
    assert "read" not in world.prometheus.asked


def test_an_engine_that_exports_nothing_is_told_which_gateways_meter_it() -> None:
    world = FakeCluster(gateway="vllm-router")
    world.serve(rate=30.0)
    world.pool(engine="ollama")
    world.step()
    assert world.condition("Ready") == ("False", "UnknownEngine")
    assert world.message("Ready") == (
        "spec.engine 'ollama' cannot be used: it exports no metrics; "
        "set spec.metrics.gateway to a gateway that meters its requests (litellm)."
    )
    world.pool(engine="ollama", metrics={"gateway": {"name": "litellm"}})
    assert Readings(world.backends).problem(ServingPool.read(world.cache.pools["chat", "pool"])) is None


def test_an_engine_that_counts_no_requests_is_usable_behind_a_gateway_alone() -> None:
    world = FakeCluster()
    world.pool(engine="llamacpp")
    world.step()
    assert world.condition("Ready") == ("False", "UnknownEngine")
    assert world.message("Ready") == (
        "spec.engine 'llamacpp' cannot be used: it exports no count of requests; "
        "set spec.metrics.gateway to the gateway that counts them."
    )
    behind = FakeCluster(gateway="llm-d-epp")
    behind.pool(engine="llamacpp")
    assert Readings(behind.backends).problem(ServingPool.read(behind.cache.pools["chat", "pool"])) is None


def test_an_engine_of_the_configuration_is_known() -> None:
    world = serving(2.0, engine="acme")
    pool = ServingPool.read(world.cache.pools["chat", "pool"])
    acme = EngineMetrics.model_validate(shipped()["nim"].model_dump(by_alias=True))
    assert Readings(world.backends, {**shipped(), "acme": acme}).problem(pool) is None
    problem = Readings(world.backends).problem(pool)
    assert problem is not None
    assert problem[0] == "UnknownEngine"


def test_the_past_of_an_engine_that_names_no_model_is_told_by_namespace_and_pod() -> None:
    world = FakeCluster()
    ours, theirs = world.serve().engines[0], world.serve("other").engines[0]
    world.pool(engine="tensorrt-llm")
    pool = ServingPool.read(world.cache.pools["chat", "pool"])
    samples = {("chat", one.name): {ANY_MODEL: one.page(world.now)} for one in (ours, theirs)}
    history = apart([(world.now, samples)])["chat", ANY_MODEL]
    [(_, observation)] = past(pool, history)
    assert [replica.name for replica in observation.ready] == [ours.name]


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (Cause.NOT_SCRAPED, "NotScraped"),
        (Cause.SCRAPE_FAILED, "ScrapeFailed"),
        (Cause.NO_ENGINE_SERIES, "NoEngineSeries"),
        (Cause.OTHER_ENGINE, "WrongEngine"),
        (Cause.ROUTER, "RouterSeries"),
        (Cause.WRONG_LABELS, "WrongLabels"),
        (Cause.AMBIGUOUS, "AmbiguousGauges"),
    ],
)
def test_a_pool_without_any_sample_says_why_from_the_second_reading_on(cause: Cause, reason: str) -> None:
    world = FakeCluster()
    pods = {engine.name for engine in world.serve().engines}
    world.pool()
    world.hidden, world.prometheus.why = set(pods), Missing("so it is", cause)
    world.step()
    assert world.condition("MetricsAvailable") == ("False", "FailedGetMetrics")
    assert "Not scraped, or vLLM runs with --disable-log-stats" in world.message("MetricsAvailable")
    world.step()
    assert world.condition("MetricsAvailable") == ("False", reason)
    assert re.match(r"so it is \(2 pods: .*\)\. Replicas stay as they are\.", world.message("MetricsAvailable"))
    assert world.prometheus.explained == [set(), pods]


def test_nothing_is_asked_about_pods_that_have_their_samples() -> None:
    world = FakeCluster()
    first, second = (engine.name for engine in world.serve().engines)
    world.pool()
    world.hidden, world.prometheus.why = {first}, Missing("so it is", Cause.NOT_SCRAPED)
    world.step()
    world.step()
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert f"so it is (pod {first})" in world.message("MetricsAvailable")
    assert second not in world.message("MetricsAvailable")
    world.hidden = set()
    world.step(minutes=1)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
    assert world.prometheus.explained[-1] == set()


def test_histograms_that_are_stored_as_native_ones_name_the_setting() -> None:
    """Else the message says to update the engine, which would not help."""
    world = FakeCluster()
    pods = [engine.name for engine in world.serve(rate=6.0).engines]
    world.pool()
    world.exports = without_ttft
    world.prometheus.native = {("chat", pod) for pod in pods}
    world.step(minutes=1)
    assert world.condition("MetricsAvailable") == ("False", "NativeHistograms")
    assert world.message("MetricsAvailable") == (
        f"{', '.join(sorted(pods))}: histograms are stored as native ones only. "
        "Set always_scrape_classic_histograms: true."
    )


def test_series_of_a_pools_own_pod_that_cannot_be_read_are_named_and_it_is_decided_without_them() -> None:
    world = FakeCluster()
    pod = world.serve(rate=6.0).engines[0].name
    world.pool()
    world.prometheus.unread = Unread(
        count=3, pods={("chat", pod): "x_bucket has no label le", ("other", "odd"): "y has no label pod"}
    )
    done = world.step()
    world.step(minutes=1)
    assert world.condition("MetricsAvailable") == ("True", "UnreadableSeries")
    assert world.message("MetricsAvailable") == f"x_bucket has no label le (pod {pod}). Those series are left out."
    assert done.unreadable == 3
    assert done.decided == 1
