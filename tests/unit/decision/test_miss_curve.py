"""The share of requests that misses at a load."""

from __future__ import annotations

import math

import numpy as np
import pytest

from servingpool.decision.learn.miss_curve import (
    BINS,
    ESTIMATED,
    FLOORS,
    KNEES,
    OBSERVED,
    STEEPNESS,
    Curve,
    LoadAttribution,
    MissCurve,
)
from servingpool.decision.observe.latency import Misses
from servingpool.decision.params import DEFAULT


def seen(
    curve: MissCurve, *, load: float, requests: float, late: float, elapsed: float, on_time_at: float | None = None
) -> MissCurve:
    """The curve after a tick, where all requests met one load unless said otherwise."""
    at = LoadAttribution(load, load if on_time_at is None else on_time_at)
    return curve.update(at, Misses(requests, late), elapsed=elapsed, params=DEFAULT)


def believed(evidence: MissCurve, most_floor: float = 1.0) -> Curve:
    """Where physics expects the knee at 0.6 and not beyond 0.9."""
    return evidence.posterior(
        expected_knee=0.6, highest_knee=0.9, shape=ESTIMATED, params=DEFAULT, most_floor=most_floor
    )


def test_requests_that_miss_at_any_load_raise_the_floor_not_the_fleet() -> None:
    curve = MissCurve()
    for load in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5) * 20:
        curve = seen(curve, load=load, requests=100.0, late=4.0, elapsed=15.0)
    posterior = believed(curve)
    assert posterior.floor == pytest.approx(0.04, abs=0.015)
    assert posterior.load_for(0.04 + 0.02) > 0.3


def test_misses_at_heavy_load_alone_are_no_floor() -> None:
    """Prompts of 100,000 tokens at a load of 0.5 to 0.6 were taken for one, and the fleet shrank into more of them."""
    curve = MissCurve()
    for load, late in ((0.5, 7.0), (0.55, 8.0), (0.6, 9.0)) * 40:
        curve = seen(curve, load=load, requests=100.0, late=late, elapsed=15.0)
    assert curve.late_at_light_load(60.0) == 0.0
    posterior = believed(curve, most_floor=0.05)
    assert posterior.floor <= 0.05
    assert posterior.load_for(0.05) < 0.5, "what attains 95% is lighter than what was seen, and not heavier"


@pytest.mark.parametrize("share", [0.07, 0.15])
def test_a_floor_between_two_that_are_weighed_is_believed_once_it_is_proven(share: float) -> None:
    curve = MissCurve()
    for load in (0.6, 0.3) * 120:
        curve = seen(curve, load=load, requests=100.0, late=100.0 * share, elapsed=15.0)
    proven = curve.floor_proven(60.0, 0.05)
    assert proven >= share
    assert believed(curve, most_floor=proven).floor > 0.05, "no fleet size holds the SLO"


def test_requests_on_time_beyond_a_full_replica_have_come_before_its_queue() -> None:
    """A step of the ramp met three replicas for half a minute at a load of 0.9 to 1.2, and "the SLO holds up to 0.96"."""
    curve = MissCurve()
    for _ in range(40):
        curve = seen(curve, load=0.95, requests=12.0, late=0.0, elapsed=15.0)
    posterior = curve.posterior(expected_knee=0.9, highest_knee=1.0, shape=OBSERVED, params=DEFAULT)
    assert posterior.load_for(0.03) < 0.9
    assert posterior.miss[BINS > 1.2].min() > 0.9


@pytest.mark.parametrize("overloaded", [0, 3])
def test_the_posterior_is_what_bayes_says_cell_by_cell(overloaded: int) -> None:
    evidence = MissCurve()
    for load, late, ticks in ((0.2, 0.0, 30), (0.5, 1.0, 20), (0.7, 4.0, 10), (1.4, 12.0, overloaded)):
        for _ in range(ticks):
            evidence = seen(evidence, load=load, requests=12.0, late=late, elapsed=15.0)
    cells = []
    for knee in KNEES:
        for steep in STEEPNESS:
            for rank, floor in enumerate(FLOORS):
                miss = floor + (1.0 - floor) / (1.0 + (BINS / knee) ** -steep)
                prior = -0.5 * (math.log(steep / 8.0) / 0.7) ** 2 - 0.8 * rank
                prior -= 0.5 * (math.log(knee / 0.6) / ESTIMATED.knee_spread) ** 2 + (
                    12.0 if knee > 0.9 * 1.05 else 0.0
                )
                met = np.array(evidence.requests) - np.array(evidence.late)
                counted = np.array(evidence.late) * np.log(miss) + met * np.log(np.maximum(1.0 - miss, 1e-12))
                cells.append((prior + counted.sum(), miss, floor))
    weights = np.exp(np.array([cell[0] for cell in cells]) - max(cell[0] for cell in cells))
    weights /= weights.sum()
    found = believed(evidence)
    assert found.miss == pytest.approx(weights @ np.array([cell[1] for cell in cells]), rel=1e-4)
    assert found.floor == pytest.approx(weights @ np.array([cell[2] for cell in cells]), rel=1e-4)


def test_an_overload_costs_the_queue_after_it_as_well() -> None:
    curve = Curve(np.zeros(len(BINS)), floor=0.0, limit=0.8, aftermath=4.0)
    # Up to the limit nothing follows; at 1.0 it is passed by 1.0 / 0.8 - 1 = 0.25, and 4 x 0.25 = 1 are late after it.
    assert curve.cost(np.array([0.4, 0.8, 1.0, 1.6])) == pytest.approx([0.0, 0.0, 1.0, 4.0])


def test_a_tick_counts_for_twelve_requests_at_most() -> None:
    curve = seen(MissCurve(), load=0.5, requests=1200.0, late=300.0, elapsed=0.0)
    # Neighbours share their burst: 1200 requests weigh 12, of which a quarter, 3, were late.
    assert (sum(curve.requests), sum(curve.late)) == pytest.approx((12.0, 3.0))
