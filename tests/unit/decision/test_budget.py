"""The error budget: what was overspent of the allowed misses in the last day."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.learn.error_budget import (
    ABOVE_FLOOR,
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
    return budget.update(
        misses=Misses(seconds, seconds * missed),
        allowed=ALLOWED,
        elapsed=seconds,
        above_min=above_min,
        below_max=below_max,
        params=DEFAULT,
    )


def factor(budget: ErrorBudget) -> float:
    return budget.slow_factor(DEFAULT)


def after(missed: float, hours: float) -> ErrorBudget:
    budget = ErrorBudget()
    for _ in range(round(hours * HOUR / TICK)):
        budget = spent(budget, missed, TICK)
    return budget


def test_what_is_overspent_counts_in_hours_and_is_forgotten_with_the_day() -> None:
    # (0.10 / 0.05 - 0.95) x 900 / 3600 = 0.2625 hours of allowed misses too many: exp(-0.2625 / 6).
    budget = spent(ErrorBudget(), 0.10, 900.0)
    assert budget.slow == pytest.approx(0.2625)
    assert factor(budget) == pytest.approx(math.exp(-0.2625 / DEFAULT.slow_hours))
    # What comes is exactly what is aimed at: nothing is added.
    assert spent(ErrorBudget(0.25), SLOW_AIM * ALLOWED, DAY).slow == pytest.approx(0.25 / math.e)


def test_days_move_the_plan_no_further_than_both_bounds() -> None:
    assert factor(after(0.0, 72.0)) == pytest.approx(SLOW_MOST)
    assert factor(after(1.0, 72.0)) == pytest.approx(SLOW_LEAST)


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
    assert allowance(ErrorBudget(), floor=0.01, ratio=2.0) == pytest.approx(0.01 + PLANNED * 0.02), "twice as many come"
    assert allowance(ErrorBudget(slow=-9.0), floor=0.01) == pytest.approx(0.01 + SLOW_MOST * PLANNED * 0.04), (
        "days saved"
    )


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.03, 0.045, 0.049])
@pytest.mark.parametrize("slow", [0.0, -100.0])
def test_hardly_more_is_planned_with_than_is_allowed_where_some_fleet_holds(floor: float, slow: float) -> None:
    most = max(ALLOWED, floor + ABOVE_FLOOR * ALLOWED) + 1e-12
    assert floor < allowance(ErrorBudget(slow=slow), floor=floor) <= most
