"""The error budget: the misses that may be planned with now, given what was missed in the last hour and day."""

from __future__ import annotations

import math
from dataclasses import dataclass

from servingpool.decision.ledger import Misses

HOUR, DAY = 3600.0, 86400.0
"""Seconds after which what was spent counts 1/e, for the fast and the slow burn rate."""
FAST_GAIN, FAST_LEAST = 2.0, 0.5
"""Part of the plan lost for each hour of allowed misses that was overspent lately, and what is left of it at least.
With less than half one burst is repaid with GPUs for hours. What was saved in a quiet hour is missing at the next
step, so it adds nothing."""
SLOW_TIME, SLOW_LEAST = 6.0, 0.7
"""Hours of allowed misses, saved or overspent over days, that turn the plan by e; and the least that is left of it: an
outage of a quarter of an hour must not call for twice the fleet for the rest of the day."""
PLANNED, MOST_PLANNED = 0.7, 0.9
"""Part that is planned with of the allowed misses above the floor, and how far days may raise it. The price is found on
the very past that it is tried on, and what comes is never quite that: planned with all of them, a day of code with the
day before known attains 94.6% where 95% are asked for."""
AIM = 0.95
"""Part of the allowed misses that days aim at."""
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
class ErrorBudget:
    """What was overspent of the allowed misses while in charge, in hours of them; negative where less was missed."""

    fast: float = 0.0
    """In about the last hour, -1 to 1."""
    slow: float = 0.0
    """In about the last day."""
    requests: float = 0.0
    """Of about the last day, and the seconds in which they came."""
    seconds: float = 0.0

    def learn(
        self,
        *,
        carried: Misses,
        in_all: Misses,
        allowed: float,
        usual: float,
        elapsed: float,
        may_rise: bool,
        may_fall: bool,
    ) -> ErrorBudget:
        """Add one tick. It counts by its requests, as the SLO does: over the `usual` ones, and over those of the day.

        The fast part answers for `carried`, those who met a load that a fleet can carry: an overload that nobody
        foresaw is not paid back with an hour of spare replicas. The slow part answers for `in_all`.

        At a bound the fleet does not follow, so what would only push further into it (`may_rise` or `may_fall` False)
        does not add up.
        """
        lasting = math.exp(-elapsed / DAY)
        requests, seconds = self.requests * lasting + in_all.requests, self.seconds * lasting + elapsed

        def overspent(judged: Misses, usual: float, aim: float) -> float:
            weight = min(MOST_WEIGHT, judged.requests / usual) if usual > 0.0 else 0.0
            hours = (judged.share / allowed - aim) * weight * elapsed / HOUR
            return 0.0 if (hours > 0.0 and not may_fall) or (hours < 0.0 and not may_rise) else hours

        fast = self.fast * math.exp(-elapsed / HOUR) + overspent(carried, usual, 1.0)
        slow = self.slow * lasting + overspent(in_all, requests * elapsed / seconds, AIM)
        least, most = (-SLOW_TIME * math.log(factor) for factor in (MOST_PLANNED / PLANNED, SLOW_LEAST))
        return ErrorBudget(min(1.0, max(-1.0, fast)), min(most, max(least, slow)), requests, seconds)

    @property
    def factor(self) -> float:
        """Times the usual plan."""
        slow = min(MOST_PLANNED / PLANNED, max(SLOW_LEAST, math.exp(-self.slow / SLOW_TIME)))
        return slow * min(1.0, max(FAST_LEAST, 1.0 - FAST_GAIN * self.fast))

    def allowance(self, *, allowed: float, floor: float, ratio: float) -> float:
        """The share of misses a fleet may be sized for: those of the floor, and a part of what is allowed above it.

        `ratio` of those that come to those that are foretold.
        """
        planned = max(PLANNED * self.factor * (allowed - floor) / ratio, ABOVE_FLOOR * allowed)
        excess = max(0.0, floor - allowed)
        above = planned + min(RELIEF * allowed, excess) + HOPELESS * excess
        return floor + min(above, MOST_ABOVE * (1.0 - floor))
