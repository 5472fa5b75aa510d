"""How many misses each fleet size leaves: what a pool that shares GPUs tells of its need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.miss_curve import Curve

Array = NDArray[np.float64]


class Course(NamedTuple):
    """How many misses each fleet size leaves, of what comes at the horizon and of what comes now."""

    fleets: Array
    """Ascending, from 1."""
    misses: Array
    """Expected at the horizon, in the work of replicas kept busy."""
    expected: float
    """Work at the horizon: without replicas, all of it misses."""
    level: float
    """Work that comes now."""
    curve: Curve

    def beyond(self, least: int) -> tuple[float, ...]:
        """Misses with 0, 1, ... `least` replicas and more: the more of those at the horizon and those of now.

        What goes now is missing now, and what is ordered serves at the horizon. To where even the highest demand is
        served: a pool far from that would seem to have no use for its next replica.
        """
        replicas = np.arange(max(float(least), self.fleets[-1]) + 1.0)
        ahead = np.interp(replicas, np.append(0.0, self.fleets), np.append(self.expected, self.misses))
        load = self.level / np.maximum(replicas, 0.5)
        now = np.minimum(self.level * self.curve.cost(load), self.level)
        now[0] = self.level
        return tuple(np.minimum.accumulate(np.maximum(np.minimum(ahead, self.expected), now)).tolist())
