"""The error budget: what was overspent of the allowed misses, in the last hour and in the last day."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.learn.error_budget import (
    ABOVE_FLOOR,
    FAST_LEAST,
    SLOW_AIM,
    SLOW_LEAST,
    SLOW_MOST,
    ErrorBudget,
)
from servingpool.decision.observe.latency import Misses
from servingpool.decision.params import DAY, DEFAULT, HOUR

ALLOWED = 0.05
TICK = 15.0
PLANNED = DEFAULT.planned


def spent(
    budget: ErrorBudget, missed: float, seconds: float, *, above_min: bool = True, below_max: bool = True
) -> ErrorBudget:
    came = Misses(seconds, seconds * missed)
    return budget.update(
        carried=came,
        in_all=came,
        allowed=ALLOWED,
        usual=seconds,
        elapsed=seconds,
        above_min=above_min,
        below_max=below_max,
        params=DEFAULT,
    )


def factor(budget: ErrorBudget) -> float:
    """What both burn rates make of the plan."""
    return budget.fast_factor * budget.slow_factor(DEFAULT)


def after(missed: float, hours: float) -> ErrorBudget:
    budget = ErrorBudget()
    for _ in range(round(hours * HOUR / TICK)):
        budget = spent(budget, missed, TICK)
    return budget


def test_a_quarter_of_an_hour_of_twice_the_allowed_misses_halves_the_plan() -> None:
    # (0.10 / 0.05 - 1) x 900 / 3600 = 0.25 hours of allowed misses too many: 1 - 2 x 0.25 = 0.5. Days aim at 0.95 of the
    # allowed ones, so of those (0.10 / 0.05 - 0.95) x 900 / 3600 = 0.2625: exp(-0.2625 / 6).
    budget = spent(ErrorBudget(), 0.10, 900.0)
    assert (budget.fast, budget.slow) == (pytest.approx(0.25), pytest.approx(0.2625))
    assert factor(budget) == pytest.approx(0.5 * math.exp(-0.2625 / DEFAULT.slow_hours))


def test_the_fast_part_is_forgotten_with_the_hour_and_the_slow_one_with_the_day() -> None:
    # What comes is exactly what is allowed, or aimed at: nothing is added.
    assert spent(ErrorBudget(0.25, 0.25), ALLOWED, HOUR).fast == pytest.approx(0.25 / math.e)
    assert spent(ErrorBudget(0.25, 0.25), SLOW_AIM * ALLOWED, DAY).slow == pytest.approx(0.25 / math.e)


def test_a_quiet_hour_adds_nothing_to_the_plan_and_quiet_days_do() -> None:
    assert factor(after(0.0, 1.0)) == pytest.approx(1.0, abs=0.2)
    assert factor(after(0.0, 72.0)) == pytest.approx(SLOW_MOST)


def test_days_of_overspending_cut_the_plan_no_further_than_both_bounds() -> None:
    assert factor(after(1.0, 72.0)) == pytest.approx(SLOW_LEAST * FAST_LEAST)


def tick_of(requests: float, budget: ErrorBudget) -> ErrorBudget:
    came = Misses(requests, 0.10 * requests)
    return budget.update(
        carried=came,
        in_all=came,
        allowed=ALLOWED,
        usual=1.0,
        elapsed=36.0,
        above_min=True,
        below_max=True,
        params=DEFAULT,
    )


def test_a_tick_weighs_by_its_requests_up_to_four_times_the_usual_number() -> None:
    # 2 x (0.10 / 0.05 - 1) x 36 / 3600 = 0.02; the third is cut from 100 to 4.
    assert [tick_of(count, ErrorBudget()).fast for count in (2, 4, 100)] == pytest.approx([0.02, 0.04, 0.04])


def test_a_quiet_night_weighs_little_in_the_day() -> None:
    day = ErrorBudget(requests=86_400.0, seconds=86_400.0)  # one a second, so 36 in such a tick are usual
    assert tick_of(3.6, day).slow == pytest.approx(0.1 * tick_of(36.0, day).slow, rel=0.01)


def test_an_overload_counts_in_the_slow_part_only() -> None:
    budget = ErrorBudget().update(
        carried=Misses(0.0, 0.0),
        in_all=Misses(36.0, 36.0),
        allowed=ALLOWED,
        usual=36.0,
        elapsed=36.0,
        above_min=True,
        below_max=True,
        params=DEFAULT,
    )
    assert budget.fast == 0.0
    assert budget.slow == pytest.approx((1.0 / ALLOWED - SLOW_AIM) * 36.0 / HOUR)


def test_at_max_misses_do_not_add_up_and_at_min_savings_do_not() -> None:
    assert factor(spent(ErrorBudget(), 0.5, 60.0, below_max=False)) == 1.0
    assert factor(spent(ErrorBudget(), 0.0, 60.0, above_min=False)) == 1.0
    assert spent(ErrorBudget(), 0.0, 60.0, below_max=False).slow < 0.0
    assert spent(ErrorBudget(), 0.5, 60.0, above_min=False).slow > 0.0


def allowance(budget: ErrorBudget, *, floor: float, ratio: float = 1.0) -> float:
    return budget.allowance(allowed=ALLOWED, floor=floor, ratio=ratio, params=DEFAULT)


def test_the_allowance_is_the_floor_and_a_part_of_what_is_left_above_it() -> None:
    # 1% is missed at any size, and 4% are left: 0.7 of them are planned with.
    assert allowance(ErrorBudget(), floor=0.01) == pytest.approx(0.01 + PLANNED * 0.04)
    assert allowance(ErrorBudget(fast=0.25), floor=0.01) == pytest.approx(0.01 + PLANNED * 0.02), "half was overspent"
    assert allowance(ErrorBudget(), floor=0.01, ratio=2.0) == pytest.approx(0.01 + PLANNED * 0.02), "twice as many come"
    assert allowance(ErrorBudget(slow=-9.0), floor=0.01) == pytest.approx(0.01 + SLOW_MOST * PLANNED * 0.04), (
        "days saved"
    )


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.03, 0.045, 0.049])
@pytest.mark.parametrize("slow", [0.0, -100.0])
def test_hardly_more_is_planned_with_than_is_allowed_where_some_fleet_holds(floor: float, slow: float) -> None:
    most = max(ALLOWED, floor + ABOVE_FLOOR * ALLOWED) + 1e-12
    assert floor < allowance(ErrorBudget(slow=slow), floor=floor) <= most
