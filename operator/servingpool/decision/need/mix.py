"""Mixes of the targets' replicas: those that are worth their price, and the cheapest mix of a capacity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.decision import EQUAL, share_of

Array = NDArray[np.float64]
Counts = NDArray[np.intp]
Mix = tuple[int, ...]
"""Replicas of each offer, in their order."""

MOST_STEPS = 2000
"""Steps of a search, after which the best mix so far counts. Two targets of 100 replicas take about 100."""
MIXES = 256
"""Mixes so far, and numbers of replicas of the next offer, that are combined where all would make more than its square:
eight targets with a max of 10,000 would make millions."""
BEYOND = 4
"""Ratio to max, up to which sizes are weighed, for they show how many replicas would be needed."""
DIGITS = round(-math.log10(EQUAL))
"""Decimal digits to which two prices are compared: `EQUAL`."""


class Offer(NamedTuple):
    """Replicas of one target that can be had."""

    weight: float
    """Capacity of a replica, in replicas of the reference target; 0 where it serves nothing within the SLO."""
    price: float
    """Price of a replica, above 0."""
    least: int
    most: int
    """Most replicas, at least `least`."""

    @property
    def unit_price(self) -> float:
        """Price of a capacity of 1; infinite without capacity."""
        return self.price / self.weight if self.weight > 0.0 else math.inf


def capacity(offers: Sequence[Offer], mix: Mix) -> float:
    """Capacity of a mix, in replicas of the reference target."""
    return math.fsum(count * offer.weight for count, offer in zip(mix, offers, strict=True))


def price(offers: Sequence[Offer], mix: Mix) -> float:
    """Price of a mix."""
    return math.fsum(count * offer.price for count, offer in zip(mix, offers, strict=True))


def greatest(offers: Sequence[Offer]) -> Mix:
    """The mix with every replica that can be had and serves."""
    return tuple(offer.most if offer.weight > 0.0 else offer.least for offer in offers)


def front(offers: Sequence[Offer], enough: float) -> tuple[Array, Array]:
    """Capacities and prices of the mixes that are worth their price, both ascending: less capacity costs less.

    Up to the first mix of `enough` capacity; where none has it, up to the `greatest`. Offer by offer, each mix so far
    with each number of replicas of the next one.
    """
    least = tuple(offer.least for offer in offers)
    capacities, prices = np.array([capacity(offers, least)]), np.array([price(offers, least)])
    missing = enough - float(capacities[0])
    for offer in offers:
        room = offer.most - offer.least
        if offer.weight <= 0.0 or room == 0 or missing <= 0.0:
            continue
        more = np.arange(min(room, math.ceil(missing / offer.weight)) + 1)
        if len(more) * len(capacities) > MIXES**2:
            few = _few(len(capacities))
            more, capacities, prices = more[_few(len(more))], capacities[few], prices[few]
        if len(capacities) == 1:  # of one offer each number is worth its price
            capacities, prices = capacities + more * offer.weight, prices + more * offer.price
            continue
        capacities = np.add.outer(more * offer.weight, capacities).ravel()
        prices = np.add.outer(more * offer.price, prices).ravel()
        # Of equal prices the greater capacity is the first, and the other one is not worth it.
        order = np.lexsort((-capacities, (prices / prices.max()).round(DIGITS)))
        best = np.maximum.accumulate(capacities[order])
        before = np.concatenate(([-1.0], best[:-1]))
        kept = order[(best > before * (1.0 + EQUAL)) & (before < enough)]
        capacities, prices = capacities[kept], prices[kept]
    return capacities, prices


def _few(count: int) -> Counts:
    """Places from the first to the last of so many, in steps of a few percent where they are more than `MIXES`."""
    places = np.geomspace(1.0, count, MIXES) if count > MIXES else np.arange(1.0, count + 1.0)
    return np.unique(places.round()).astype(np.intp) - 1


def cheapest_mix(offers: Sequence[Offer], need: float) -> Mix:
    """The cheapest mix of at least this capacity; `greatest` where none has it. Among equals, the earlier offers.

    Branch and bound, the best value first: what is still needed costs at least the unit price of the next offer.
    """
    least = tuple(offer.least for offer in offers)
    rest = need * share_of(len(offers)) - capacity(offers, least)
    if rest <= 0.0:
        return least
    order = sorted((at for at, offer in enumerate(offers) if offer.weight > 0.0), key=lambda at: offers[at].unit_price)
    room = [offers[at].most - offers[at].least for at in order]
    beyond = [0.0] * (len(order) + 1)
    """Capacity of the offers from each one on."""
    for place in reversed(range(len(order))):
        beyond[place] = beyond[place + 1] + room[place] * offers[order[place]].weight
    if beyond[0] < rest:
        return greatest(offers)
    search = _Search([offers[at] for at in order], room, beyond)
    search.go(0, rest, 0.0, ())
    more = dict(zip(order, search.found, strict=True))
    return tuple(count + more.get(at, 0) for at, count in enumerate(least))


@dataclass(slots=True)
class _Search:
    offers: Sequence[Offer]
    """Offers, the best value first."""
    room: Sequence[int]
    beyond: Sequence[float]
    best: float = math.inf
    found: Mix = ()
    steps: int = 0

    def go(self, place: int, rest: float, paid: float, taken: Mix) -> None:
        """Try all counts of the offer at `place`, where `rest` is still needed and `paid` was spent."""
        self.steps += 1
        if rest <= 0.0 or place == len(self.offers):
            if paid < self.best * (1.0 - EQUAL):
                self.best, self.found = paid, taken + (0,) * (len(self.offers) - place)
            return
        offer = self.offers[place]
        following = self.offers[place + 1].unit_price if place + 1 < len(self.offers) else math.inf
        for count in range(min(self.room[place], math.ceil(rest / offer.weight)), -1, -1):
            left, spent = rest - count * offer.weight, paid + count * offer.price
            if left > self.beyond[place + 1] + EQUAL * rest or (self.steps > MOST_STEPS and self.found):
                return  # fewer of this one leave too much for the others
            if spent + (left * following if left > 0.0 else 0.0) >= self.best * (1.0 - EQUAL):
                if left > 0.0:
                    return  # with fewer of it the bound only grows
                continue
            self.go(place + 1, left, spent, (*taken, count))


@dataclass(frozen=True, slots=True)
class Frontier:
    """Capacities to weigh, each at its least price."""

    offers: tuple[Offer, ...]
    """Offers in the long run: more than max, to show how many replicas would be needed."""
    _found: dict[float, tuple[Array, Array]] = field(default_factory=dict)

    def upto(self, last: float) -> tuple[Array, Array]:
        """Capacities above 0 up to about `last`, ascending, and their prices over that of a capacity of 1."""
        if last not in self._found:
            self._found[last] = self._upto(last)
        return self._found[last]

    def _upto(self, last: float) -> tuple[Array, Array]:
        capacities, prices = front(self.offers, last)
        some = capacities > 0.0
        if not some.any():
            return np.ones(1), np.ones(1)  # there is nothing to choose
        return capacities[some], prices[some] / min(offer.unit_price for offer in self.offers)
