"""The price at which the fleet would just have held the SLO lately."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision import capacity
from servingpool.decision.forecast import KEPT, SPACING, Forecast
from servingpool.decision.miss_curve import BINS, Curve, MissCurve
from servingpool.decision.price import BLOCK, FINEST, LEAST, MARGIN, _highest_of_last, price

ALLOWANCE, DEAREST = 0.03, 200.0
KNEE = Curve(np.where(BINS < 0.5, 0.0, 1.0), floor=0.0, limit=1.0)
"""None is late up to load 0.4536, all are from 0.5105, and beyond 1 the queue is late as well."""
CALM = Forecast(pairs=np.array([(2.0, 2.0, 2.0)] * 480), mean=2.0, seen=14400.0)


def on_and_off(high: float, every: int) -> Forecast:
    """Ten minutes of `high`, then of 1, and so on, in half minutes; a cold start of two minutes.

    Four hours of it, twice what is remembered live: many bursts, so that figures do not hang on where one begins.
    """
    levels = [high if tick % every < 20 else 1.0 for tick in range(484)]
    usual = [float(np.mean(levels[max(0, tick - 19) : tick + 1])) for tick in range(484)]
    pairs = tuple(zip(levels[:-4], usual[:-4], levels[4:], strict=True))
    return Forecast(pairs=np.array(pairs), mean=float(np.mean(levels)), seen=14400.0)


def wandering() -> Forecast:
    """Levels that come and go at a pace of their own, so that each moment wants another fleet."""
    random, level, levels = np.random.default_rng(5), 0.0, []
    for _ in range(KEPT + 4):
        level = 0.9 * level + random.normal(0.0, 0.28)
        levels.append(4.0 * math.exp(level))
    pairs = tuple(zip(levels[:-4], levels[:-4], levels[4:], strict=True))
    return Forecast(pairs=np.array(pairs), mean=float(np.mean(levels)), seen=14400.0)


def found(forecast: Forecast, *, most: int = 100, held: float = 0.0, allowance: float = ALLOWANCE) -> float:
    return price(forecast, KNEE, allowance, dearest=DEAREST, most=most, held=held)


def share_missed(forecast: Forecast, at: float, held: float) -> float:
    """Played again moment by moment, with no word of the code under test but the scales; the margin as it is said.

    It is taken for four hours seen, two of which are remembered.
    """
    past = forecast.past(KNEE.load_for(ALLOWANCE))
    assert past is not None
    fleets = capacity.sizes(KNEE, ALLOWANCE, max(past.came.max(), past.outlook.samples.max()), 100)
    scales = capacity.Scales(capacity.ahead(past.outlook, KNEE, ALLOWANCE), KNEE, fleets)
    wanted, kept = fleets[scales.choose(at)], fleets[scales.choose(capacity.STICK * at)]
    chosen = wanted.tolist()
    for moment in range(past.moments):
        # What was worth keeping at a moment before this one is still there, for so long.
        chosen[moment] = max([wanted[moment], *kept[max(0, moment - round(held / SPACING)) : moment]])
    each = [came * float(KNEE.cost(np.array([came / fleet]))[0]) for fleet, came in zip(chosen, past.came, strict=True)]
    counts, moments = past.counts.tolist(), each[: past.moments]
    believed = zip(counts[past.moments :], each[past.moments :], strict=True)
    squares = sum(count * one**2 for count, one in believed)
    # Ten minutes that begin at each moment of the past: each burst is in twenty or so of them.
    for begin in range(-BLOCK + 1, past.moments):
        squares += sum(moments[max(0, begin) : begin + BLOCK]) ** 2 / BLOCK
    late = sum(count * one for count, one in zip(counts, each, strict=True))
    total = late + MARGIN * math.sqrt(KEPT * SPACING / 14400.0 * squares)
    return float(total / (past.counts @ past.came))


def test_a_calm_past_asks_for_little() -> None:
    assert found(CALM) < 5.0


def test_steps_that_would_have_cost_more_than_the_budget_raise_it() -> None:
    assert found(on_and_off(9.0, 120)) > 3.0 * found(CALM)


STEPS = [(on_and_off(6.0, 40), 0.0), (on_and_off(3.0, 80), 0.0), (on_and_off(9.0, 120), 0.0)]
HELD = [(wandering(), held) for held in (290.0, 580.0, 1200.0)]


@pytest.mark.parametrize(("forecast", "held"), [*STEPS, *HELD])
def test_it_is_the_lowest_that_would_have_held(forecast: Forecast, held: float) -> None:
    lowest = found(forecast, held=held)
    assert LEAST < lowest < DEAREST
    assert share_missed(forecast, lowest, held) <= ALLOWANCE
    assert share_missed(forecast, lowest / FINEST, held) > ALLOWANCE


def test_the_less_was_seen_the_more_room_is_left() -> None:
    # Heights of all sizes, so that a little more room asks for a little more.
    came = np.random.default_rng(3).gamma(2.0, 1.5, size=KEPT).tolist()
    rough = Forecast(pairs=np.array([(3.0, 3.0, one) for one in came]), mean=3.0)
    prices = [found(replace(rough, seen=hours * 3600.0)) for hours in (1.0, 2.0, 24.0, 240.0)]
    assert prices[0] == prices[1], "two hours are remembered, and no margin is larger than theirs"
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] < prices[0]


@pytest.mark.parametrize(("floor", "more"), [(0.02, 0.005), (0.05, 0.005), (0.3, 0.02)])
def test_what_misses_at_any_size_is_no_burst_that_calls_for_a_margin(floor: float, more: float) -> None:
    allowance = floor + more
    with_floor = Curve(floor + (1.0 - floor) * KNEE.miss, floor=floor, limit=1.0)
    assert price(CALM, with_floor, allowance, dearest=DEAREST, most=100, held=0.0) < 0.2 * DEAREST


@pytest.mark.parametrize("seed", [1, 2])
def test_half_a_minute_later_two_hours_of_bursts_ask_for_about_the_same_price(seed: int) -> None:
    # Were every second pair played, as it was once, a burst of half a minute would be in one half of them: from one
    # pair to the next these prices would change by 4.7 times.
    random = np.random.default_rng(seed)
    levels = np.ones(KEPT + 44)
    levels[random.integers(0, len(levels), 6)] = 6.0
    moves = list(zip(levels[:-4].tolist(), levels[:-4].tolist(), levels[4:].tolist(), strict=True))
    curve = MissCurve().posterior(expected_knee=0.6, highest_knee=0.8)

    def after(moved: int) -> float:
        forecast = Forecast(pairs=np.array(moves[moved : moved + KEPT]), mean=float(levels.mean()), seen=14400.0)
        return price(forecast, curve, 0.05, dearest=1000.0, most=100, held=0.0)

    rolling = [after(moved) for moved in range(40)]
    assert len(set(rolling)) > 1
    assert all(max(one / later, later / one) < 1.5 for one, later in pairwise(rolling))


def test_a_smaller_allowance_costs_more() -> None:
    steps = on_and_off(6.0, 40)
    prices = [found(steps, allowance=allowance) for allowance in (0.2, 0.05, 0.01)]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]


def test_where_no_fleet_suffices_the_most_is_asked() -> None:
    # 6 replicas kept busy need 14, and there are 5.
    assert found(on_and_off(6.0, 40), most=5) == DEAREST


def test_without_demand_the_most_is_asked() -> None:
    assert found(Forecast()) == DEAREST


def test_a_fleet_that_stays_at_its_highest_need_holds_at_a_lower_price() -> None:
    # Steps come every 20 minutes; who keeps the fleet of the last one for so long has it when the next one comes.
    steps = on_and_off(6.0, 40)
    prices = [found(steps, held=held) for held in (0.0, 600.0, 1200.0)]
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] < prices[0]


def test_it_does_not_depend_on_the_unit_of_demand_where_fleets_are_large() -> None:
    # Ten times the demand in ten times the fleet: rounding to whole replicas is all that differs.
    small, large = on_and_off(6.0, 40), on_and_off(6.0, 40)
    large = Forecast(pairs=10.0 * small.pairs, mean=10.0 * small.mean, seen=14400.0)
    assert found(large, most=1000) == pytest.approx(found(small), rel=0.5)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 50))
def test_the_highest_of_the_last_is_what_looking_back_at_each_gives(values: list[int], span: int) -> None:
    looked = [max(values[max(0, at + 1 - span) : at + 1]) for at in range(len(values))]
    assert _highest_of_last(span, np.array(values)).tolist() == looked
