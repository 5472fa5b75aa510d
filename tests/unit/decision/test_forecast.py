"""Demand one cold start ahead: the rule that is learned, what may come, and what is remembered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

import numpy as np
import pytest

from servingpool.decision import capacity
from servingpool.decision.forecast import (
    APART,
    BEYOND,
    KEPT,
    PENDING,
    PRIOR_ERRORS,
    PRIOR_PAIRS,
    SPACING,
    TRUST,
    TRUST_LASTS,
    Forecast,
)
from servingpool.decision.miss_curve import MissCurve

TICK, HORIZON = 15.0, 120.0


def watch(levels: Iterable[float], *, horizon: float = HORIZON, ready: int = 2) -> Forecast:
    """What is learned of demand seen every 15 s."""
    forecast, seen = Forecast(), []
    for tick, level in enumerate(levels):
        seen.append(level)
        forecast = forecast.learn(
            now=TICK * tick,
            level=level,
            usual=fmean(seen[-40:]),
            ready=ready,
            horizon=horizon,
            elapsed=TICK if tick else 0.0,
        )
    return forecast


def expected(forecast: Forecast, level: float, usual: float) -> float:
    return float(forecast.outlook(level=level, usual=usual, carried=0.5).expected[0])


def test_before_a_forecast_came_true_what_is_is_expected_to_stay() -> None:
    forecast = watch([2.0] * 4)
    assert len(forecast.pairs) == 0
    assert expected(forecast, 5.0, 2.0) == 5.0


def test_a_jump_that_always_vanished_is_held_for_the_weight_of_the_prior_only() -> None:
    # 60 times 1 above the usual 2, and 2 came: sums are 60 and -60, the prior adds 20: hold = 1 - 60 / 80 = 0.25.
    forecast = Forecast(pairs=np.array([(3.0, 2.0, 2.0)] * 60), mean=2.0, seen=3600.0)
    assert expected(forecast, 4.0, 2.0) == pytest.approx(2.0 + 0.25 * 2.0)


def test_a_usual_level_that_always_went_back_to_the_mean_is_kept_likewise() -> None:
    # 60 times the usual was 1 above the mean of 2, and 2 came; the prior weighs 60: keep = 1 - 60 / 120 = 0.5.
    forecast = Forecast(pairs=np.array([(3.0, 3.0, 2.0)] * 60), mean=2.0, seen=3600.0)
    assert expected(forecast, 4.0, 4.0) == pytest.approx(2.0 + 0.5 * 2.0)


def test_steps_are_held() -> None:
    # Half an hour each; a cold start of 2 minutes behind a jump it is still there in 8 of 10 minutes of usual mean.
    steps = watch([1.0 if tick // 120 % 2 else 4.0 for tick in range(960)])
    assert expected(steps, 4.0, 1.0) > 3.7


def test_noise_around_a_mean_is_not_held() -> None:
    random = np.random.default_rng(1)
    noise = watch(random.gamma(10.0, 0.2, size=960))
    assert expected(noise, 4.0, 2.0) == pytest.approx(2.0, abs=0.4)


def test_bursts_that_are_gone_before_a_replica_could_load_are_not_held() -> None:
    bursts = watch([6.0 if tick % 40 < 3 else 1.0 for tick in range(960)])
    assert expected(bursts, 6.0, 1.0) < 2.0


def test_no_forecast_is_negative() -> None:
    falling = Forecast(pairs=np.array([(2.0, 4.0, 0.0)] * 60), mean=4.0, seen=3600.0)
    assert expected(falling, 0.1, 4.0) >= 0.0
    assert (falling.outlook(level=0.1, usual=4.0, carried=0.5).samples >= 0.0).all()


def test_what_may_come_is_the_expected_with_the_errors_that_were() -> None:
    # Persistence holds exactly for the first pair; the second came 0.5 higher. Neither is a jump: level is usual.
    forecast = Forecast(pairs=np.array([(2.0, 2.0, 2.0), (2.0, 2.0, 2.5)]), mean=2.0, seen=3600.0, found=4)
    outlook = forecast.outlook(level=2.0, usual=2.0, carried=0.5)
    assert outlook.samples[0, :2] == pytest.approx([2.0, 2.5])
    assert outlook.samples[0, 2:-1] == pytest.approx(2.0 + 2.0 * PRIOR_ERRORS)
    assert outlook.samples[0, -1] == 4 * 0.5  # the fleet that was found, at what a replica carries
    assert outlook.weights.sum() == pytest.approx(1.0)


def test_no_jump_of_the_past_leads_a_fifth_beyond_the_highest_demand_known() -> None:
    forecast = Forecast(pairs=np.array([(10.0, 10.0, 1.0), (1.0, 1.0, 10.0)]), mean=1.0, seen=3600.0)
    # From 0.1 an error of -9 is 0; from 10 one of +9 would be 19, and from 15 it would be 24.
    low, high, higher = (forecast.outlook(level=level, usual=level, carried=0.5) for level in (0.1, 10.0, 15.0))
    assert low.samples.min() == 0.0
    assert low.samples[0, 1] == pytest.approx(9.0, abs=0.2)
    assert high.samples.max() == BEYOND * 10.0
    assert higher.samples.max() == BEYOND * higher.expected[0]


def test_traffic_that_stops_and_returns_has_shown_that_it_returns_not_that_it_doubles() -> None:
    forecast = Forecast(pairs=np.array([(5.0, 5.0, 5.0), (0.1, 0.1, 5.0)]), mean=5.0, seen=3600.0)
    busy, idle = (forecast.outlook(level=level, usual=level, carried=0.5).samples[0] for level in (5.0, 0.1))
    assert busy[1] == BEYOND * 5.0
    assert idle[1] == pytest.approx(5.0, rel=0.1)


def test_what_was_there_when_it_was_first_looked_at_was_seen() -> None:
    forecast = Forecast(pairs=np.array([(10.0, 10.0, 1.0), (1.0, 1.0, 5.0)]), mean=5.0, seen=3600.0)
    assert forecast.outlook(level=8.0, usual=8.0, carried=0.5).samples[0, 1] == pytest.approx(12.0, abs=0.5)


def test_levels_like_this_one_count_most() -> None:
    forecast = Forecast(pairs=np.array([(1.0, 1.0, 1.0), (9.0, 9.0, 9.0)]), mean=1.0, seen=3600.0)
    weights = forecast.outlook(level=1.0, usual=1.0, carried=0.5).weights[0]
    # Roots 1 and 3 are 2 apart, over a width of 0.8: exp(-(2 / 0.8) ** 2 / 2) = exp(-3.125) = 0.044.
    assert weights[1] / weights[0] == pytest.approx(0.0439, abs=1e-3)


@pytest.mark.parametrize(
    ("pairs", "seen", "share"),
    [
        (0, 0.0, TRUST / (PRIOR_PAIRS + TRUST)),
        (80, TRUST_LASTS / 3, TRUST * 2 / 3 / (80 + PRIOR_PAIRS + TRUST * 2 / 3)),  # two thirds are left
        (240, TRUST_LASTS, 0.0),
        (120, 86400.0, 0.0),  # a profile of before, which kept a pair a minute
    ],
)
def test_trust_in_the_fleet_that_was_found_fades_with_what_was_seen(pairs: int, seen: float, share: float) -> None:
    # Two replicas at 0.5 each carry just what is usual.
    forecast = Forecast(pairs=np.ones((pairs, 3)), mean=1.0, seen=seen, found=2)
    assert forecast.outlook(level=1.0, usual=1.0, carried=0.5).weights[0, -1] == pytest.approx(share)


@pytest.mark.parametrize(("seen", "replicas"), [(TRUST_LASTS - 1.0, 5.0), (TRUST_LASTS, 1.0)])
def test_a_fleet_forgotten_no_longer_coarsens_what_may_come(seen: float, replicas: float) -> None:
    """An almost idle pool found at 256: demands below 1% of the highest are not told apart."""
    forecast = Forecast(pairs=np.array([(0.01, 0.01, 0.01)] * 240), mean=0.01, seen=seen, found=256)
    told = forecast.outlook(level=0.01, usual=0.01, carried=0.5).with_and_without_belief()
    curve = MissCurve().posterior(expected_knee=0.6, highest_knee=0.8)
    assert capacity.needs(told, curve, 0.05, (20.0,), 512)[1, 0] == replicas


def test_the_fleet_that_was_found_is_the_first_one_seen() -> None:
    forecast = watch([1.0] * 4, ready=7)
    assert forecast.learn(now=60.0, level=1.0, usual=1.0, ready=3, horizon=HORIZON, elapsed=TICK).found == 7


def test_a_forecast_each_half_minute_is_kept_and_settled_when_due() -> None:
    # Filed at 0, 30, 60, ... s, two ticks apart, and due 120 s later: at 180 s those of 0 to 60 s are settled.
    forecast = watch([float(tick) for tick in range(13)])
    assert [(level, came) for level, _, came in forecast.pairs] == [(0.0, 8.0), (2.0, 10.0), (4.0, 12.0)]
    assert [due for due, *_ in forecast.pending] == [210.0, 240.0, 270.0, 300.0]


def test_no_more_pairs_are_kept_than_reach_back_for_hours() -> None:
    forecast = watch([1.0] * 1200)
    assert len(forecast.pairs) == KEPT
    assert len(forecast.pending) <= HORIZON / SPACING + 1


def test_forecasts_come_true_however_long_the_cold_start() -> None:
    # 9600 s / 160 = 60 s apart, so all that are open fit.
    forecast = watch([1.0] * 1000, horizon=9600.0)
    assert len(forecast.pairs) == pytest.approx((1000 * TICK - 9600.0) / 60.0, abs=2)
    assert len(forecast.pending) <= PENDING + 1


def test_a_horizon_that_shrinks_or_grows_leaves_the_memory_bounded() -> None:
    forecast = Forecast()
    for tick in range(2000):
        horizon = (30.0, 1800.0, 300.0)[tick // 40 % 3]  # ten minutes of each
        forecast = forecast.learn(now=TICK * tick, level=1.0, usual=1.0, ready=1, horizon=horizon, elapsed=TICK)
        assert len(forecast.pending) <= 2 * PENDING
        assert len(forecast.pairs) <= KEPT
    assert len(forecast.pairs) > 100


def test_the_mean_is_of_about_an_hour() -> None:
    # Two hours at 1, then one at 2: 1 + (1 - 1 / e) = 1.63.
    assert watch([1.0] * 480 + [2.0] * 240).mean == pytest.approx(1.63, abs=0.01)


def test_each_half_minute_of_two_hours_is_played_again() -> None:
    forecast = watch([1.0 + tick / 1000.0 for tick in range(1200)])
    past = forecast.past(carried=0.5)
    assert past is not None
    assert past.moments == KEPT
    assert KEPT * SPACING == pytest.approx(2 * 3600.0, rel=0.05)
    assert past.came[:KEPT].tolist() == [came for _, _, came in forecast.pairs]
    assert past.counts[:KEPT].tolist() == [1.0] * KEPT
    assert past.counts[KEPT:] == pytest.approx([PRIOR_PAIRS / 8] * 8 + [0.0])
    assert past.outlook.samples.shape == (KEPT + 9, KEPT + 9)


def test_a_moment_of_the_past_does_not_know_what_came_within_ten_minutes_of_it() -> None:
    # One burst of five pairs in half an hour of calm.
    came = [9.0 if 30 <= at < 35 else 1.0 for at in range(60)]
    forecast = Forecast(pairs=np.array([(1.0, 1.0, level) for level in came]), mean=1.0, seen=3600.0)
    past = forecast.past(carried=0.5)
    assert past is not None
    bursts = past.outlook.weights[:60, 30:35].sum(axis=1)
    apart = math.ceil(APART / SPACING)
    assert bursts[30:35].tolist() == [0.0] * 5
    assert bursts[34 - apart + 1 : 30 + apart].max() == 0.0
    assert bursts[[0, 59]].min() > 0.0, "far from it, it may come again"
    assert past.outlook.weights.sum(axis=1) == pytest.approx(1.0)
    live = forecast.outlook(level=1.0, usual=1.0, carried=0.5)
    assert live.weights[0, 30:35].min() > 0.0, "what is looked at now knows all that came"


def test_the_same_state_is_told_with_and_without_the_fleet_that_was_found() -> None:
    forecast = Forecast(pairs=np.array([(1.0, 1.0, 1.0)] * 10), mean=1.0, seen=3600.0, found=4)
    outlook = forecast.outlook(level=1.0, usual=1.0, carried=0.5)
    both = outlook.with_and_without_belief()
    assert both.weights[0].tolist() == outlook.weights[0].tolist()
    assert both.weights[1, -1] == 0.0
    assert both.weights.sum(axis=1) == pytest.approx(1.0)
    assert both.samples[0].tolist() == both.samples[1].tolist() == outlook.samples[0].tolist()


def test_little_trust_is_left_where_the_fleet_is_far_too_large() -> None:
    shares = []
    for found in (2, 8, 40):  # carries what is usual, four times, twenty times that
        forecast = Forecast(pairs=np.array([(1.0, 1.0, 1.0)] * 10), mean=1.0, seen=3600.0, found=found)
        shares.append(forecast.outlook(level=1.0, usual=1.0, carried=0.5).weights[0, -1])
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < 0.05 * shares[0]


def test_an_idle_pool_stays_calm_for_months() -> None:
    # The mean of an hour falls by 1 / e each hour: after a month it is 1e-300 of what it was.
    for hours in (1.0, 100.0, 350.0, 700.0, 5000.0):
        forecast = Forecast(
            pairs=np.array([(0.0, 0.0, 0.0)] * KEPT), mean=math.exp(-min(hours, 740.0)), seen=3600.0, found=5
        )
        outlook = forecast.outlook(level=0.0, usual=0.0, carried=0.5)
        assert outlook.weights.sum() == pytest.approx(1.0)
        assert forecast.past(carried=0.5) is not None


def test_without_demand_there_is_no_past() -> None:
    assert Forecast().past(carried=0.5) is None
    assert watch([0.0] * 100, ready=0).past(carried=0.5) is None
