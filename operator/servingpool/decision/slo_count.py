"""Counting late requests from histogram buckets that do not end where the SLO does."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from servingpool.decision.observation import Histogram


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


def split(histogram: Histogram, bound: float) -> SloCount:
    """Split a histogram's counts at `bound` seconds."""
    above = bisect_left(histogram.bounds, bound * (1 - 1e-9))
    at_most_upper = histogram.counts[above] if above < len(histogram.bounds) else histogram.count
    on_the_bound = above < len(histogram.bounds) and math.isclose(histogram.bounds[above], bound, rel_tol=1e-9)
    at_most_lower = histogram.counts[above - 1] if above > 0 else 0.0
    within = at_most_upper if on_the_bound else at_most_lower
    return SloCount(within, at_most_upper - within, histogram.count - at_most_upper)


def late_share_of_straddling(pooled: SloCount, histogram_bounds: tuple[float, float], bound: float) -> float:
    """What share of the straddling bucket's requests were late.

    Latency tails fall about exponentially, so the logarithm of the survival is interpolated, not the
    count: with 100 requests over 1 s and 10 over 2.5 s, a bound of 2 s is passed by 22, where a straight
    line says 40 and would buy GPUs against misses that did not happen. `pooled` should cover minutes.
    Half a request is added at each end, so that an empty tail does not read as certainty.
    """
    lower, upper = histogram_bounds
    if not math.isfinite(upper):
        return 1.0
    survive_lower = pooled.straddling + pooled.late + 1.0
    survive_upper = pooled.late + 0.5
    position = (bound - lower) / (upper - lower)
    survive_bound = survive_lower * math.pow(survive_upper / survive_lower, position)
    return min(1.0, max(0.0, (survive_bound - survive_upper) / (survive_lower - survive_upper)))


def bracket(bounds: tuple[float, ...], bound: float) -> tuple[float, float]:
    """The bucket that holds `bound`: its lower end (0 at the first) and its upper end (inf past the last), seconds."""
    above = bisect_left(bounds, bound * (1 - 1e-9))
    return (bounds[above - 1] if above > 0 else 0.0, bounds[above] if above < len(bounds) else math.inf)
