"""What two looks at the pages say of the time between them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from servingpool.decision.columns import QUEUED, TTFT_COUNT
from servingpool.decision.intake import LONGEST_GAP, take_in
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


def test_of_a_replica_whose_scrape_was_lost_the_last_queue_counts() -> None:
    before = take_in(look(page("r0", 0.0, counted(1.0)), page("r1", 0.0, counted(1.0), waiting=50.0), ready=2), SLO, {})
    idle = look(page("r0", 15.0, counted(1.0)), ready=2)
    assert take_in(idle, SLO, before.pages).waiting == 50.0
    later = look(page("r0", LONGEST_GAP + 1.0, counted(1.0), waiting=4.0), ready=2)
    assert take_in(later, SLO, before.pages).waiting == 8.0


def test_who_has_just_turned_ready_and_is_not_read_yet_has_no_queue() -> None:
    seen = look(page("r0", 0.0, counted(1.0), waiting=3000.0), ready=1)
    young = tuple(Replica(f"new-{index}", age=100.0, ready_for=10.0) for index in range(7))
    assert take_in(replace(seen, ready=(*seen.ready, *young)), SLO, {}).waiting == 3000.0


def test_a_queue_grows_by_what_the_same_pages_say() -> None:
    first = take_in(look(page("r0", 0.0, counted(1.0), waiting=100.0), ready=1), SLO, {})
    other = page("r1", 15.0, counted(9.0), waiting=9.0)
    second = take_in(look(page("r0", 15.0, counted(1.0), waiting=70.0), other, ready=2), SLO, first.pages)
    assert second.sums[QUEUED] == -30.0


def test_what_a_queue_grew_by_while_it_was_not_shown_comes_after() -> None:
    first = take_in(look(page("r0", 0.0, counted(1.0), waiting=100.0), ready=1), SLO, {})
    unread = replace(page("r0", 15.0, counted(1.0)), waiting=Unknown("NaN"))
    second = take_in(look(unread, ready=1), SLO, first.pages)
    third = take_in(look(page("r0", 30.0, counted(1.0), waiting=170.0), ready=1), SLO, second.pages)
    assert (second.sums[QUEUED], third.sums[QUEUED]) == (0.0, 70.0)
    assert (second.waiting, second.queues) == (Unknown("NaN"), ())
    later = page("r0", LONGEST_GAP + 10.0, counted(1.0), waiting=900.0)
    stale = {"r0": replace(second.pages["r0"], at=LONGEST_GAP)}
    assert take_in(look(later, ready=1), SLO, stale).sums[QUEUED] == 0.0


def test_a_queue_goes_with_its_engine() -> None:
    first = take_in(look(page("r0", 0.0, counted(90.0), waiting=3000.0), ready=1), SLO, {})
    young = replace(look(ready=1), ready=(Replica("r0", age=1e4, ready_for=5.0),))
    other = page("r1", 100.0, counted(9.0), waiting=40.0)
    unread = replace(young, ready=(*young.ready, Replica("r1", age=1e4, ready_for=1e4)), metrics=(other,))
    assert take_in(unread, SLO, first.pages).waiting == 40.0
    back = take_in(look(page("r0", 15.0, counted(2.0), waiting=7.0), ready=1), SLO, first.pages)
    assert (back.sums[QUEUED], back.sums[TTFT_COUNT]) == (7.0, 2.0)
    hidden = replace(page("r0", 15.0, counted(2.0)), waiting=Unknown("NaN"))
    gone = take_in(look(hidden, ready=1), SLO, first.pages)
    assert (gone.sums[QUEUED], gone.pages["r0"].queue) == (0.0, None)


def decoding(name: str, at: float, batch: float, itl: float, *, prompts: float, cached: float = 0.0) -> ReplicaMetrics:
    """A replica that has decoded so many requests at a time since time 0."""
    spent = batch * at  # each decoding request spends all its time between tokens
    return ReplicaMetrics(
        name,
        at,
        generation_tokens=spent / itl,
        prompt_tokens=prompts * at,
        cached_prompt_tokens=cached * at,
        time_to_first_token=counted(1.0),
        inter_token_latency=Histogram((0.1,), (spent / itl,), spent, spent / itl),
        time_per_output_token=Histogram((0.1,), (1.0,), itl, 1.0),
    )


def test_each_replica_tells_of_its_own_steps() -> None:
    def pages(at: float) -> Observation:
        full = decoding("r0", at, 100.0, 0.05, prompts=3000.0, cached=1000.0)
        return look(full, decoding("r1", at, 5.0, 0.02, prompts=0.0), ready=2)

    seen = take_in(pages(35.0), SLO, take_in(pages(15.0), SLO, {}).pages)
    # 2,000 computed prompt tokens/s in 20 steps/s are 100 a step.
    assert seen.steps == (pytest.approx((0.05, 100.0, 100.0)), pytest.approx((0.02, 5.0, 0.0)))


def test_many_replicas_with_little_to_do_tell_as_one() -> None:
    def pages(at: float) -> Observation:
        return look(*(decoding(f"r{n}", at, 0.05, 0.02, prompts=10.0) for n in range(16)), ready=16)

    seen = take_in(pages(30.0), SLO, take_in(pages(15.0), SLO, {}).pages)
    # 37 tokens each, 600 in all.
    assert seen.steps == (pytest.approx((0.02, 0.05, 0.2)),)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (decoding("r0", 15.0, 0.05, 0.02, prompts=0.0), decoding("r0", 30.0, 0.05, 0.02, prompts=0.0)),  # 37 tokens
        (decoding("r0", 15.0, 9e3, 0.02, prompts=0.0), decoding("r0", 30.0, 9e3, 0.02, prompts=0.0)),  # more than fit
        (decoding("r0", 15.0, 5.0, 5e-6, prompts=0.0), decoding("r0", 30.0, 5.0, 5e-6, prompts=0.0)),  # faster than any
        (decoding("r0", 15.0, 5.0, 0.02, prompts=1e8), decoding("r0", 30.0, 5.0, 0.02, prompts=1e8)),  # 2e6 a step
        (decoding("r0", 90.0, 5.0, 0.02, prompts=0.0), decoding("r0", 10.0, 20.0, 0.05, prompts=0.0)),  # restarted
    ],
)
def test_what_says_nothing_of_a_step_is_left_out(before: ReplicaMetrics, after: ReplicaMetrics) -> None:
    after = replace(after, scraped_at=before.scraped_at + 15.0)
    seen = take_in(look(after, ready=1), SLO, take_in(look(before, ready=1), SLO, {}).pages)
    assert seen.covered == 15.0
    assert seen.steps == ()
