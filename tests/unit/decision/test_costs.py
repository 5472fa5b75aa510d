"""Replicas on one side of the scales, misses at their price on the other, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from servingpool.decision import capacity
from servingpool.decision.forecast import Outlook
from servingpool.decision.miss_curve import BINS, Curve, MissCurve

ALLOWANCE = 0.05
KNEE = Curve(np.where(BINS < 0.5, 0.0, 1.0), floor=0.0, limit=1.0)
"""None is late up to 0.4536, BINS[23], all are from 0.5105, BINS[24], and beyond 1 the queue is late as well."""
BURST = Outlook(np.array([2.0]), np.array([[2.0, 8.0]]), np.array([[0.9, 0.1]]))
"""Two replicas' work is expected, and in one of ten cases it is eight."""


def certain(level: float) -> Outlook:
    return Outlook(np.array([level]), np.array([[level]]), np.ones((1, 1)))


@pytest.mark.parametrize(
    ("price", "replicas"),
    [
        # Late work is 0.1 x 8 x (1 + 4 (8 / n - 1)): 2.72 with 5 replicas, 1.87 with 6, 1.26 with 7, 0.8 with 8 to 15,
        # and none from 18 on (8 / 18 = 0.444).
        (1.0, 5.0),  # 5 + 2.72 = 7.72, 6 + 1.87 = 7.87, 7 + 1.26 = 8.26
        (2.0, 7.0),  # 5 + 5.44 = 10.44, 6 + 3.73 = 9.73, 7 + 2.51 = 9.51, 8 + 1.60 = 9.60
        (5.0, 8.0),  # 7 + 6.29 = 13.29, 8 + 4.00 = 12.00, 18
        (12.0, 8.0),  # 8 + 9.60 = 17.60, 18
        (13.0, 18.0),  # 8 + 10.40 = 18.40, 18
        (400.0, 18.0),
    ],
)
def test_the_lighter_side_of_the_scales_wins(price: float, replicas: float) -> None:
    assert capacity.need(BURST, KNEE, ALLOWANCE, price, most=100) == replicas


def test_what_is_expected_is_borne_however_cheap_a_miss_is() -> None:
    # 5 x 5% = 25% of the expected work may be late at most: a quarter of the way from 0.4536 to 0.5105 is 0.467, and
    # 2 / 0.467 = 4.3, so 5 replicas. At this price alone one would do.
    assert capacity.need(BURST, KNEE, ALLOWANCE, 1e-6, most=100) == 5.0


def test_no_replica_is_bought_that_saves_nobody() -> None:
    # The burst is lost with 8 replicas as with 9 or 10, and 18 cannot be had.
    assert capacity.need(BURST, KNEE, ALLOWANCE, 400.0, most=10) == 8.0


def test_the_whole_fleet_and_no_more_where_even_that_is_too_small() -> None:
    assert capacity.need(certain(20.0), KNEE, ALLOWANCE, 400.0, most=5) == 5.0


def test_no_demand_needs_no_replica() -> None:
    assert capacity.need(certain(0.0), KNEE, ALLOWANCE, 400.0, most=10) == 0.0


@pytest.mark.parametrize("level", [100.0, 237.0, 400.0])
def test_a_large_fleet_is_found_to_the_replica(level: float) -> None:
    # One is late as soon as the load passes BINS[23] = 0.4536, and at this price nothing may be late.
    assert capacity.need(certain(level), KNEE, ALLOWANCE, 1e5, most=4000) == np.ceil(level / BINS[23])


def test_sizes_are_each_one_up_to_64_and_few_beyond() -> None:
    assert capacity.sizes(KNEE, ALLOWANCE, 10.0, 1000).tolist() == list(range(1, 24 + 1))  # 10 / 0.456 = 21.9: 22 + 1
    many = capacity.sizes(KNEE, ALLOWANCE, 1e4, 1000)
    assert (len(many) <= capacity.SIZES, many[0], many[-1]) == (True, 1.0, 1000.0)


def test_need_doubles_when_demand_does() -> None:
    curve = MissCurve().posterior(expected_knee=0.6, highest_knee=0.9)
    small, large = (capacity.need(certain(level), curve, 0.1, 20.0, most=1000) for level in (20.0, 40.0))
    assert large == pytest.approx(2.0 * small, abs=2.0)


def test_a_state_with_a_burst_ahead_does_not_enlarge_the_fleet_of_another() -> None:
    quiet, rough = certain(2.0), BURST
    both = Outlook(np.array([2.0, 2.0]), np.array([[2.0, 2.0], [2.0, 8.0]]), np.array([[0.9, 0.1], [0.9, 0.1]]))
    fleets = np.arange(1.0, 20.0)
    chosen = fleets[capacity.Scales(capacity.ahead(both, KNEE, ALLOWANCE), KNEE, fleets).choose(400.0)]
    assert chosen.tolist() == [
        capacity.need(quiet, KNEE, ALLOWANCE, 400.0, most=100),
        capacity.need(rough, KNEE, ALLOWANCE, 400.0, most=100),
    ]


def test_states_and_prices_of_a_large_fleet_are_each_answered_as_if_alone() -> None:
    # The same highest sample in both, so that each is weighed on the same levels and sizes alone as well.
    small = Outlook(np.array([200.0]), np.array([[200.0, 400.0]]), np.array([[0.99, 0.01]]))
    large = Outlook(np.array([380.0]), np.array([[350.0, 400.0]]), np.array([[0.2, 0.8]]))
    both = Outlook(*(np.concatenate(parts) for parts in zip(small, large, strict=True)))
    prices = (2.0, 400.0)
    found = capacity.needs(both, KNEE, ALLOWANCE, prices, most=4000)
    alone = [[capacity.need(state, KNEE, ALLOWANCE, price, most=4000) for price in prices] for state in (small, large)]
    assert found.tolist() == alone
    assert found[0, 0] < found[0, 1], "the dearer a miss, the more"
    assert found[0, 0] < found[1, 0], "the more may come, the more"
