"""Demand one cold start ahead: the rule that is learned, what may come, and what is remembered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

import numpy as np
import pytest

from servingpool.decision.engine import MOST_WORK, Rates, StepTime
from servingpool.decision.learn.forecast import FORECASTS_KEPT as KEPT
from servingpool.decision.learn.forecast import HIDDEN, PRIOR_SHAPE, SPACING, Forecast, Outlook, Past, WorkForecast
from servingpool.decision.learn.miss_curve import ESTIMATED, MissCurve
from servingpool.decision.need.costs import cheapest
from servingpool.decision.params import DEFAULT, REMEMBERED

from .test_costs import of_one

TICK, HORIZON = 15.0, 120.0
STEP = StepTime(base=0.0, per_request=1.0, per_prefill_token=0.0)
"""A step of a request takes a second, so steps/s are replicas kept busy."""


def rates(level: float) -> Rates:
    return Rates(100.0 * level, level)


def remember(levels: Iterable[float], *, horizon: float = HORIZON, ready: int = 2) -> Forecast:
    """What is learned of demand seen every 15 s."""
    forecast, seen = Forecast(), []
    for tick, level in enumerate(levels):
        seen.append(level)
        forecast = forecast.update(
            now=TICK * tick,
            demand=rates(level),
            usual=rates(fmean(seen[-40:])),
            ready=ready,
            horizon=horizon,
            elapsed=TICK if tick else 0.0,
        )
    return forecast


def outlook_of(forecast: WorkForecast, level: float, usual: float) -> Outlook:
    """What may come, where a replica serves a load of 0.5 within the SLO."""
    return forecast.outlook(level=level, usual=usual, capacity=0.5)


def expected(forecast: WorkForecast, level: float, usual: float) -> float:
    return float(outlook_of(forecast, level, usual).expected[0])


def past_of(forecast: WorkForecast) -> Past | None:
    return forecast.past(0.5)


def test_a_jump_that_always_vanished_persists_by_the_weight_of_the_prior_only() -> None:
    # 60 times 1 above the usual 2, and 2 followed: sums are 60 and -60, the prior adds 20: persistence = 1 - 60 / 80 = 0.25.
    forecast = WorkForecast(pairs=np.array([(3.0, 2.0, 2.0)] * 60), mean=2.0, seen=3600.0)
    assert expected(forecast, 4.0, 2.0) == pytest.approx(2.0 + 0.25 * 2.0)


def test_a_usual_level_that_always_reverted_to_the_mean_is_weighed_likewise() -> None:
    # 60 times the usual was 1 above the mean of 2, and 2 followed; the prior weighs 60: reversion = 1 - 60 / 120 = 0.5.
    forecast = WorkForecast(pairs=np.array([(3.0, 3.0, 2.0)] * 60), mean=2.0, seen=3600.0)
    assert expected(forecast, 4.0, 4.0) == pytest.approx(2.0 + 0.5 * 2.0)


def test_what_may_come_is_the_expected_demand_plus_past_errors() -> None:
    # Persistence holds exactly for the first pair; the second was 0.5 higher. Neither is a jump: level is usual.
    forecast = WorkForecast(
        pairs=np.array([(2.0, 2.0, 2.0), (2.0, 2.0, 2.5)]), mean=2.0, seen=3600.0, initial_replicas=4
    )
    outlook = outlook_of(forecast, 2.0, 2.0)
    assert outlook.samples[0, :2] == pytest.approx([2.0, 2.5])
    assert outlook.samples[0, 2:-1] == pytest.approx(2.0 + 2.0 * DEFAULT.prior_error * PRIOR_SHAPE)
    assert outlook.samples[0, -1] == 4 * 0.5  # the initial fleet, at the capacity of a replica
    assert outlook.weights.sum() == pytest.approx(1.0)


def test_no_past_error_leads_further_than_a_fifth_beyond_the_highest_demand() -> None:
    forecast = WorkForecast(pairs=np.array([(10.0, 10.0, 1.0), (1.0, 1.0, 10.0)]), mean=1.0, seen=3600.0)
    # From 0.1 an error of -9 is 0; from 10 one of +9 would be 19, and from 15 it would be 24.
    low, high, higher = (outlook_of(forecast, level, level) for level in (0.1, 10.0, 15.0))
    assert low.samples.min() == 0.0
    assert low.samples[0, 1] == pytest.approx(9.0, abs=0.2)
    assert high.samples.max() == DEFAULT.beyond * 10.0
    assert higher.samples.max() == DEFAULT.beyond * higher.expected[0]


@pytest.mark.parametrize(
    ("pairs", "seen", "share"),
    [
        (0, 0.0, DEFAULT.initial_weight / (DEFAULT.prior_weight + DEFAULT.initial_weight)),
        (
            80,
            REMEMBERED / 3,
            DEFAULT.initial_weight * 2 / 3 / (80 + DEFAULT.prior_weight + DEFAULT.initial_weight * 2 / 3),
        ),  # two thirds are left
        (240, REMEMBERED, 0.0),
        (120, 86400.0, 0.0),  # a profile of before, which kept a pair a minute
    ],
)
def test_the_weight_of_the_initial_fleet_fades_with_observed_time(pairs: int, seen: float, share: float) -> None:
    # Two replicas at 0.5 each serve just the usual demand.
    forecast = WorkForecast(pairs=np.ones((pairs, 3)), mean=1.0, seen=seen, initial_replicas=2)
    assert outlook_of(forecast, 1.0, 1.0).weights[0, -1] == pytest.approx(share)


@pytest.mark.parametrize(("seen", "replicas"), [(REMEMBERED - 1.0, 5.0), (REMEMBERED, 1.0)])
def test_a_forgotten_initial_fleet_does_not_coarsen_what_may_come(seen: float, replicas: float) -> None:
    """An almost idle pool that began with 256: demands below 1% of the highest are not distinguished."""
    forecast = WorkForecast(pairs=np.array([(0.01, 0.01, 0.01)] * 240), mean=0.01, seen=seen, initial_replicas=256)
    outlook = outlook_of(forecast, 0.01, 0.01).with_and_without_initial()
    curve = MissCurve().posterior(expected_knee=0.6, highest_knee=0.8, shape=ESTIMATED, params=DEFAULT)
    assert cheapest(outlook, 1.0, curve, 0.05, (20.0,), of_one(512))[0][1, 0] == replicas


def test_forecasts_are_settled_however_long_the_cold_start() -> None:
    # 2 x 9600 s / 320 = 60 s apart, so all that are open fit.
    forecast = remember([1.0] * 1000, horizon=9600.0)
    assert len(forecast.pairs) == pytest.approx((1000 * TICK - 9600.0) / 90.0, abs=2)
    assert len(forecast.pending) <= KEPT / 2 + 1


def test_a_moment_of_the_past_does_not_know_what_followed_within_ten_minutes_of_it() -> None:
    # One burst of five pairs in half an hour of calm.
    observed = [9.0 if 30 <= at < 35 else 1.0 for at in range(60)]
    forecast = WorkForecast(pairs=np.array([(1.0, 1.0, level) for level in observed]), mean=1.0, seen=3600.0)
    past = past_of(forecast)
    assert past is not None
    bursts = past.outlook.weights[:60, 30:35].sum(axis=1)
    apart = math.ceil(HIDDEN / SPACING)
    assert bursts[30:35].tolist() == [0.0] * 5
    assert bursts[34 - apart + 1 : 30 + apart].max() == 0.0
    assert bursts[[0, 59]].min() > 0.0, "far from it, it may come again"
    assert past.outlook.weights.sum(axis=1) == pytest.approx(1.0)
    live = outlook_of(forecast, 1.0, 1.0)
    assert live.weights[0, 30:35].min() > 0.0, "the present knows all that followed"


def test_the_forecast_of_an_idle_pool_stays_finite_for_months() -> None:
    # The mean of an hour falls by 1 / e each hour: after a month it is 1e-300 of what it was.
    for hours in (1.0, 100.0, 350.0, 700.0, 5000.0):
        forecast = WorkForecast(
            pairs=np.array([(0.0, 0.0, 0.0)] * KEPT), mean=math.exp(-min(hours, 740.0)), seen=3600.0, initial_replicas=5
        )
        outlook = outlook_of(forecast, 0.0, 0.0)
        assert outlook.weights.sum() == pytest.approx(1.0)
        assert past_of(forecast) is not None


def test_no_demand_is_foreseen_beyond_the_most_work() -> None:
    remembered = remember([1e9] * 20)
    found = remembered.in_work(STEP, DEFAULT)
    assert (found.mean, found.pairs.max()) == (MOST_WORK, MOST_WORK)
