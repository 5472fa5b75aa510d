"""How many misses may be expected now, given what was missed in the last hour."""

from __future__ import annotations

import math
from dataclasses import dataclass

HOUR = 3600.0
LEAST, MOST = 0.5, 1.0
"""Bounds of the steering. Less than half, and one burst is repaid with GPUs for hours; more than all is no thrift: the
price of a miss already spends what is allowed, and what was saved in the quiet is missing at the next step. What days
have saved is another matter, see `trim`."""
PLANNED = 0.7
"""Part that is planned with of the allowed misses above the floor. The price is found on the very past that it is tried
on, and what comes is never quite that."""
GAIN = 2.0
"""Steering lost for each hour of allowed misses that was overspent."""
MOST_WEIGHT = 4.0
"""A tick counts for no more than so many usual ones."""
ABOVE_FLOOR = 0.1
"""Where the floor alone eats the budget, this part of the budget is planned with above it: no fleet size can hold the
SLO then, and running to max would buy nothing. At 0.3, and for any floor, prompts of up to 120,000 tokens were planned
with 5.5% misses where 5% are allowed."""
RELIEF, HOPELESS = 0.2, 0.2
"""Where the floor is beyond the allowed misses, as much more is planned with, up to this part of those allowed; and of
the whole excess this part: with 80% lost at any size, a hair less than the rest is not worth a fleet at max. Without
the first a pool that lost 6% where 5% may crept from 5 replicas to 7 in six hours."""
MOST_ABOVE = 0.9
"""Of what does not miss by the floor. Where all requests fail, more misses than requests were planned with, and any
load was called safe."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What was overspent of the allowed misses in about the last hour, while in charge."""

    overspent: float = 0.0
    """In hours of allowed misses; negative where less was missed than allowed."""

    def learn(
        self,
        *,
        missed: float,
        allowed: float,
        weight: float,
        elapsed: float,
        may_rise: bool = True,
        may_fall: bool = True,
    ) -> Budget:
        """Add one tick's share of misses. Ticks count by their requests, as the SLO does: `weight` is over the usual.

        At a bound the fleet does not follow, so what would only push further into it (`may_rise` or `may_fall` False)
        does not add up.
        """
        kept = self.overspent * math.exp(-elapsed / HOUR)
        surplus = (missed / allowed - 1.0) * min(MOST_WEIGHT, weight)
        if (surplus > 0.0 and not may_fall) or (surplus < 0.0 and not may_rise):
            return Budget(kept)
        return Budget(min(1.0, max(-1.0, kept + surplus * elapsed / HOUR)))

    @property
    def steering(self) -> float:
        """Factor of what is planned with."""
        return min(MOST, max(LEAST, 1.0 - GAIN * self.overspent))

    def allowance(self, *, allowed: float, floor: float, ratio: float, trim: float) -> float:
        """The share of misses a fleet may be sized for: those of the floor, and a part of what is allowed above it.

        `ratio` of those that come to those that are foretold; `trim` times as much is planned with as usual.
        """
        planned = max(PLANNED * trim * self.steering * (allowed - floor) / ratio, ABOVE_FLOOR * allowed)
        excess = max(0.0, floor - allowed)
        above = planned + min(RELIEF * allowed, excess) + HOPELESS * excess
        return floor + min(above, MOST_ABOVE * (1.0 - floor))
