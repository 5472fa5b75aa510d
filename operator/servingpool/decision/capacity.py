"""The smallest fleet whose expected misses stay within the budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.forecast import Outlook
from servingpool.decision.miss_curve import Curve

FINEST = 0.05
"""Step, in replicas, of the raw need that is reported."""


def need(outlook: Outlook, curve: Curve, budget: float, most: int) -> float:
    """Raw need in replicas: fractional, 0 to `most` (the answer where even that is too few).

    Misses are counted per request, so a sample of demand weighs by its own size: a burst that is twice the
    usual load brings twice the requests to be late.
    """
    mass = outlook.weights * outlook.samples
    if mass.sum() <= 0.0:
        return 0.0
    mass = mass / mass.sum()
    low, high = 0.0, float(most)
    if _misses(outlook.samples, mass, curve, high) > budget:
        return high
    while high - low > FINEST:  # misses fall as the fleet grows, so halving finds the crossing
        middle = (low + high) / 2.0
        if _misses(outlook.samples, mass, curve, middle) > budget:
            low = middle
        else:
            high = middle
    return high


def _misses(samples: NDArray[np.float64], mass: NDArray[np.float64], curve: Curve, replicas: float) -> float:
    return float(mass @ curve.at(samples / max(replicas, 1e-6)))
