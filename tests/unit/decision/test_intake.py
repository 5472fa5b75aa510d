"""What two looks at the pages say of the time between them."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.intake import LONGEST_GAP, TTFT_COUNT, take_in
from servingpool.decision.ledger import Ledger
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.pool import Slo
from servingpool.decision.slo_count import SloCount, late_share_of_straddling
from servingpool.decision.unknown import Unknown

TTFT = Histogram((1.0, 2.5, 5.0), (90.0, 99.0, 100.0), 60.0, 102.0)
SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1)


def taken(histogram: Histogram, bound: float) -> tuple[SloCount, tuple[float, float]]:
    """What one replica's histogram, filled between two looks, says of a TTFT bound."""
    slo = Slo(time_to_first_token=bound)
    empty = Histogram(histogram.bounds, (0.0,) * len(histogram.bounds), 0.0, 0.0)
    before = take_in(look(page("r0", 0.0, empty), ready=1), slo, {})
    seen = take_in(look(page("r0", 15.0, histogram), ready=1), slo, before.pages)
    window = Ledger.empty().add(now=15.0, span=15.0, ready=1, intake=seen).last(60.0)
    return window.first_tokens(), seen.edges[:2]


def counted(count: float) -> Histogram:
    return Histogram((1.0, 2.5), (count, count), count * 0.3, count)


def page(name: str, at: float, ttft: Histogram | Unknown, *, waiting: float = 0.0) -> ReplicaMetrics:
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


def look(*pages: ReplicaMetrics, ready: int) -> Observation:
    names = [f"r{index}" for index in range(ready)]
    return Observation(
        requested=ready,
        ready=tuple(Replica(name, age=1e4, ready_for=1e4) for name in names),
        metrics=pages,
    )


def test_a_bound_on_a_bucket_needs_no_guess() -> None:
    assert taken(TTFT, 2.5)[0] == SloCount(within=99.0, straddling=0.0, late=3.0)


def test_a_bound_inside_a_bucket_leaves_that_bucket_open() -> None:
    assert taken(TTFT, 2.0) == (SloCount(within=90.0, straddling=9.0, late=3.0), (1.0, 2.5))


def test_a_bound_beyond_the_last_bucket_counts_what_is_beyond_as_late() -> None:
    count, bucket = taken(TTFT, 60.0)
    assert (count, bucket) == (SloCount(within=100.0, straddling=2.0, late=0.0), (5.0, math.inf))
    assert late_share_of_straddling(count, bucket, 60.0) == 1.0


def test_a_lost_scrape_is_made_up_for_by_the_next_one() -> None:
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    lost = take_in(look(ready=1), SLO, first.pages)
    back = take_in(look(page("r0", 30.0, counted(70.0)), ready=1), SLO, lost.pages)
    assert (lost.covered, lost.coverage) == (0.0, 0.0)
    assert (back.covered, back.sums[TTFT_COUNT]) == (30.0, 60.0)


def test_the_same_sample_seen_twice_counts_once() -> None:
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    second = take_in(look(page("r0", 15.0, counted(40.0)), ready=1), SLO, first.pages)
    again = take_in(look(page("r0", 15.0, counted(40.0)), ready=1), SLO, second.pages)
    assert second.sums[TTFT_COUNT] == 30.0
    assert (again.covered, again.sums[TTFT_COUNT]) == (0.0, 0.0)


def test_a_difference_over_an_outage_is_not_the_rate_of_now() -> None:
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    back = take_in(look(page("r0", LONGEST_GAP + 1.0, counted(9e4)), ready=1), SLO, first.pages)
    assert (back.covered, back.sums[TTFT_COUNT]) == (0.0, 0.0)


def test_a_page_without_its_histogram_is_unread_not_idle() -> None:
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    torn = take_in(look(page("r0", 15.0, Unknown("NaN")), ready=1), SLO, first.pages)
    whole = take_in(look(page("r0", 30.0, counted(50.0)), ready=1), SLO, torn.pages)
    assert (torn.coverage, torn.lacking) == (0.0, "time to first token")
    assert whole.sums[TTFT_COUNT] == 40.0


def test_a_queue_is_scaled_up_for_replicas_that_were_not_read() -> None:
    seen = take_in(look(page("r0", 0.0, counted(1.0), waiting=6.0), ready=3), SLO, {})
    assert seen.waiting == pytest.approx(18.0)
    assert seen.coverage == pytest.approx(1 / 3)


def test_what_a_step_meets_is_counted_where_it_ran() -> None:
    def crowd(name: str, at: float, decoding: float, itl: float, prompts: float) -> ReplicaMetrics:
        seconds = decoding * at  # of ITL in all: each decoding request spends all its time between tokens
        return ReplicaMetrics(
            name,
            at,
            generation_tokens=seconds / itl,
            prompt_tokens=prompts,
            time_to_first_token=counted(1.0),
            inter_token_latency=Histogram((0.1,), (seconds / itl,), seconds, seconds / itl),
            time_per_output_token=Histogram((0.1,), (1.0,), itl, 1.0),
        )

    def pages(at: float) -> Observation:
        full, idle = crowd("r0", at, 100.0, 0.05, 3000.0 * at), crowd("r1", at, 1.0, 0.02, 0.0)
        return look(full, idle, ready=2)

    before = take_in(pages(10.0), SLO, {})
    seen = take_in(pages(20.0), SLO, before.pages)
    # 100 decode for 10 s in steps of 50 ms: 20,000 steps of requests, each beside 100 and 150 prefill tokens. One
    # decodes alone for 500 steps.
    assert seen.decoding_met == pytest.approx(20_000 * 100.0 + 500 * 1.0)
    assert seen.prefill_met == pytest.approx(20_000 * 150.0)
