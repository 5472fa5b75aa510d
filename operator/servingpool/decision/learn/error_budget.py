"""The error budget: the share of misses to plan with, given the misses of the last hour and day."""

from __future__ import annotations

import math
from dataclasses import dataclass

from servingpool.decision.observe.latency import Misses
from servingpool.decision.params import DAY, DEFAULT, HOUR, REMEMBERED, Params

FAST_LEAST, SLOW_LEAST = 0.5, 0.7
"""Least factors of the last hour and of the last day. With less than half, one burst is repaid with GPUs for hours; an
outage of a quarter of an hour must not call for twice the fleet for the rest of the day."""
FAST_GAIN = 2.0
"""Share of the plan that is lost for each hour of allowed misses overspent in the last hour. Without it a day of code
attains 94.5 instead of 95.2% (docs/records/experiments.md)."""
SLOW_AIM = 0.95
"""Share of the allowed misses that is aimed at."""
MOST_WEIGHT = 4.0
"""Weight of a tick at most, in usual ticks."""
ABOVE_FLOOR, RELIEF, MOST_ABOVE = 0.1, 0.2, 0.9
"""Shares by which the plan exceeds the floor. At least ABOVE_FLOOR of the allowed misses. Where no fleet holds the SLO,
RELIEF of the allowed misses and of the floor's excess are added: running to max would buy nothing. At most MOST_ABOVE
of the requests outside the floor: else any load is called safe where all requests fail."""
SLOW_MOST = MOST_ABOVE / DEFAULT.planned
"""Greatest factor of the last day: what quiet days saved makes no plan of all misses."""
GUESSED_RATIO, GUESS_WEIGHT = 1.5, 30.0
"""Observed over predicted misses before anything is known, and how much that weighs: ten minutes at five percent."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Misses observed over misses that the curve predicted: two sums of shares times seconds.

    A fleet is sized for the load of half a minute, a miss is attributed to the highest load of its request's lifetime.
    Where traffic is rough the curve is too hopeful: 3.0% were predicted and 4.1% observed with gamma arrivals of CV 5.
    """

    predicted: float = 0.0
    observed: float = 0.0

    def update(self, *, predicted: float, observed: float, weight: float, elapsed: float) -> Calibration:
        """Add a tick: shares of misses; `weight` is its requests over the usual number."""
        keep = math.exp(-elapsed / REMEMBERED)
        seconds = elapsed * min(2.0, weight)
        return Calibration(self.predicted * keep + predicted * seconds, self.observed * keep + observed * seconds)

    def ratio(self, params: Params) -> float:
        """Misses observed for each that the curve predicts, 1 to 4.

        Never below 1: at light load little is predicted and nothing observed, and that is no licence for heavy load.
        """
        ratio = (self.observed + GUESSED_RATIO * GUESS_WEIGHT) / (self.predicted + GUESS_WEIGHT)
        return min(params.most_calibration, max(1.0, ratio))


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """Allowed misses overspent while in charge, in hours of them; negative where less was missed."""

    fast: float = 0.0
    """Allowed misses overspent over about the last hour, in hours of them, -1 to 1."""
    slow: float = 0.0
    """Allowed misses overspent over about the last day, in hours of them."""
    requests: float = 0.0
    """Requests of about the last day, and the seconds in which they came."""
    seconds: float = 0.0

    def update(
        self,
        *,
        carried: Misses,
        in_all: Misses,
        allowed: float,
        usual: float,
        elapsed: float,
        above_min: bool,
        below_max: bool,
        params: Params,
    ) -> ErrorBudget:
        """The budget with one tick, weighed by its requests: over the `usual` ones, and over those of the day.

        The fast part answers for `carried`, the requests that met a load which a fleet can carry: an overload that
        nobody foresaw is not paid back with an hour of spare replicas. The slow part answers for `in_all`.

        At min, savings do not add up; at max, misses do not: the fleet cannot follow.
        """
        lasting = math.exp(-elapsed / DAY)
        requests, seconds = self.requests * lasting + in_all.requests, self.seconds * lasting + elapsed

        def overspent(judged: Misses, usual: float, aim: float) -> float:
            weight = min(MOST_WEIGHT, judged.requests / usual) if usual > 0.0 else 0.0
            hours = (judged.share / allowed - aim) * weight * elapsed / HOUR
            return 0.0 if (hours > 0.0 and not below_max) or (hours < 0.0 and not above_min) else hours

        fast = self.fast * math.exp(-elapsed / HOUR) + overspent(carried, usual, 1.0)
        slow = self.slow * lasting + overspent(in_all, requests * elapsed / seconds, SLOW_AIM)
        least, most = (-params.slow_hours * math.log(factor) for factor in (SLOW_MOST, SLOW_LEAST))
        return ErrorBudget(min(1.0, max(-1.0, fast)), min(most, max(least, slow)), requests, seconds)

    @property
    def fast_factor(self) -> float:
        """Factor of the last hour on the plan, 0.5 to 1. A quiet hour adds nothing: the next step needs it."""
        return min(1.0, max(FAST_LEAST, 1.0 - FAST_GAIN * self.fast))

    def slow_factor(self, params: Params) -> float:
        """Factor of the last day on the plan, 0.7 to 1.29."""
        return min(SLOW_MOST, max(SLOW_LEAST, math.exp(-self.slow / params.slow_hours)))

    def allowance(self, *, allowed: float, floor: float, ratio: float, params: Params) -> float:
        """Share of misses that a fleet may be sized for: the floor, and a part of the allowed misses above it.

        `ratio` of misses observed to misses predicted.
        """
        plan = params.planned * self.fast_factor * self.slow_factor(params)
        excess = max(0.0, floor - allowed)
        above = max(plan * (allowed - floor) / ratio, ABOVE_FLOOR * allowed) + RELIEF * excess
        return floor + min(above + min(RELIEF * allowed, excess), MOST_ABOVE * (1.0 - floor))
