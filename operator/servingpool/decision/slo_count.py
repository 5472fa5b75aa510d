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


SPREADS = (0.05, 0.1, 0.2, 0.35, 0.6)
"""Relative spreads of a request's mean time per output token within a minute, as candidates."""
USUAL_SPREAD, PRIOR_WIDTH = 0.2, 0.7
"""Which one is likely before the counts are looked at, and how likely another one, in its logarithm."""
MOST_EVIDENCE = 50.0
"""Requests for which a count of buckets may speak: the log-normal shape is an assumption, not a law."""


def late_share_by_mean(count: SloCount, mean: float, bucket: tuple[float, float], bound: float) -> float:
    """What share of the straddling bucket's requests were late, where their mean is known as well.

    Times per output token lie close together, all of them in one of vLLM's wide buckets: with a bound of 20 ms in the
    bucket of 10 to 25 ms, counts alone cannot tell a fleet at 12 ms from one at 24 ms. The histogram's sum can: it
    gives the mean, the counts the spread around it, and a log-normal the share beyond the bound.
    """
    lower, upper = bucket
    if not math.isfinite(upper) or mean <= 0.0:
        return 1.0
    temper = min(1.0, MOST_EVIDENCE / max(count.total, 1.0))
    shares, scores = [], []
    for spread in SPREADS:
        centre = math.log(mean) - spread * spread / 2.0
        below, up_to_bound, up_to = (
            _normal((math.log(end) - centre) / spread) if end > 0.0 else 0.0 for end in (lower, bound, upper)
        )
        inside, beyond = max(up_to - below, 1e-9), max(1.0 - up_to, 1e-9)
        score = count.within * math.log(max(below, 1e-9))
        score += count.straddling * math.log(inside) + count.late * math.log(beyond)
        scores.append(score * temper - 0.5 * (math.log(spread / USUAL_SPREAD) / PRIOR_WIDTH) ** 2)
        shares.append(min(1.0, max(0.0, (up_to - up_to_bound) / inside)))
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    return math.fsum(weight * share for weight, share in zip(weights, shares, strict=True)) / math.fsum(weights)


def _normal(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
