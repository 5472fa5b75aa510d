"""What the samples of two observations say of the time between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics, Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.counters import CounterDelta, diff_counters
from servingpool.decision.observe.samples import Sample
from servingpool.decision.params import LONGEST_GAP
from servingpool.decision.pool import ONLY, Pool, Slo

POOL = Pool(Slo(time_to_first_token=2.0, time_per_output_token=0.1), min_replicas=1, max_replicas=10)


def compared(observation: Observation, previous: Mapping[str, Sample]) -> CounterDelta:
    return diff_counters(observation, POOL, CounterDelta(samples=previous))


def requests(count: float) -> Histogram:
    return Histogram((1.0, 2.5), (count, count), count * 0.3, count)


def sample(name: str, at: float, ttft: Histogram | Unknown, *, waiting: float = 0.0) -> ReplicaMetrics:
    served = ttft.count if isinstance(ttft, Histogram) else 0.0
    return ReplicaMetrics(
        name,
        at,
        waiting=waiting,
        generation_tokens=100.0 * served,
        prompt_tokens=500.0 * served,
        time_to_first_token=ttft,
        inter_token_latency=Histogram((0.1,), (served,), 0.03 * served, served),
        time_per_output_token=Histogram((0.1,), (served,), 0.03 * served, served),
    )


def observed(*samples: ReplicaMetrics, ready: int) -> Observation:
    names = [f"r{index}" for index in range(ready)]
    return Observation(
        requested=ready,
        ready=tuple(Replica(name, age=1e4, ready_for=1e4) for name in names),
        metrics=samples,
    )


def test_a_difference_over_an_outage_does_not_count() -> None:
    first = compared(observed(sample("r0", 0.0, requests(10.0)), ready=1), {})
    back = compared(observed(sample("r0", LONGEST_GAP + 1.0, requests(9e4)), ready=1), first.samples)
    assert (back.covered, back.sums[Column.TTFT_COUNT]) == (0.0, 0.0)


def test_a_restart_drops_the_queue_of_before() -> None:
    first = compared(observed(sample("r0", 0.0, requests(90.0), waiting=3000.0), ready=1), {})
    young = replace(observed(ready=1), ready=(Replica("r0", age=1e4, ready_for=5.0),))
    other = sample("r1", 100.0, requests(9.0), waiting=40.0)
    unread = replace(young, ready=(*young.ready, Replica("r1", age=1e4, ready_for=1e4)), metrics=(other,))
    assert compared(unread, first.samples).waiting == 40.0
    back = compared(observed(sample("r0", 15.0, requests(2.0), waiting=7.0), ready=1), first.samples)
    assert (back.sums[Column.QUEUED], back.sums[Column.TTFT_COUNT]) == (7.0, 2.0)
    hidden = replace(sample("r0", 15.0, requests(2.0)), waiting=Unknown("NaN"))
    gone = compared(observed(hidden, ready=1), first.samples)
    assert (gone.sums[Column.QUEUED], gone.samples["r0"].queue) == (0.0, None)


def decoding(name: str, at: float, batch: float, itl: float, *, prompts: float, cached: float = 0.0) -> ReplicaMetrics:
    """A replica that has decoded so many requests at a time since time 0."""
    spent = batch * at  # each decoding request spends all its time between tokens
    return ReplicaMetrics(
        name,
        at,
        generation_tokens=spent / itl,
        prompt_tokens=prompts * at,
        cached_prompt_tokens=cached * at,
        time_to_first_token=requests(1.0),
        inter_token_latency=Histogram((0.1,), (spent / itl,), spent, spent / itl),
        time_per_output_token=Histogram((0.1,), (1.0,), itl, 1.0),
    )


def test_each_replica_shows_its_own_steps() -> None:
    def observation(at: float) -> Observation:
        full = decoding("r0", at, 100.0, 0.05, prompts=3000.0, cached=1000.0)
        return observed(full, decoding("r1", at, 5.0, 0.02, prompts=0.0), ready=2)

    seen = compared(observation(35.0), compared(observation(15.0), {}).samples)
    # 2,000 computed prompt tokens/s in 20 steps/s are 100 a step.
    assert seen.engines[ONLY].steps == (pytest.approx((0.05, 100.0, 100.0, 1.0)), pytest.approx((0.02, 5.0, 0.0, 1.0)))


def single(at: float, *, wait: float, tokens: float = 1.0) -> ReplicaMetrics:
    """A replica that has served ten requests of 1,000 prompt tokens a second, each `wait` seconds after its arrival."""
    begun = 10.0 * at
    return ReplicaMetrics(
        "r0",
        at,
        generation_tokens=tokens * begun,
        prompt_tokens=1000.0 * begun,
        time_to_first_token=Histogram((1.0,), (begun,), wait * begun, begun),
        inter_token_latency=Histogram((0.1,), (0.0,), 0.0, 0.0),
        time_per_output_token=Histogram((0.1,), (0.0,), 0.0, 0.0),
    )


@pytest.mark.parametrize(
    ("wait", "cost"), [(0.05 / (1.0 - 0.5), 0.05), (1000.0, 0.1)], ids=["half full", "a queue that only grows"]
)
def test_a_request_that_decodes_nothing_costs_its_latency_without_the_others(wait: float, cost: float) -> None:
    first = compared(observed(single(15.0, wait=wait), ready=1), {})
    seen = compared(observed(single(30.0, wait=wait), ready=1), first.samples)
    (found,) = seen.engines[ONLY].prefills
    assert found.itl == pytest.approx(cost, rel=0.001)
    assert (found.decoding, found.prefill, found.base) == (0.0, 1000.0, 0.0)
    assert not seen.engines[ONLY].steps


def test_nothing_is_told_by_requests_whose_second_token_is_on_its_way() -> None:
    first = compared(observed(single(15.0, wait=0.1, tokens=1.1), ready=1), {})
    assert compared(observed(single(30.0, wait=0.1, tokens=1.1), ready=1), first.samples).engines[ONLY].prefills == ()


def test_replicas_with_little_to_do_count_as_one() -> None:
    def observation(at: float) -> Observation:
        return observed(*(decoding(f"r{n}", at, 0.05, 0.02, prompts=10.0) for n in range(16)), ready=16)

    seen = compared(observation(30.0), compared(observation(15.0), {}).samples)
    # 37 tokens each, 600 in all.
    assert seen.engines[ONLY].steps == (pytest.approx((0.02, 0.05, 0.2, 1.0)),)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (decoding("r0", 15.0, 0.05, 0.02, prompts=0.0), decoding("r0", 30.0, 0.05, 0.02, prompts=0.0)),  # 37 tokens
        (
            decoding("r0", 15.0, 9e3, 0.02, prompts=0.0),
            decoding("r0", 30.0, 9e3, 0.02, prompts=0.0),
        ),  # more than a batch holds
        (decoding("r0", 15.0, 5.0, 5e-6, prompts=0.0), decoding("r0", 30.0, 5.0, 5e-6, prompts=0.0)),  # faster than any
        (decoding("r0", 15.0, 5.0, 0.02, prompts=1e8), decoding("r0", 30.0, 5.0, 0.02, prompts=1e8)),  # 2e6 a step
        (
            decoding("r0", 90.0, 5.0, 0.02, prompts=0.0),
            replace(decoding("r0", 10.0, 20.0, 0.05, prompts=0.0), time_to_first_token=requests(0.0)),
        ),  # restarted
    ],
)
def test_samples_that_say_nothing_about_a_step_are_left_out(before: ReplicaMetrics, after: ReplicaMetrics) -> None:
    after = replace(after, scraped_at=before.scraped_at + 15.0)
    seen = compared(observed(after, ready=1), compared(observed(before, ready=1), {}).samples)
    assert seen.covered == (15.0 if not seen.damaged else 0.0)
    assert seen.engines[ONLY].steps == ()
