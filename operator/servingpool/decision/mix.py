"""The cheapest mix of targets with a given capacity, and all capacities that are worth weighing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mix = tuple[int, ...]
"""Replicas of each offer, in their order."""

CAPACITIES = 64
"""Capacities that are weighed at a time."""
MOST_STEPS = 2000
"""Steps of one search; after them the best mix so far counts. Two targets of 100 replicas take about 100."""
BEYOND = 4
"""Times max: sizes up to it are weighed, for they show what would be needed."""
ENOUGH = 0.999
"""Share of a capacity that serves for it: speeds drift, and a replica is not replaced for a thousandth."""
EQUAL = 1e-9
"""Relative difference of two capacities or prices that are not told apart."""


class Offer(NamedTuple):
    """Replicas of one target that may be had."""

    weight: float
    """Capacity of one, in replicas of the reference target; 0 where one serves nothing within the SLO."""
    price: float
    """Of one, above 0."""
    least: int
    most: int
    """At least `least`."""

    @property
    def unit_price(self) -> float:
        """Of a capacity of 1; infinite without capacity."""
        return self.price / self.weight if self.weight > 0.0 else math.inf


def capacity(offers: Sequence[Offer], mix: Mix) -> float:
    """Of a mix, in replicas of the reference target."""
    return math.fsum(count * offer.weight for count, offer in zip(mix, offers, strict=True))


def price(offers: Sequence[Offer], mix: Mix) -> float:
    """Of a mix."""
    return math.fsum(count * offer.price for count, offer in zip(mix, offers, strict=True))


def greatest(offers: Sequence[Offer]) -> Mix:
    """All that may be had of use."""
    return tuple(offer.most if offer.weight > 0.0 else offer.least for offer in offers)


def cheapest_mix(offers: Sequence[Offer], need: float) -> Mix:
    """The cheapest mix of at least this capacity; `greatest` where none has it. Among equals, the earlier offers.

    Branch and bound, the best value first: what is still needed costs at least the unit price of the next offer.
    """
    least = tuple(offer.least for offer in offers)
    rest = need * ENOUGH - capacity(offers, least)
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
    """Of the best value first."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Capacities that can be had, each at its least price."""

    offers: tuple[Offer, ...]
    """With what may be had in the long run: more than max, so that it shows what would be needed."""
    standing: float
    """Capacity that is ordered: it is weighed too."""
    _found: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    @property
    def unit_price(self) -> float:
        """Of a capacity of 1 at the best value."""
        return min(offer.unit_price for offer in self.offers)

    def upto(self, last: int) -> tuple[Array, Array]:
        """Capacities up to about `last`, ascending, and their prices, ascending, over that of a capacity of 1."""
        if last not in self._found:
            self._found[last] = self._upto(float(last))
        return self._found[last]

    def _upto(self, last: float) -> tuple[Array, Array]:
        smallest = min((offer.weight for offer in self.offers if offer.weight > 0.0 < offer.most), default=0.0)
        if smallest <= 0.0:
            return np.ones(1), np.ones(1)  # there is nothing to choose
        last = min(last, capacity(self.offers, greatest(self.offers)))
        grid = np.arange(1.0, math.ceil(last / smallest) + 1.0) * smallest
        if len(grid) > CAPACITIES:
            grid = np.geomspace(smallest, max(last, smallest), CAPACITIES)
        wanted = sorted({*np.minimum(grid, last).tolist(), *([self.standing] if 0.0 < self.standing < last else [])})
        found: list[tuple[float, float]] = []
        for need in wanted:
            if found and need <= found[-1][0] * (1.0 + EQUAL):
                continue
            mix = cheapest_mix(self.offers, need)
            of = price(self.offers, mix) / self.unit_price
            found = [*(one for one in found if one[1] < of * (1.0 - EQUAL)), (capacity(self.offers, mix), of)]
        capacities, prices = np.array(found).T
        return capacities, prices
