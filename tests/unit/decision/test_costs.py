"""The cheapest fleet: replicas against misses at their penalty, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from servingpool.decision.learn.forecast import Outlook
from servingpool.decision.learn.miss_curve import BINS, Curve
from servingpool.decision.need import costs
from servingpool.decision.need.mix import Frontier, Offer
from servingpool.decision.params import DEFAULT

ALLOWANCE = 0.05
KNEE = Curve(np.where(BINS < 0.5, 0.0, 1.0), floor=0.0, limit=1.0, aftermath=4.0)
"""None is late up to 0.4536, BINS[23], all are from 0.5105, BINS[24], and beyond 1 the queue is late as well."""
BURST = Outlook(np.array([2.0]), np.array([[2.0, 8.0]]), np.array([[0.9, 0.1]]))
"""Two replicas' work is expected, and in one of ten cases it is eight."""


def of_one(most: int) -> Frontier:
    """What may be had of one target."""
    return Frontier((Offer(1.0, 1.0, 0, most),))


def certain(level: float) -> Outlook:
    return Outlook(np.array([level]), np.array([[level]]), np.ones((1, 1)))


def need(outlook: Outlook, curve: Curve, allowance: float, penalty: float, most: int) -> float:
    """The cheapest fleet for the one state in `outlook`."""
    return float(costs.cheapest(outlook, 1.0, curve, allowance, (penalty,), of_one(most))[0][0, 0])


@pytest.mark.parametrize(
    ("penalty", "replicas"),
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
def test_the_fleet_with_the_least_sum_wins(penalty: float, replicas: float) -> None:
    assert need(BURST, KNEE, ALLOWANCE, penalty, most=100) == replicas


@pytest.mark.parametrize("floor", [0.0, 0.5, 0.95])
def test_at_the_least_penalty_no_demand_is_beyond_the_fleet_whatever_share_misses_anyhow(floor: float) -> None:
    curve = replace(KNEE, miss=np.maximum(KNEE.miss, floor), floor=floor)
    for level in (0.4, 1.0, 3.7, 40.0):
        assert need(certain(level), curve, floor + ALLOWANCE, DEFAULT.least_penalty, most=400) >= level


def test_no_replica_is_ordered_that_saves_no_request() -> None:
    # The burst is lost with 8 replicas as with 9 or 10, and 18 cannot be had.
    assert need(BURST, KNEE, ALLOWANCE, 400.0, most=10) == 8.0


@pytest.mark.parametrize("level", [100.0, 237.0, 400.0])
def test_a_large_fleet_is_found_to_the_replica(level: float) -> None:
    # One is late as soon as the load passes BINS[23] = 0.4536, and at this penalty nothing may be late.
    assert need(certain(level), KNEE, ALLOWANCE, 1e5, most=4000) == np.ceil(level / BINS[23])


def test_every_size_is_weighed_up_to_a_number_and_few_beyond() -> None:
    assert costs.sizes(KNEE, ALLOWANCE, 10.0, of_one(1000)).fleets.tolist() == list(
        range(1, 24 + 1)
    )  # 10 / 0.456 = 21.9: 22 + 1
    weighed = costs.sizes(KNEE, ALLOWANCE, 1e4, of_one(1000), 64).fleets
    assert (len(weighed) <= 64, weighed[0], weighed[-1]) == (True, 1.0, 1000.0)


def test_each_state_and_penalty_of_a_large_fleet_is_answered_as_if_alone() -> None:
    # The same highest sample in both, so that each is weighed on the same levels and sizes alone as well.
    small = Outlook(np.array([200.0]), np.array([[200.0, 400.0]]), np.array([[0.99, 0.01]]))
    large = Outlook(np.array([380.0]), np.array([[350.0, 400.0]]), np.array([[0.2, 0.8]]))
    both = Outlook(*(np.concatenate(parts) for parts in zip(small, large, strict=True)))
    penalties = (2.0, 400.0)
    found = costs.cheapest(both, 1.0, KNEE, ALLOWANCE, penalties, of_one(4000))[0]
    alone = [[need(state, KNEE, ALLOWANCE, penalty, most=4000) for penalty in penalties] for state in (small, large)]
    assert found.tolist() == alone
    assert found[0, 0] < found[0, 1], "the higher the penalty, the more"
    assert found[0, 0] < found[1, 0], "the more may come, the more"
