"""Counting late requests from histogram buckets that do not end where the SLO does."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SloCount:
    """Observations split at an SLO bound, as far as the buckets can tell.

    `within` ended in a bucket wholly at or under the bound, `late` in one wholly above it,
    `straddling` in the one bucket that the bound cuts in two.
    """

    within: float = 0.0
    straddling: float = 0.0
    late: float = 0.0

    @property
    def total(self) -> float:
        """All observations."""
        return self.within + self.straddling + self.late


def late_share_of_straddling(pooled: SloCount, bucket: tuple[float, float], bound: float) -> float:
    """What share of the straddling bucket's requests were late. `bucket` holds its two ends in seconds.

    Latency tails fall about exponentially, so the logarithm of the survival is interpolated, not the
    count: with 100 requests over 1 s and 10 over 2.5 s, a bound of 2 s is passed by 22, where a straight
    line says 40 and would buy GPUs against misses that did not happen. `pooled` should cover minutes.
    Half a request is added to the bucket and half beyond it, so that an empty tail does not read as certainty.
    """
    lower, upper = bucket
    if not math.isfinite(upper):
        return 1.0
    survive_lower = pooled.straddling + pooled.late + 1.0
    survive_upper = pooled.late + 0.5
    position = (bound - lower) / (upper - lower)
    survive_bound = survive_lower * math.pow(survive_upper / survive_lower, position)
    return min(1.0, max(0.0, (survive_bound - survive_upper) / (survive_lower - survive_upper)))
