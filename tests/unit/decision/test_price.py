"""The price at which the fleet would just have held the SLO lately."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from servingpool.decision import capacity
from servingpool.decision.forecast import KEPT, SPACING, Forecast
from servingpool.decision.miss_curve import BINS, Curve
from servingpool.decision.price import FINEST, LEAST, MOST, STATES, price

ALLOWANCE = 0.03
KNEE = Curve(np.where(BINS < 0.5, 0.0, 1.0), floor=0.0, limit=1.0)
"""None is late up to load 0.4536, all are from 0.5105, and beyond 1 the queue is late as well."""
CALM = Forecast(pairs=((2.0, 2.0, 2.0),) * 240, mean=2.0, seen=14400.0)


def on_and_off(high: float, every: int) -> Forecast:
    """Ten minutes of `high`, then of 1, and so on; a cold start of two pairs.

    Four hours of it, twice what is remembered live: many bursts, so that figures do not hang on where one begins.
    """
    levels = [high if tick % every < 10 else 1.0 for tick in range(252)]
    usual = [float(np.mean(levels[max(0, tick - 9) : tick + 1])) for tick in range(252)]
    pairs = tuple(zip(levels[:-2], usual[:-2], levels[2:], strict=True))[-240:]
    return Forecast(pairs=pairs, mean=float(np.mean(levels)), seen=14400.0)


def found(forecast: Forecast, *, most: int = 100, held: float = 0.0, allowance: float = ALLOWANCE) -> float:
    return price(forecast, KNEE, allowance, most=most, held=held)


def share_missed(forecast: Forecast, at: float) -> float:
    """Played again moment by moment, with no word of the code under test but the scales; with three quarters of a standard error.

    The error is taken for four hours seen, two of which would be remembered live.
    """
    past = forecast.past(STATES, KNEE.load_for(ALLOWANCE))
    assert past is not None
    fleets = capacity.sizes(KNEE, ALLOWANCE, max(past.came.max(), past.outlook.samples.max()), 100)
    chosen = fleets[capacity.Scales(capacity.ahead(past.outlook, KNEE, ALLOWANCE), KNEE, fleets).choose(at)]
    late = squares = work = 0.0
    for fleet, came, count in zip(chosen, past.came, past.counts, strict=True):
        one = came * float(KNEE.cost(np.array([came / fleet]))[0])
        late += count * one
        squares += count * one**2 / past.every
        work += count * came
    return (late + 0.75 * math.sqrt(KEPT * SPACING / 14400.0 * squares)) / work


def test_a_calm_past_asks_for_little() -> None:
    assert found(CALM) < 5.0


def test_steps_that_would_have_cost_more_than_the_budget_raise_it() -> None:
    assert found(on_and_off(6.0, 20)) > 3.0 * found(CALM)


@pytest.mark.parametrize("forecast", [on_and_off(6.0, 20), on_and_off(3.0, 40), on_and_off(9.0, 60)])
def test_it_is_the_lowest_that_would_have_held(forecast: Forecast) -> None:
    lowest = found(forecast)
    assert LEAST < lowest < MOST
    assert share_missed(forecast, lowest) <= ALLOWANCE
    assert share_missed(forecast, lowest / FINEST) > ALLOWANCE


def test_the_less_was_seen_the_more_room_is_left() -> None:
    steps = on_and_off(9.0, 60)
    prices = [found(replace(steps, seen=hours * 3600.0)) for hours in (1.0, 2.0, 24.0, 240.0)]
    assert prices[0] == prices[1], "two hours are remembered, and no margin is larger than theirs"
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] < prices[0]


def test_a_smaller_allowance_costs_more() -> None:
    steps = on_and_off(6.0, 20)
    prices = [found(steps, allowance=allowance) for allowance in (0.2, 0.05, 0.01)]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]


def test_where_no_fleet_suffices_the_most_is_asked() -> None:
    # 6 replicas kept busy need 14, and there are 5.
    assert found(on_and_off(6.0, 20), most=5) == MOST


def test_without_demand_the_most_is_asked() -> None:
    assert found(Forecast()) == MOST


def test_a_fleet_that_stays_at_its_highest_need_holds_at_a_lower_price() -> None:
    # Steps come every 20 minutes; who keeps the fleet of the last one for so long has it when the next one comes.
    steps = on_and_off(6.0, 20)
    prices = [found(steps, held=held) for held in (0.0, 600.0, 1200.0)]
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] < prices[0]


def test_it_does_not_depend_on_the_unit_of_demand_where_fleets_are_large() -> None:
    # Ten times the demand in ten times the fleet: rounding to whole replicas is all that differs.
    small, large = on_and_off(6.0, 20), on_and_off(6.0, 20)
    large = Forecast(
        pairs=tuple((10.0 * a, 10.0 * b, 10.0 * c) for a, b, c in small.pairs), mean=10.0 * small.mean, seen=14400.0
    )
    assert found(large, most=1000) == pytest.approx(found(small), rel=0.5)
