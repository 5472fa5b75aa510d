"""What was overspent of the allowed misses."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.budget import HOUR, LEAST, MOST, PLANNED, Budget

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


def test_the_allowance_is_what_is_allowed_less_what_was_overspent_and_what_the_curve_hides() -> None:
    # 0.05 x 1.0 / 1.25 = 0.04 of what is planned with, and above a floor of 0.1% at least 0.3 x 5% = 1.6% is allowed.
    assert Budget().allowance(allowed=ALLOWED, floor=0.001, ratio=1.25) == pytest.approx(PLANNED * 0.04)
    assert Budget(0.25).allowance(allowed=ALLOWED, floor=0.001, ratio=4.0) == pytest.approx(0.016)


def test_where_the_floor_eats_the_budget_some_is_allowed_above_it() -> None:
    # 80% miss at any size: 0.80 + 0.3 x 0.05 + 0.2 x (0.80 - 0.05) = 0.965.
    assert Budget().allowance(allowed=ALLOWED, floor=0.80, ratio=1.0) == pytest.approx(0.965)
