"""Misses observed over misses that the curve predicted."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.learn.error_budget import Calibration
from servingpool.decision.params import DEFAULT, REMEMBERED


def test_old_observations_fade() -> None:
    learned = Calibration(predicted=30.0, observed=60.0).update(
        predicted=0.0, observed=0.0, weight=1.0, elapsed=REMEMBERED
    )
    assert (learned.predicted, learned.observed) == pytest.approx((30.0 / math.e, 60.0 / math.e))


@pytest.mark.parametrize(("predicted", "observed", "bound"), [(0.2, 0.0, 1.0), (0.0, 1.0, 4.0), (0.01, 0.9, 4.0)])
def test_the_ratio_stays_bounded(predicted: float, observed: float, bound: float) -> None:
    learned = Calibration()
    for _ in range(5_000):
        learned = learned.update(predicted=predicted, observed=observed, weight=1.0, elapsed=15.0)
    assert learned.ratio(DEFAULT) == bound
