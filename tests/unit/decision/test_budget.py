"""What was overspent of the allowed misses."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.budget import ABOVE_FLOOR, HOUR, LEAST, MOST, PLANNED, Budget
from servingpool.decision.trim import MOST as MOST_TRIM

ALLOWED = 0.05


def spent(budget: Budget, missed: float, seconds: float, **how: bool) -> Budget:
    return budget.learn(missed=missed, allowed=ALLOWED, weight=1.0, elapsed=seconds, **how)


def test_a_quarter_of_an_hour_of_twice_the_allowed_misses_raises_caution_to_half() -> None:
    # (0.10 / 0.05 - 1) x 900 / 3600 = 0.25 hours of allowed misses too many, and 1 - 2 x 0.25 = 0.5 may be planned with.
    budget = spent(Budget(), 0.10, 900.0)
    assert budget.overspent == pytest.approx(0.25)
    assert budget.steering == pytest.approx(0.5)


def test_it_is_forgotten_with_the_hour() -> None:
    # What comes is exactly what is allowed: nothing is added, and 1 / e of the old remains.
    assert spent(Budget(0.25), ALLOWED, HOUR).overspent == pytest.approx(0.25 / math.e)


@pytest.mark.parametrize(("missed", "steering"), [(0.0, MOST), (1.0, LEAST)])
def test_it_stays_bounded_and_saving_makes_nobody_careless(missed: float, steering: float) -> None:
    budget = Budget()
    for _ in range(10_000):
        budget = spent(budget, missed, 15.0)
    assert budget.steering == steering
    assert -1.0 <= budget.overspent <= 1.0


def test_ticks_count_by_their_requests_and_four_times_the_usual_at_most() -> None:
    # 2 x (0.10 / 0.05 - 1) x 36 / 3600 = 0.02; the third is cut from 100 to 4.
    weighed = [Budget().learn(missed=0.10, allowed=ALLOWED, weight=w, elapsed=36.0).overspent for w in (2, 4, 100)]
    assert weighed == pytest.approx([0.02, 0.04, 0.04])


def test_at_max_misses_do_not_add_up_and_at_min_savings_do_not() -> None:
    assert spent(Budget(), 0.5, 60.0, may_fall=False) == Budget()
    assert spent(Budget(), 0.0, 60.0, may_rise=False) == Budget()
    assert spent(Budget(), 0.0, 60.0, may_fall=False).overspent < 0.0
    assert spent(Budget(), 0.5, 60.0, may_rise=False).overspent > 0.0


def allowance(budget: Budget, *, floor: float, ratio: float = 1.0, trim: float = 1.0) -> float:
    return budget.allowance(allowed=ALLOWED, floor=floor, ratio=ratio, trim=trim)


def test_the_allowance_is_the_floor_and_a_part_of_what_is_left_above_it() -> None:
    # 1% is missed at any size, and 4% are left: 0.7 of them are planned with.
    assert allowance(Budget(), floor=0.01) == pytest.approx(0.01 + PLANNED * 0.04)
    assert allowance(Budget(0.25), floor=0.01) == pytest.approx(0.01 + PLANNED * 0.02), "half was overspent"
    assert allowance(Budget(), floor=0.01, ratio=2.0) == pytest.approx(0.01 + PLANNED * 0.02), "twice as many come"
    assert allowance(Budget(), floor=0.01, trim=1.2) == pytest.approx(0.01 + 1.2 * PLANNED * 0.04), "days saved some"


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.03, 0.045, 0.049])
@pytest.mark.parametrize("trim", [1.0, MOST_TRIM])
def test_hardly_more_is_planned_with_than_is_allowed_where_some_fleet_holds(floor: float, trim: float) -> None:
    assert floor < allowance(Budget(), floor=floor, trim=trim) <= max(ALLOWED, floor + ABOVE_FLOOR * ALLOWED) + 1e-12


def test_where_the_floor_eats_the_budget_some_is_allowed_above_it() -> None:
    # 80% miss at any size: 0.80 + 0.1 x 0.05 + 0.2 x 0.05 + 0.2 x (0.80 - 0.05) = 0.965.
    assert allowance(Budget(), floor=0.80) == pytest.approx(0.965)
    # Just out of reach, as much more as it is out of reach: 0.06 + 0.1 x 0.05 + 0.01 + 0.2 x 0.01 = 0.077.
    assert allowance(Budget(), floor=0.06) == pytest.approx(0.077)
