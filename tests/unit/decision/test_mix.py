"""The cheapest mix of targets with a given capacity."""

from __future__ import annotations

import math
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision.decision import ENOUGH
from servingpool.decision.need.mix import MIXES, Frontier, Offer, capacity, cheapest_mix, front, greatest, price

H100, L40S = Offer(1.0, 3.9, 0, 10), Offer(0.25, 1.0, 0, 10)


@st.composite
def offers(draw: st.DrawFn) -> tuple[Offer, ...]:
    found = []
    for _ in range(draw(st.integers(1, 3))):
        least = draw(st.integers(0, 2))
        most = least + draw(st.integers(0, 4))
        found.append(
            Offer(draw(st.sampled_from([0.0, 0.25, 0.3, 0.5, 1.0, 1.7])), draw(st.floats(0.1, 9.0)), least, most)
        )
    return tuple(found)


@given(offers(), st.floats(0.0, 12.0))
def test_no_other_mix_of_that_capacity_is_cheaper(some: tuple[Offer, ...], need: float) -> None:
    mix = cheapest_mix(some, need)
    assert all(offer.least <= count <= offer.most for offer, count in zip(some, mix, strict=True))
    if capacity(some, greatest(some)) < need * ENOUGH:
        assert mix == greatest(some)
        return
    assert capacity(some, mix) >= need * ENOUGH * (1.0 - 1e-6)
    every = product(*(range(offer.least, offer.most + 1) for offer in some))
    best = min((price(some, other) for other in every if capacity(some, other) >= need), default=math.inf)
    assert price(some, mix) <= best * (1.0 + 1e-6)


@given(offers(), st.floats(1.0, 12.0))
def test_more_capacity_costs_more_and_none_is_weighed_that_costs_no_less(some: tuple[Offer, ...], last: float) -> None:
    capacities, prices = Frontier(some).upto(last)
    assert len(capacities) == len(prices) > 0
    assert (capacities[1:] > capacities[:-1]).all()
    assert (prices[1:] > prices[:-1]).all()


@given(offers(), st.floats(1.0, 12.0))
def test_what_is_weighed_costs_as_little_as_any_mix_of_its_capacity(some: tuple[Offer, ...], last: float) -> None:
    capacities, prices, _ = front(some, last)
    every = [tuple(mix) for mix in product(*(range(offer.least, offer.most + 1) for offer in some))]
    for at, paid in zip(capacities, prices, strict=True):
        best = min(price(some, mix) for mix in every if capacity(some, mix) >= at * (1.0 - 1e-9))
        assert math.isclose(paid, best, rel_tol=1e-6)
    assert capacities[-1] >= min(last, capacity(some, greatest(some))) * (1.0 - 1e-9)


def test_among_equals_the_earlier_target_is_taken() -> None:
    assert cheapest_mix((H100, H100), 3.0) == (3, 0)


def test_eight_targets_of_a_hundred_replicas_take_few_steps() -> None:
    some = tuple(Offer(1.0 + 0.13 * n, 1.0 + 0.14 * n, 0, 100) for n in range(8))
    mix = cheapest_mix(some, 100.0)
    assert 100.0 * ENOUGH <= capacity(some, mix) < 103.0
    assert price(some, mix) < 1.02 * 100.0 * min(offer.price / offer.weight for offer in some)


def test_eight_targets_of_ten_thousand_replicas_are_weighed_in_few_sizes() -> None:
    some = tuple(Offer(1.0 + 0.13 * n, 1.0 + 0.14 * n, 0, 10_000) for n in range(8))
    capacities, prices, _ = front(some, 9000.0)
    assert len(capacities) < MIXES**2
    assert (capacities[-1], prices[-1]) == (9000.0, 9000.0)


def test_a_capacity_of_one_at_the_best_value_costs_one() -> None:
    capacities, prices = Frontier((H100, L40S)).upto(4.0)
    assert math.isclose(capacities[0], 0.25)
    assert math.isclose(prices[0], 1.0 / 3.9)
