"""The fleet that is worth its money: replicas on one side of the scales, misses at their price on the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.forecast import Outlook
from servingpool.decision.miss_curve import Curve

Array = NDArray[np.float64]

SIZES = 64
"""Fleet sizes that are weighed at a time: each one up to here, beyond it steps of a few percent."""
STICK = 2.5
"""Price, over that at which replicas are ordered, at which they are kept. With 1 a day of 150 clients saw 4.8 changes
an hour, 17% of them taken back within two cold starts; with 2.5 it is 2.6 and 6%, at the same GPU-hours."""
LEVELS = 96
"""Demands at which the curve is read; a sample between two of them counts for both."""
FINEST_LEVEL = 0.01
"""Least demand told apart, as a share of the highest."""
WORST, RELIEF = 5.0, 0.1
"""No price lets the demand that is expected miss more than WORST times the allowance: misses are spent on what may
come, not on what is certain. Where the allowance is large, because the SLO cannot be held, RELIEF of the rest."""


def sizes(curve: Curve, allowance: float, highest: float, most: int) -> Array:
    """Fleets worth a look, ascending: from 1 to where even the highest demand is served with room to spare."""
    enough = math.ceil(highest / curve.load_for(0.1 * allowance)) + 1
    last = max(2, min(most, enough))
    if last <= SIZES:
        return np.arange(1.0, last + 1.0)
    return np.unique(np.round(np.geomspace(1.0, last, SIZES)))


class Scales:
    """Weighs fleets (columns) for states of demand (rows)."""

    def __init__(self, outlook: Outlook, curve: Curve, allowance: float, fleets: Array) -> None:
        self.missed = _missed_work(outlook, curve, fleets)
        bearable = max(min(0.5, WORST * allowance), allowance + RELIEF * (1.0 - allowance))
        least = np.minimum(outlook.expected / curve.load_for(bearable), fleets[-1])
        self.rent = np.where(fleets < least[:, None], np.inf, fleets)

    def choose(self, price: float) -> NDArray[np.intp]:
        """For each state the column of the fleet with the least sum of replicas and misses at their price."""
        columns: NDArray[np.intp] = (self.rent + price * self.missed).argmin(axis=1)
        return columns


def need(outlook: Outlook, curve: Curve, allowance: float, price: float, most: int) -> float:
    """Raw need in replicas, of the one state in `outlook`; `most` where even that is too few."""
    return needs(outlook, curve, allowance, (price,), most)[0]


def needs(outlook: Outlook, curve: Curve, allowance: float, prices: Sequence[float], most: int) -> list[float]:
    """`need` at each of several prices: what is missed at each size is the same for all of them."""
    highest = float(outlook.samples.max())
    if highest <= 0.0:
        return [0.0] * len(prices)
    fleets = sizes(curve, allowance, highest, most)
    scales = Scales(outlook, curve, allowance, fleets)
    columns = [int(scales.choose(price)[0]) for price in prices]
    if fleets[-1] <= SIZES:
        return [float(fleets[column]) for column in columns]
    return [
        _between(outlook, curve, allowance, price, fleets[max(0, column - 1) : column + 2])
        for price, column in zip(prices, columns, strict=True)
    ]


def _between(outlook: Outlook, curve: Curve, allowance: float, price: float, neighbours: Array) -> float:
    """The need between the neighbours of a coarse answer, in finer steps."""
    fleets = np.unique(np.round(np.linspace(float(neighbours[0]), float(neighbours[-1]), SIZES)))
    return float(fleets[int(Scales(outlook, curve, allowance, fleets).choose(price)[0])])


def _missed_work(outlook: Outlook, curve: Curve, fleets: Array) -> Array:
    """Expected late work, in replicas kept busy, of each state (row) in each fleet (column).

    Misses are counted per request, so a sample of demand weighs by its own size: a burst that is twice the
    usual load brings twice the requests to be late.
    """
    samples = outlook.samples
    highest = max(float(samples.max()), 1e-9)
    levels = highest * np.geomspace(FINEST_LEVEL, 1.0, LEVELS)
    place = (LEVELS - 1) * (1.0 - np.log(np.maximum(samples / highest, FINEST_LEVEL)) / math.log(FINEST_LEVEL))
    below = np.minimum(place.astype(np.intp), LEVELS - 2)
    above = place - below
    at = below + np.arange(len(samples))[:, None] * LEVELS
    size = len(samples) * LEVELS
    mass = np.bincount(at.ravel(), (outlook.weights * (1.0 - above)).ravel(), size)
    mass += np.bincount(at.ravel() + 1, (outlook.weights * above).ravel(), size)
    late = levels[:, None] * curve.cost(levels[:, None] / fleets)
    missed: Array = mass.reshape(-1, LEVELS) @ late
    return missed
