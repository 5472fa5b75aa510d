"""What days have shown of the plan: a slow integral of what was missed over what was allowed.

The price, its margin, the calibration and whole replicas each err towards too many replicas or too few, and none knows
by how much in sum: planned alike, a day of conversations missed 2.9% and one of code 5.2% where 5% were allowed.
What comes of the plan tells, if it is given the time: misses come in bursts, so an hour of them says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from servingpool.decision.budget import PLANNED

DAY = 86400.0
"""Seconds in charge after which a request counts 1/e for how many are usual."""
AIM = 0.95
"""Part of the allowed misses that is aimed at."""
TIME = 6 * 3600.0
"""Seconds in which missing nothing turns the plan by AIM on its logarithm. Days of code, 150 clients and conversations
attained 94.8, 96.0, 97.1% with 6.29, 4.18, 4.12 replicas without; 95.2, 95.8, 96.5% with 6.46, 4.15, 4.01 at eight
hours; 95.6, 95.6, 96.4% with 6.73, 4.04, 3.96 at four (AIM 0.9, a factor of up to 2, a margin of 0.75)."""
MOST_WEIGHT = 10.0
"""A tick counts for no more than so many usual ones."""
LEAST, MOST = 0.7, 1.0 / PLANNED
"""Of the factor. No more is planned with than is allowed, whatever was saved: what a decision calls a safe load must be
one. And an outage of a quarter of an hour may not call for twice the fleet for the rest of the day."""


@dataclass(frozen=True, slots=True)
class Trim:
    """How much more than usual is planned with, from what was missed while in charge."""

    requests: float = 0.0
    """Of about the last day."""
    seconds: float = 0.0
    """In which they came."""
    turned: float = 0.0
    """Natural logarithm of the factor."""

    def learn(
        self, *, requests: float, missed: float, allowed: float, elapsed: float, may_rise: bool, may_fall: bool
    ) -> Trim:
        """Add a tick. It counts by its requests, as the SLO does; `allowed` is a share.

        Where the fleet is at a bound (`may_rise` or `may_fall` False) what would push further into it is left out.
        """
        keep = math.exp(-elapsed / DAY)
        seen, seconds = self.requests * keep + requests, self.seconds * keep + elapsed
        saved = AIM * requests - missed / allowed
        if requests <= 0.0 or (saved < 0.0 and not may_fall) or (saved > 0.0 and not may_rise):
            return Trim(seen, seconds, self.turned)
        # Behind an idle day one request would be all that was seen.
        turned = self.turned + saved / seen * min(seconds, seen / requests * MOST_WEIGHT * elapsed) / TIME
        return Trim(seen, seconds, _bounded(turned))

    @property
    def factor(self) -> float:
        """Times the usual plan."""
        return math.exp(_bounded(self.turned))


def _bounded(turned: float) -> float:
    return min(math.log(MOST), max(math.log(LEAST), turned))
