"""Engines that count no requests, as llama.cpp: begun is what came to their gateway and does not wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from servingpool.adapters.gateways.completed import NOTHING, completed
from servingpool.adapters.gateways.first_tokens import Unbegun, with_first_tokens
from servingpool.decision.decide import decide
from servingpool.decision.decision import Decision
from servingpool.decision.increase import Counts
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import (
    NOT_EXPOSED,
    GatewayMetrics,
    Histogram,
    Observation,
    Replica,
    ReplicaMetrics,
    Unknown,
)
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.samples import NO_ARRIVALS, missing_series
from servingpool.decision.pool import Pool, Slo

START, TICK = 1_700_000_000.0, 15.0
SLO = Slo(time_to_first_token=1.0, time_per_output_token=0.1)
Prompts = Mapping[str, float]


def seen(arrivals: float, prompts: Prompts, *, waiting: float = 0.0, at: float = START) -> Observation:
    """Of replicas by their prompt tokens; the first has the queue."""
    metrics = tuple(
        ReplicaMetrics(
            replica=name,
            scraped_at=at,
            running=2.0,
            waiting=0.0 if number else waiting,
            generation_tokens=10.0 * tokens,
            prompt_tokens=tokens,
            prefill_seconds=tokens / 1000.0,
            ttft_from_admission=True,
            inter_token_latency=Histogram((), (), 0.4 * tokens, 10.0 * tokens),
        )
        for number, (name, tokens) in enumerate(prompts.items())
    )
    ready = tuple(Replica(name, 9_999.0, 9_000.0) for name in prompts)
    return Observation(len(ready), ready, metrics=metrics, gateway=GatewayMetrics(at, arrivals=arrivals))


class Counting:
    """Observations in turn, and the requests that each replica has begun by then."""

    def __init__(self) -> None:
        self.unbegun: Unbegun | None = None
        self.at = START

    def begun(self, observation: Observation) -> dict[str, float]:
        self.at += TICK
        if not isinstance(observation.metrics, Unknown):
            scraped = tuple(replace(one, scraped_at=self.at) for one in observation.metrics)
            observation = replace(observation, metrics=scraped)
        filled, self.unbegun = with_first_tokens(observation, self.unbegun, self.at)
        assert not isinstance(filled.metrics, Unknown)
        found = {}
        for one in filled.metrics:
            assert isinstance(one.time_to_first_token, Histogram)
            found[one.replica] = one.time_to_first_token.count
        return found


def test_what_came_to_the_gateway_and_does_not_wait_has_begun_by_replica_in_proportion_to_prompt_tokens() -> None:
    counting = Counting()
    assert counting.begun(seen(500.0, {"a": 1000.0, "b": 1000.0})) == {"a": 0.0, "b": 0.0}
    assert counting.begun(seen(520.0, {"a": 2200.0, "b": 1300.0}, waiting=5.0)) == {"a": 12.0, "b": 3.0}
    assert counting.begun(seen(520.0, {"a": 2700.0, "b": 1300.0})) == {"a": 17.0, "b": 3.0}


def test_a_scrape_of_the_engine_before_the_gateway_s_loses_no_request() -> None:
    counting = Counting()
    counting.begun(seen(0.0, {"a": 0.0}))
    # Ten wait already of which the gateway's older scrape has six; then they begin while the count stands still.
    assert counting.begun(seen(6.0, {"a": 100.0}, waiting=10.0)) == {"a": 0.0}
    assert counting.begun(seen(12.0, {"a": 100.0}, waiting=2.0)) == {"a": 0.0}
    assert counting.begun(seen(12.0, {"a": 900.0})) == {"a": 12.0}


def test_an_engine_that_restarts_counts_anew_and_has_begun_its_part_of_what_came_since() -> None:
    counting = Counting()
    counting.begun(seen(0.0, {"a": 5000.0, "b": 5000.0}))
    counting.begun(seen(10.0, {"a": 5500.0, "b": 5500.0}))
    assert counting.begun(seen(16.0, {"a": 100.0, "b": 5800.0})) == {"a": 1.5, "b": 9.5}


def test_a_tick_without_a_sample_forgets_no_request_that_has_not_begun() -> None:
    counting = Counting()
    counting.begun(seen(0.0, {"a": 100.0}))
    counting.begun(seen(10.0, {"a": 100.0}, waiting=10.0))
    counting.begun(replace(seen(10.0, {"a": 100.0}), metrics=()))
    assert counting.begun(seen(12.0, {"a": 900.0})) == {"a": 12.0}


def test_while_a_queue_is_not_told_those_that_waited_wait_on() -> None:
    counting = Counting()
    counting.begun(seen(0.0, {"a": 100.0}))
    counting.begun(seen(10.0, {"a": 200.0}, waiting=6.0))
    blind = seen(13.0, {"a": 500.0})
    blind = replace(blind, gateway=replace(blind.gateway, queue=Unknown("did not answer")))
    assert counting.begun(blind) == {"a": 7.0}
    assert counting.begun(seen(13.0, {"a": 900.0})) == {"a": 13.0}


def test_without_a_gateway_s_count_the_series_is_missing_and_not_zero() -> None:
    alone = replace(seen(0.0, {"a": 100.0}), gateway=GatewayMetrics())
    filled, _ = with_first_tokens(alone, None, START)
    assert filled == alone
    assert not isinstance(filled.metrics, Unknown)
    assert filled.metrics[0].time_to_first_token is NOT_EXPOSED
    assert missing_series(filled.metrics[0], SLO) == NO_ARRIVALS


def test_requests_that_wait_longer_than_the_bound_are_late_though_no_histogram_tells() -> None:
    """Ten requests/s come to one replica that begins five."""
    assert decided(arrivals=10.0, begun=5.0).figures.attainment < 0.5


def test_requests_that_never_wait_are_on_time_though_no_histogram_tells() -> None:
    figures = decided(arrivals=5.0, begun=5.0).figures
    assert figures.attainment > 0.9999
    assert abs(figures.arrivals - 5.0) < 0.1
    assert abs(figures.time_to_first_token - 0.02) < 0.001, "the mean prefill"
    assert isinstance(figures.time_per_output_token, Unknown)


def test_a_sample_that_the_core_leaves_out_loses_no_request_that_began() -> None:
    """They were begun in a sample that nothing was compared with, so 115 of the first 234 never counted."""
    pool, memory, before, left_out = Pool(SLO, min_replicas=1, max_replicas=5), Memory(), NOTHING, False
    for tick in range(4):
        now = START + TICK * tick
        observation = seen(8.0 * TICK * tick, {"a": 160.0 * TICK * tick}, at=now)
        observation, before = completed(observation, math.inf, before, now)
        memory = decide(observation, pool, memory, now).memory
        left_out = left_out or memory.damaged is not None
    assert left_out
    assert memory.last.samples["a"].figures[Column.TTFT_COUNT] == 8.0 * TICK * 3


def decided(*, arrivals: float, begun: float) -> Decision:
    pool, memory, before = Pool(SLO, min_replicas=1, max_replicas=5), Memory(), NOTHING
    for tick in range(30):
        seconds = TICK * tick
        now = START + seconds
        waiting = (arrivals - begun) * seconds
        observation = seen(arrivals * seconds, {"a": 20.0 * begun * seconds}, waiting=waiting, at=now)
        observation, before = completed(observation, math.inf, before, now)
        outcome = decide(observation, pool, memory, now)
        memory = outcome.memory
    return outcome.decision


def test_requests_that_met_no_replica_are_not_what_the_next_one_begins() -> None:
    """25 were refused at 0 replicas. Taken for requests that begin, they were a surge at its first sample."""
    asleep = Observation(0, metrics=(), gateway=GatewayMetrics(1.0, arrivals=25.0, at_zero=25.0))
    assert with_first_tokens(asleep, Unbegun(Counts(START, (0.0,)), 0.0), START + TICK) == (asleep, None)
    starting, unbegun = replace(asleep, requested=1), Unbegun(Counts(START, (20.0,)), 1.0)
    assert with_first_tokens(starting, unbegun, START + TICK) == (starting, unbegun)
