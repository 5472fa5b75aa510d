"""The core's parts, each against arithmetic that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from servingpool.decision import capacity
from servingpool.decision.budget import CAREFUL, LEAST, MOST, Budget
from servingpool.decision.cold_start import ColdStart
from servingpool.decision.forecast import Forecast, Outlook
from servingpool.decision.intake import LONGEST_GAP, TTFT_COUNT, take_in
from servingpool.decision.kv_cache import FULL, KvCache
from servingpool.decision.ledger import Ledger
from servingpool.decision.miss_curve import MissCurve
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.percentile import Tail
from servingpool.decision.pool import Pool, Slo
from servingpool.decision.slo_count import SloCount, late_share_of_straddling
from servingpool.decision.step_time import StepTime, StepTimeFit
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


def test_a_bound_on_a_bucket_needs_no_guess():
    assert taken(TTFT, 2.5)[0] == SloCount(within=99.0, straddling=0.0, late=3.0)


def test_a_bound_inside_a_bucket_leaves_that_bucket_open():
    assert taken(TTFT, 2.0) == (SloCount(within=90.0, straddling=9.0, late=3.0), (1.0, 2.5))


def test_a_bound_beyond_the_last_bucket_counts_what_is_beyond_as_late():
    count, bucket = taken(TTFT, 60.0)
    assert (count, bucket) == (SloCount(within=100.0, straddling=2.0, late=0.0), (5.0, math.inf))
    assert late_share_of_straddling(count, bucket, 60.0) == 1.0


def test_an_exponential_tail_is_divided_as_it_falls_not_linearly():
    # 100 requests beyond 1 s, 10 beyond 2.5 s: 100 * 0.1 ** (2/3) = 21.5 beyond 2 s, of them 11.5 of the bucket's 90.
    share = late_share_of_straddling(SloCount(900.0, 90.0, 10.0), (1.0, 2.5), 2.0)
    assert share * 90.0 == pytest.approx(11.5, abs=1.0)


def test_the_fit_finds_the_engine_it_was_shown():
    truth, fit = StepTime(0.02, 1.2e-4, 9e-5), StepTimeFit()
    random = np.random.default_rng(1)
    for _ in range(200):
        decoding, prefill = random.uniform(2, 90), random.uniform(0, 400)
        itl = truth.base + truth.per_request * decoding + truth.per_prefill_token * prefill
        fit = fit.learn(itl=itl * random.normal(1, 0.03), decoding=decoding, prefill_per_step=prefill, elapsed=15.0)
    found = fit.solve()
    assert found is not None
    assert found.base == pytest.approx(truth.base, rel=0.1)
    assert found.work(1000, 200) == pytest.approx(truth.work(1000, 200), rel=0.1)


def test_the_fit_is_never_negative_even_where_the_data_are_absurd():
    fit = StepTimeFit()
    for decoding, itl in ((1.0, 0.2), (50.0, 0.02), (90.0, 0.001)):
        fit = fit.learn(itl=itl, decoding=decoding, prefill_per_step=10.0, elapsed=15.0)
    found = fit.solve()
    assert found is not None
    assert min(found.base, found.per_request, found.per_prefill_token) >= 0.0


def test_a_new_engine_is_relearned_within_an_hour():
    fit = StepTimeFit()
    for base in [0.02] * 240 + [0.01] * 240:
        fit = fit.learn(itl=base + 1e-4 * 30, decoding=30.0, prefill_per_step=0.0, elapsed=15.0)
    found = fit.solve()
    assert found is not None
    assert found.base + 30 * found.per_request == pytest.approx(0.013, rel=0.3)


def test_the_cache_is_foreseen_full_long_before_it_is():
    cache = KvCache()
    for load in (0.2, 0.3, 0.4):
        cache = cache.learn(usage=0.3 * load / (1 - load), load=load, elapsed=15.0)
    assert cache.full_at == pytest.approx(FULL / (FULL + 0.3))
    assert KvCache().full_at == 1.0


def test_misses_at_a_load_pull_the_safe_load_below_it():
    curve = MissCurve()
    before = curve.posterior(expected_knee=0.6, highest_knee=0.9).load_for(0.05)
    for _ in range(40):
        curve = curve.learn(load=0.4, requests=100.0, late=30.0, elapsed=15.0)
    assert curve.posterior(expected_knee=0.6, highest_knee=0.9).load_for(0.05) < min(before, 0.4)


def test_requests_that_miss_at_any_load_raise_the_floor_not_the_fleet():
    curve = MissCurve()
    for load in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5) * 20:
        curve = curve.learn(load=load, requests=100.0, late=4.0, elapsed=15.0)
    posterior = curve.posterior(expected_knee=0.6, highest_knee=0.9)
    assert posterior.floor == pytest.approx(0.04, abs=0.015)
    assert posterior.load_for(0.04 + 0.02) > 0.3


def test_need_doubles_when_demand_does():
    curve = MissCurve().posterior(expected_knee=0.6, highest_knee=0.9)

    def need(level: float) -> float:
        outlook = Outlook(level, np.array([level]), np.array([1.0]))
        return capacity.need(outlook, curve, 0.1, most=100)

    assert need(4.0) == pytest.approx(2 * need(2.0), abs=2 * capacity.FINEST)


def test_a_trend_is_followed_only_after_it_came_true():
    forecast, level = Forecast(), 1.0
    assert forecast.damping == 0.0
    for tick in range(200):
        level = 1.0 + 0.01 * tick
        forecast = forecast.learn(now=15.0 * tick, level=level, trend=0.01 / 15.0, horizon=120.0, elapsed=15.0)
    assert forecast.damping > 0.5
    ahead = forecast.outlook(level=level, trend=0.01 / 15.0, horizon=120.0, recent_maximum=level)
    assert level < ahead.expected <= level + 0.081


def test_the_budget_falls_faster_than_it_rises_and_stays_bounded():
    budget = Budget()
    hopeful = budget.learn(missed=0.0, allowed=0.05, requests=100, usual_requests=100, elapsed=600.0)
    careful = budget.learn(missed=0.1, allowed=0.05, requests=100, usual_requests=100, elapsed=600.0)
    assert 1.0 < hopeful.steering / CAREFUL < CAREFUL / careful.steering
    for missed, bound in ((0.0, MOST), (1.0, LEAST)):
        moved = budget
        for _ in range(10_000):
            moved = moved.learn(missed=missed, allowed=0.05, requests=100, usual_requests=100, elapsed=15.0)
        assert moved.steering == bound


def test_a_replica_teaches_its_cold_start_once_and_only_if_it_was_seen_to_load():
    loading, ready = Replica("a", age=80.0), Replica("a", age=200.0, ready_for=110.0)
    flapped = Replica("old", age=1500.0, ready_for=300.0)
    starts = ColdStart().learn((flapped,), (loading,))
    for _ in range(5):
        starts = starts.learn((flapped, ready), ())
    assert starts.seconds == (90.0,)
    assert starts.expected(otherwise=120.0) == 90.0
    assert ColdStart().expected(otherwise=120.0) == 120.0


def test_forecasts_come_true_however_long_the_cold_start():
    forecast = Forecast()
    for tick in range(400):
        forecast = forecast.learn(now=15.0 * tick, level=1.0, trend=0.0, horizon=1500.0, elapsed=15.0)
    assert len(forecast.errors) > 100


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


def test_a_lost_scrape_is_made_up_for_by_the_next_one():
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    lost = take_in(look(ready=1), SLO, first.pages)
    back = take_in(look(page("r0", 30.0, counted(70.0)), ready=1), SLO, lost.pages)
    assert (lost.covered, lost.coverage) == (0.0, 0.0)
    assert (back.covered, back.sums[TTFT_COUNT]) == (30.0, 60.0)


def test_the_same_sample_seen_twice_counts_once():
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    second = take_in(look(page("r0", 15.0, counted(40.0)), ready=1), SLO, first.pages)
    again = take_in(look(page("r0", 15.0, counted(40.0)), ready=1), SLO, second.pages)
    assert second.sums[TTFT_COUNT] == 30.0
    assert (again.covered, again.sums[TTFT_COUNT]) == (0.0, 0.0)


def test_a_difference_over_an_outage_is_not_the_rate_of_now():
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    back = take_in(look(page("r0", LONGEST_GAP + 1.0, counted(9e4)), ready=1), SLO, first.pages)
    assert (back.covered, back.sums[TTFT_COUNT]) == (0.0, 0.0)


def test_a_page_without_its_histogram_is_unread_not_idle():
    first = take_in(look(page("r0", 0.0, counted(10.0)), ready=1), SLO, {})
    torn = take_in(look(page("r0", 15.0, Unknown("NaN")), ready=1), SLO, first.pages)
    whole = take_in(look(page("r0", 30.0, counted(50.0)), ready=1), SLO, torn.pages)
    assert (torn.coverage, torn.lacking) == (0.0, "time to first token")
    assert whole.sums[TTFT_COUNT] == 40.0


def test_a_queue_is_scaled_up_for_replicas_that_were_not_read():
    seen = take_in(look(page("r0", 0.0, counted(1.0), waiting=6.0), ready=3), SLO, {})
    assert seen.waiting == pytest.approx(18.0)
    assert seen.coverage == pytest.approx(1 / 3)


def test_percentiles_interpolate_and_never_go_past_the_last_bucket():
    empty = Histogram((1.0, 2.0), (0.0, 0.0), 0.0, 0.0)
    tail = Tail().learn({"a": empty}, elapsed=15.0)
    tail = tail.learn({"a": Histogram((1.0, 2.0), (50.0, 90.0), 120.0, 100.0)}, elapsed=15.0)
    assert tail.at(0.7) == pytest.approx(1.5)
    assert tail.at(0.99) == 2.0
    assert isinstance(Tail().at(0.95), Unknown)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Slo(None, None), "bound"),
        (lambda: Slo(1.0, None, 0.3), "0.5 to 0.999, got 0.3"),
        (lambda: Pool(SLO, 3, 2), "min 3, max 2"),
    ],
)
def test_impossible_pools_are_refused_with_range_and_value(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_an_unknown_figure_cannot_pass_for_false():
    with pytest.raises(TypeError, match="no truth value"):
        bool(Unknown("no scrape"))
