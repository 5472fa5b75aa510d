"""Mixes of the targets' replicas: those that are worth their price, and the cheapest mix of a capacity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.decision import share_of
from servingpool.decision.observation import EPSILON

Array = NDArray[np.float64]
Counts = NDArray[np.intp]
Mix = tuple[int, ...]
"""Replicas of each offer, in their order."""

MIXES = 256
"""Mixes so far, and numbers of replicas of the next offer, that are combined where all would make more than its square:
eight targets with a max of 10,000 would make millions."""
BEYOND = 4
"""Ratio to max, up to which sizes are weighed, for they show how many replicas would be needed."""
DIGITS = round(-math.log10(EPSILON))
"""Decimal digits to which two prices are compared: `EPSILON`."""


class Offer(NamedTuple):
    """Replicas of one target that can be had."""

    weight: float
    """Capacity of a replica, in replicas of the reference target; 0 where it serves nothing within the SLO."""
    price: float
    """Price of a replica, above 0."""
    least: int
    most: int
    """Most replicas, at least `least`."""


def capacity(offers: Sequence[Offer], mix: Mix) -> float:
    """Capacity of a mix, in replicas of the reference target."""
    return math.fsum([count * offer.weight for count, offer in zip(mix, offers, strict=True)])


def price(offers: Sequence[Offer], mix: Mix) -> float:
    """Price of a mix."""
    return math.fsum([count * offer.price for count, offer in zip(mix, offers, strict=True)])


def greatest(offers: Sequence[Offer]) -> Mix:
    """The mix with every replica that can be had and serves."""
    return tuple([offer.most if offer.weight > 0.0 else offer.least for offer in offers])


class Front(NamedTuple):
    """Mixes that are worth their price: less capacity costs less."""

    capacities: Array
    """Ascending, as the prices."""
    prices: Array
    mixes: Counts
    """A row for each mix, with the replicas of each offer."""

    def at(self, places: Counts) -> Front:
        """The mixes at these places."""
        return Front(self.capacities[places], self.prices[places], self.mixes[places])


def front(offers: Sequence[Offer], enough: float) -> Front:
    """The mixes up to the first one of `enough` capacity; where none has it, up to the `greatest`.

    Offer by offer, each mix so far with each number of replicas of the next one.
    """
    least = tuple([offer.least for offer in offers])
    found = Front(np.array([capacity(offers, least)]), np.array([price(offers, least)]), np.array([least]))
    missing = enough - float(found.capacities[0])
    for at, offer in enumerate(offers):
        room = offer.most - offer.least
        if offer.weight <= 0.0 or room == 0 or missing <= 0.0:
            continue
        more = np.arange(min(room, math.ceil(missing / offer.weight)) + 1)
        if len(more) * len(found.prices) > MIXES**2:
            more, found = more[_few(len(more))], found.at(_few(len(found.prices)))
        before = len(found.prices)
        mixes = (found.mixes + np.multiply.outer(more, np.arange(len(offers)) == at)[:, None]).reshape(-1, len(offers))
        capacities = np.add.outer(more * offer.weight, found.capacities).ravel()
        prices = np.add.outer(more * offer.price, found.prices).ravel()
        found = Front(capacities, prices, mixes)
        if before > 1:  # of one offer each number is worth its price
            # Of equal prices the greater capacity is the first, and the other one is not worth it.
            order = np.lexsort((-capacities, (prices / prices.max()).round(DIGITS)))
            best = np.maximum.accumulate(capacities[order])
            under = np.concatenate(([-1.0], best[:-1]))
            found = found.at(order[(best > under * (1.0 + EPSILON)) & (under < enough)])
    return found


def _few(count: int) -> Counts:
    """Places from the first to the last of so many, in steps of a few percent where they are more than `MIXES`."""
    places = np.geomspace(1.0, count, MIXES) if count > MIXES else np.arange(1.0, count + 1.0)
    return np.unique(places.round()).astype(np.intp) - 1


def cheapest_mix(offers: Sequence[Offer], need: float) -> Mix:
    """The cheapest mix of at least this capacity; `greatest` where none has it. Among equals, the earlier offers."""
    return tuple(front(offers, need * share_of(len(offers))).mixes[-1].tolist())


@dataclass(frozen=True, slots=True)
class Frontier:
    """Capacities to weigh, each at its least price."""

    offers: tuple[Offer, ...]
    """Offers in the long run: more than max, to show how many replicas would be needed."""

    def upto(self, last: float) -> tuple[Array, Array]:
        """Capacities above 0 up to about `last`, ascending, and their prices over that of a capacity of 1."""
        capacities, prices, _ = front(self.offers, last)
        some = capacities > 0.0
        if not some.any():
            return np.ones(1), np.ones(1)  # there is nothing to choose
        least = min([offer.price / offer.weight for offer in self.offers if offer.weight > 0.0])
        return capacities[some], prices[some] / least
