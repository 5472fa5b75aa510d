"""A pool whose engine exports nothing, as Ollama: its gateway stands for the pods, and what it does not tell is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servingpool.adapters.prometheus.samples import ANY_MODEL
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics, Unknown

from .fake_cluster import TICK, FakeCluster

LITELLM = ("chat", "litellm-7c9f-bbbbb")
NEW = ("chat", "litellm-7c9f-ccccc")
TOKENS, SECONDS = 20, 2.0
Page = dict[str, ReplicaMetrics]


class Metered:
    """Ollama behind LiteLLM, which counts requests of twenty tokens and two seconds each."""

    def __init__(self, *, replicas: int = 2, rate: float = 0.4, **spec: Any) -> None:
        self.world, self.rate, self.ended = FakeCluster(), rate, 40.0
        self.world.serve("ollama", replicas=replicas).args = ("serve", "--max-num-seqs=2")
        self.world.hidden = {engine.name for engine in self.world.services["ollama"].engines}
        gateway = {"name": "litellm", "workload": "litellm"}
        self.world.pool(target="ollama", engine="ollama", metrics={"gateway": gateway}, **spec)

    def page(self, **figures: Any) -> Page:
        """Of all that ended so far; in flight is what the rate makes of two seconds, of all models."""
        ended = self.ended
        counted: dict[str, Any] = {
            "begun": ended,
            "generation_tokens": TOKENS * ended,
            "prompt_tokens": 100.0 * ended,
            "time_to_first_token": Histogram((2.0,), (ended,), 0.2 * ended, ended),
            "inter_token_latency": Histogram((), (), 1.8 * ended, (TOKENS - 1) * ended),
        }
        at, pod = self.world.now + TICK, LITELLM[1]
        return {
            "llama": ReplicaMetrics(pod, at, **{**counted, **figures}),
            ANY_MODEL: ReplicaMetrics(pod, at, running=SECONDS * self.rate),
        }

    def step(self, minutes: float, **figures: Any) -> None:
        for _ in range(round(minutes * 60 / TICK)):
            self.ended += self.rate * TICK
            self.told({LITELLM: self.page(**figures)})

    def told(self, pages: Mapping[tuple[str, str], Page] | Unknown) -> None:
        """One tick in which the gateway's pods say so."""
        self.world.prometheus.gateways = pages
        self.world.step()


def test_a_metered_pool_says_whose_figures_it_is_scaled_by_and_where_its_slo_is_measured() -> None:
    pool = Metered()
    pool.step(minutes=20)
    assert pool.world.condition("MetricsAvailable") == ("True", "MeteredAtGateway")
    assert pool.world.message("MetricsAvailable") == (
        "The engine exports no metrics: each of 2 replicas is taken to carry an equal share of the gateway's."
    )
    assert "Time to first token is measured at the gateway." in pool.world.message("SLOMet")
    assert pool.world.status()["throughput"]["generationTokensPerSecond"] == pool.rate * TOKENS
    assert pool.world.prometheus.explained[-1] == set(), "nobody asks why the pods have no sample"


def test_more_requests_than_the_replicas_run_at_once_add_a_replica() -> None:
    pool = Metered(rate=0.4)
    pool.step(minutes=15)
    pool.rate = 4.0
    pool.step(minutes=0.5)
    assert pool.world.status()["queueDepth"] == 4.0, "8 in flight, 2 times 2 run"
    pool.step(minutes=2.5)
    assert pool.world.status()["desiredReplicas"] > 2


def test_a_gateway_that_is_not_scraped_is_unknown_and_nothing_is_scaled() -> None:
    pool = Metered(replicas=4)
    pool.step(minutes=15)
    scales = list(pool.world.writes.scales)
    for _ in range(120):
        pool.told({})
    assert pool.world.condition("MetricsAvailable") == ("False", "FailedGetMetrics")
    said = "Prometheus has no series of a gateway litellm of workload 'litellm' in namespace chat"
    assert said in pool.world.message("MetricsAvailable")
    pool.told(Unknown("Prometheus backend 'default' did not answer within 10 s"))
    assert "did not answer within 10 s" in pool.world.message("MetricsAvailable")
    assert pool.world.writes.scales == scales


def test_a_model_that_the_gateway_never_served_is_named() -> None:
    pool = Metered()
    for _ in range(4):
        pool.told({LITELLM: {ANY_MODEL: pool.page()[ANY_MODEL]}})
    assert pool.world.condition("MetricsAvailable") == ("False", "FailedGetMetrics")
    assert "gateway litellm exports no series of model 'llama'" in pool.world.message("MetricsAvailable")


def test_series_of_the_model_that_go_are_not_read_as_idleness_and_a_new_gateway_pod_without_any_is() -> None:
    pool = Metered(replicas=4)
    pool.step(minutes=15)
    before = pool.world.status()["desiredReplicas"]
    pool.rate = 0.0
    for _ in range(120):
        pool.told({LITELLM: {ANY_MODEL: pool.page()[ANY_MODEL]}})
    assert pool.world.status()["desiredReplicas"] == before
    assert pool.world.condition("MetricsAvailable") == ("False", "FailedGetMetrics")
    for _ in range(120):
        pool.told({NEW: {ANY_MODEL: pool.page()[ANY_MODEL]}})
    assert pool.world.condition("MetricsAvailable") == ("True", "MeteredAtGateway")
    assert pool.world.status()["desiredReplicas"] == 1


def test_requests_of_a_gateway_that_serves_another_model_too_are_no_queue_of_this_one() -> None:
    pool = Metered(replicas=4)
    pool.step(minutes=15)
    scales = list(pool.world.writes.scales)
    for _ in range(120):
        pool.ended += pool.rate * TICK
        pool.told({LITELLM: {**pool.page(), "mistral": pool.page()["llama"]}})
    assert pool.world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert pool.world.message("MetricsAvailable") == (
        "The number of queued requests is unknown: its requests in flight are of several models together: "
        "give the pool a gateway of its own. Scale-down is blocked until all metrics are read."
    )
    assert pool.world.writes.scales == scales


def test_several_targets_of_a_metered_engine_are_refused() -> None:
    """The gateway does not tell which of them served a request."""
    pool = Metered(targets=[{"name": "ollama", "max": 4}, {"name": "spot", "max": 4}])
    pool.world.serve("spot", replicas=1)
    pool.step(minutes=1)
    assert pool.world.condition("Ready") == ("False", "UnknownEngine")
    assert pool.world.message("Ready") == (
        "spec.engine 'ollama' cannot be used: it exports no metrics, so the targets cannot be told apart; "
        "use a pool for each target."
    )
    assert pool.world.writes.scales == []


def test_clients_that_do_not_stream_are_told_that_litellm_counts_no_first_token_then() -> None:
    pool = Metered()
    pool.step(minutes=2, time_to_first_token=NOT_EXPOSED)
    assert pool.world.condition("MetricsAvailable") == ("False", "MissingFigures")
    assert pool.world.message("MetricsAvailable").startswith(
        "The engine exports no metrics, and the gateway does not tell time to first token."
    )
