"""The miss penalty at which the fleet would just have held the SLO lately."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from servingpool.decision.learn.forecast import FORECASTS_KEPT as KEPT
from servingpool.decision.learn.forecast import SPACING, WorkForecast
from servingpool.decision.learn.miss_curve import BINS, ESTIMATED, Curve, MissCurve
from servingpool.decision.need import costs
from servingpool.decision.need.costs import BLOCK, FINEST, miss_penalty
from servingpool.decision.params import DEFAULT

from .test_costs import of_one

ALLOWANCE, GREATEST = 0.03, 200.0
KNEE = Curve(np.where(BINS < 0.5, 0.0, 1.0), floor=0.0, limit=1.0, aftermath=4.0)
"""None is late up to load 0.4536, all are from 0.5105, and beyond 1 the queue is late as well."""
CALM = WorkForecast(pairs=np.array([(2.0, 2.0, 2.0)] * 480), mean=2.0, seen=14400.0)


def on_and_off(high: float, every: int) -> WorkForecast:
    """Ten minutes of `high`, then of 1, and so on, in half minutes; a cold start of two minutes.

    Four hours of it, twice what is remembered live: many bursts, so that figures do not hang on where one begins.
    """
    levels = [high if tick % every < 20 else 1.0 for tick in range(484)]
    usual = [float(np.mean(levels[max(0, tick - 19) : tick + 1])) for tick in range(484)]
    pairs = tuple(zip(levels[:-4], usual[:-4], levels[4:], strict=True))
    return WorkForecast(pairs=np.array(pairs), mean=float(np.mean(levels)), seen=14400.0)


def wandering() -> WorkForecast:
    """Levels that come and go at a pace of their own, so that each moment needs another fleet."""
    random, level, levels = np.random.default_rng(5), 0.0, []
    for _ in range(KEPT + 4):
        level = 0.9 * level + random.normal(0.0, 0.28)
        levels.append(4.0 * math.exp(level))
    pairs = tuple(zip(levels[:-4], levels[:-4], levels[4:], strict=True))
    return WorkForecast(pairs=np.array(pairs), mean=float(np.mean(levels)), seen=14400.0)


def found(forecast: WorkForecast, *, most: int = 100, held: float = 0.0, allowance: float = ALLOWANCE) -> float:
    return penalty(forecast, KNEE, allowance, greatest=GREATEST, most=most, held=held)


def penalty(
    forecast: WorkForecast, curve: Curve, allowance: float, *, greatest: float, most: int, held: float
) -> float:
    return miss_penalty(forecast, curve, allowance, greatest=greatest, frontier=of_one(most), held=held, params=DEFAULT)


def share_missed(forecast: WorkForecast, at: float, held: float) -> float:
    """Replayed moment by moment, sharing only the cost matrix with the code under test; the margin as documented.

    It is taken for four hours seen, two of which are remembered.
    """
    past = forecast.past(KNEE.load_for(ALLOWANCE))
    assert past is not None
    sizes = costs.sizes(KNEE, ALLOWANCE, max(past.observed.max(), past.outlook.samples.max()), of_one(100))
    matrix, fleets = costs.CostMatrix(past.outlook, KNEE, sizes), sizes.fleets
    wanted, kept = fleets[matrix.choose(at)], fleets[matrix.choose(DEFAULT.hysteresis * at)]
    chosen = wanted.tolist()
    for moment in range(past.moments):
        # What was recommended at a moment before this one is still there, for so long.
        chosen[moment] = max([wanted[moment], *kept[max(0, moment - round(held / SPACING)) : moment]])
    each = [
        work * float(KNEE.cost(np.array([work / fleet]))[0]) for fleet, work in zip(chosen, past.observed, strict=True)
    ]
    counts, moments = past.counts.tolist(), each[: past.moments]
    believed = zip(counts[past.moments :], each[past.moments :], strict=True)
    squares = sum(count * one**2 for count, one in believed)
    # Ten minutes that begin at each moment of the past: each burst is in twenty or so of them.
    for begin in range(-BLOCK + 1, past.moments):
        squares += sum(moments[max(0, begin) : begin + BLOCK]) ** 2 / BLOCK
    late = sum(count * one for count, one in zip(counts, each, strict=True))
    total = late + DEFAULT.penalty_margin * math.sqrt(KEPT * SPACING / 14400.0 * squares)
    return float(total / (past.counts @ past.observed))


STEPS = [(on_and_off(6.0, 40), 0.0), (on_and_off(3.0, 80), 0.0), (on_and_off(9.0, 120), 0.0)]
HELD = [(wandering(), held) for held in (290.0, 580.0, 1200.0)]


@pytest.mark.parametrize(("forecast", "held"), [*STEPS, *HELD])
def test_it_is_the_lowest_that_would_have_held_the_slo(forecast: WorkForecast, held: float) -> None:
    lowest = found(forecast, held=held)
    assert DEFAULT.least_penalty < lowest < GREATEST
    assert share_missed(forecast, lowest, held) <= ALLOWANCE
    assert share_missed(forecast, lowest / FINEST, held) > ALLOWANCE


def test_the_less_was_observed_the_larger_the_margin() -> None:
    # Heights of all sizes, so that a little more margin raises the penalty a little.
    came = np.random.default_rng(3).gamma(2.0, 1.5, size=KEPT).tolist()
    rough = WorkForecast(pairs=np.array([(3.0, 3.0, one) for one in came]), mean=3.0, seen=0.0)
    penalties = [found(replace(rough, seen=hours * 3600.0)) for hours in (1.0, 2.0, 24.0, 240.0)]
    assert penalties[0] == penalties[1], "two hours are remembered, and no margin is larger than theirs"
    assert penalties == sorted(penalties, reverse=True)
    assert penalties[-1] < penalties[0]


@pytest.mark.parametrize(("floor", "more"), [(0.02, 0.005), (0.05, 0.005), (0.3, 0.02)])
def test_misses_at_any_fleet_size_need_no_margin(floor: float, more: float) -> None:
    allowance = floor + more
    with_floor = Curve(floor + (1.0 - floor) * KNEE.miss, floor=floor, limit=1.0, aftermath=4.0)
    assert penalty(CALM, with_floor, allowance, greatest=GREATEST, most=100, held=0.0) < 0.2 * GREATEST


@pytest.mark.parametrize("seed", [1, 2])
def test_half_a_minute_later_two_hours_of_bursts_give_about_the_same_penalty(seed: int) -> None:
    # Were only every second pair replayed, as once, a burst of half a minute would be in one half of them: from one
    # pair to the next these penalties would change by 4.7 times.
    random = np.random.default_rng(seed)
    levels = np.ones(KEPT + 44)
    levels[random.integers(0, len(levels), 6)] = 6.0
    moves = list(zip(levels[:-4].tolist(), levels[:-4].tolist(), levels[4:].tolist(), strict=True))
    curve = MissCurve().posterior(expected_knee=0.6, highest_knee=0.8, shape=ESTIMATED, params=DEFAULT)

    def after(moved: int) -> float:
        forecast = WorkForecast(pairs=np.array(moves[moved : moved + KEPT]), mean=float(levels.mean()), seen=14400.0)
        return penalty(forecast, curve, 0.05, greatest=1000.0, most=100, held=0.0)

    rolling = [after(moved) for moved in range(40)]
    assert len(set(rolling)) > 1
    assert all(max(one / later, later / one) < 1.5 for one, later in pairwise(rolling))


@pytest.mark.parametrize(("begin", "end", "paid"), [(60, 66, False), (228, 234, True), (60, KEPT + 4, True)])
def test_a_burst_that_no_fleet_could_have_served_is_paid_for_only_until_it_is_over(
    begin: int, end: int, paid: bool
) -> None:
    # Ten times the usual: over for long, over for minutes, and come to stay.
    levels = np.where((np.arange(KEPT + 4) >= begin) & (np.arange(KEPT + 4) < end), 20.0, 2.0)
    pairs = np.column_stack((levels[:-4], levels[:-4], levels[4:]))
    assert (found(WorkForecast(pairs=pairs, mean=2.0, seen=7200.0)) == GREATEST) is paid
