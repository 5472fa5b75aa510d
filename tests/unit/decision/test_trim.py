"""What days of the plan have shown."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.trim import AIM, LEAST, MOST, TIME, Trim

ALLOWED, TICK = 0.05, 15.0


def served(trim: Trim, missed: float, hours: float, *, rate: float = 2.0, **bounds: bool) -> Trim:
    """Hours of `rate` requests/s, of which the share `missed` is late."""
    requests = rate * TICK
    for _ in range(round(hours * 3600.0 / TICK)):
        trim = trim.learn(
            requests=requests,
            missed=missed * requests,
            allowed=ALLOWED,
            elapsed=TICK,
            may_rise=bounds.get("may_rise", True),
            may_fall=bounds.get("may_fall", True),
        )
    return trim


def test_a_fleet_too_large_for_hours_is_planned_smaller() -> None:
    # Nothing missed for a sixth of TIME: exp(0.95 / 6).
    assert served(Trim(), 0.0, TIME / 3600.0 / 6.0).factor == pytest.approx(math.exp(AIM / 6.0), rel=0.01)


def test_what_is_aimed_at_changes_nothing() -> None:
    assert served(Trim(), AIM * ALLOWED, 48.0).factor == pytest.approx(1.0)


@pytest.mark.parametrize(("missed", "factor"), [(0.0, MOST), (1.0, LEAST)])
def test_it_stays_bounded(missed: float, factor: float) -> None:
    assert served(Trim(), missed, 72.0).factor == pytest.approx(factor)


def test_a_night_counts_by_its_few_requests() -> None:
    day = served(Trim(), AIM * ALLOWED, 12.0, rate=10.0)
    by_night, by_day = served(day, 0.0, 2.0, rate=0.5), served(day, 0.0, 2.0, rate=10.0)
    assert 1.0 < by_night.factor < 1.05 < by_day.factor


def test_one_burst_that_is_missed_does_not_undo_a_day() -> None:
    calm = served(Trim(), 0.035, 24.0)
    assert calm.factor > 1.3
    assert served(calm, 0.5, 5.0 / 60.0).factor > 0.85 * calm.factor


def test_at_a_bound_nothing_winds_up() -> None:
    assert served(Trim(), 0.5, 4.0, may_fall=False).factor == 1.0
    assert served(Trim(), 0.0, 4.0, may_rise=False).factor == 1.0
    assert served(Trim(), 0.5, 4.0, may_rise=False).factor < 1.0
    assert served(Trim(), 0.0, 4.0, may_fall=False).factor > 1.0


def test_an_outage_is_no_reason_for_days_of_half_the_plan() -> None:
    assert served(Trim(), 1.0, 0.25).factor >= LEAST == 0.7


def test_one_request_behind_an_idle_day_turns_little() -> None:
    idle = served(Trim(), 0.0, 24.0, rate=0.0)
    one = idle.learn(requests=1.0, missed=1.0, allowed=ALLOWED, elapsed=TICK, may_rise=True, may_fall=True)
    assert one.factor > 0.85


def test_before_the_first_request_there_is_nothing_to_learn() -> None:
    idle = Trim().learn(requests=0.0, missed=0.0, allowed=ALLOWED, elapsed=TICK, may_rise=True, may_fall=True)
    assert idle.factor == 1.0


@pytest.mark.parametrize("turned", [800.0, -800.0])
def test_a_damaged_profile_does_not_turn_it_beyond_its_bounds(turned: float) -> None:
    assert LEAST <= Trim(turned=turned).factor <= MOST
