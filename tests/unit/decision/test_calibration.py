"""Misses that came over misses that were foretold."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.calibration import LEAST, MEMORY, MOST, Calibration


def test_before_anything_is_known_half_as_many_again_are_expected() -> None:
    assert Calibration().ratio == 1.5


def test_ten_minutes_of_twice_the_foretold_misses_move_it_half_way() -> None:
    # 5% were foretold and 10% came over 600 s: (0.10 x 600 + 1.5 x 30) / (0.05 x 600 + 30) = (60 + 45) / 60 = 1.75.
    learned = Calibration().learn(foretold=0.05, came=0.10, weight=1.0, elapsed=600.0)
    assert learned.ratio == pytest.approx(1.75)


def test_a_tick_counts_by_its_requests_and_twice_the_usual_at_most() -> None:
    busy, surge = (Calibration().learn(foretold=0.05, came=0.1, weight=w, elapsed=60.0) for w in (2.0, 9.0))
    assert busy == surge == Calibration(foretold=6.0, came=12.0)


def test_what_was_seen_fades() -> None:
    learned = Calibration(foretold=30.0, came=60.0).learn(foretold=0.0, came=0.0, weight=1.0, elapsed=MEMORY)
    assert (learned.foretold, learned.came) == pytest.approx((30.0 / math.e, 60.0 / math.e))


@pytest.mark.parametrize(("foretold", "came", "bound"), [(0.2, 0.0, LEAST), (0.0, 1.0, MOST), (0.01, 0.9, MOST)])
def test_it_stays_bounded(foretold: float, came: float, bound: float) -> None:
    learned = Calibration()
    for _ in range(5_000):
        learned = learned.learn(foretold=foretold, came=came, weight=1.0, elapsed=15.0)
    assert learned.ratio == bound
