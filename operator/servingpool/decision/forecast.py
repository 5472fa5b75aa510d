"""Demand one cold start ahead, and how wrong such forecasts have been.

What is ordered now serves a cold start later, so that is where demand must be known. Level plus a damped
trend, with the damping regressed (ridge, towards persistence) on what came true; the errors are kept and
become the distribution that capacity is sized against.

Errors are scaled by sqrt(forecast * hour's mean): between additive and multiplicative. Purely multiplicative
ones explode on on-off traffic, where the forecast is near zero; purely additive ones forget that a busy
hour varies more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KEPT_ERRORS = 240
PENDING = 80
RIDGE = 40.0
"""Ticks of evidence that the prior belief "no trend" weighs."""
MEAN_MEMORY = 3600.0
HEADROOM_CAP = 1.15
"""No sample exceeds this multiple of the larger of forecast and recent maximum: an error seen at a jump
would else be repeated on top of the jump."""
PRIOR_ERRORS = tuple(0.18 * z for z in (-1.5, -0.9, -0.45, -0.15, 0.15, 0.45, 0.9, 1.5))
"""Stand-ins before errors were seen: an 18% standard deviation, about what Azure's conversation traffic shows."""
PRIOR_WEIGHT = 24.0
"""Ticks of evidence the stand-ins weigh in total."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Demand at the horizon, in replicas kept busy."""

    expected: float
    samples: Array
    weights: Array


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is learned about how demand moves. All loads in replicas kept busy."""

    pending: tuple[tuple[float, float, float], ...] = ()
    """(due time, level then, trend * horizon then): forecasts that have not come true yet."""
    errors: tuple[float, ...] = ()
    """Scaled errors, oldest first."""
    trend_product: float = 0.0
    trend_square: float = 0.0
    settled: float = 0.0
    """Forecasts that the two sums rest on, after forgetting."""
    mean: float = 0.0
    """Mean demand of about the last hour."""
    seen: float = 0.0
    """Seconds of demand that the mean rests on."""

    @property
    def damping(self) -> float:
        """Share of the trend that has been worth following, 0 to 1."""
        if self.trend_square <= 0.0 or self.settled <= 0.0:
            return 0.0
        typical = self.trend_square / self.settled
        return min(1.0, max(0.0, self.trend_product / (self.trend_square + RIDGE * typical)))

    def learn(self, *, now: float, level: float, trend: float, horizon: float, elapsed: float) -> Forecast:
        """Settle the forecasts that are due against `level`, and file a new one. `trend` is per second."""
        product, square, settled = self.trend_product, self.trend_square, self.settled
        errors = list(self.errors)
        keep = math.exp(-elapsed / MEAN_MEMORY)
        window = min(self.seen, MEAN_MEMORY)
        mean = level if self.seen == 0.0 else self.mean + (level - self.mean) * elapsed / (window + elapsed)
        pending = []
        for due, then, slope in self.pending:
            if due > now:
                pending.append((due, then, slope))
                continue
            product, square = product * keep + slope * (level - then), square * keep + slope * slope
            settled = settled * keep + 1.0
            forecast = max(0.0, then + self.damping * slope)
            errors.append((level - forecast) / _spread(forecast, mean))
        # As many as fit, evenly: were the oldest dropped, those about to come true would go, and a horizon longer than
        # all that is kept would never teach anything.
        if not pending or now + horizon >= pending[-1][0] + horizon / PENDING:
            pending.append((now + horizon, level, trend * horizon))
        return Forecast(
            tuple(pending[-2 * PENDING :]),
            tuple(errors[-KEPT_ERRORS:]),
            product,
            square,
            settled,
            mean,
            self.seen + elapsed,
        )

    def outlook(self, *, level: float, trend: float, horizon: float, recent_maximum: float) -> Outlook:
        """Demand `horizon` seconds ahead, as weighted samples.

        Never centred below the level: what is removed now is missing now, whatever the trend promises.
        """
        expected = max(level, level + self.damping * trend * horizon)
        errors = np.array(self.errors + PRIOR_ERRORS)
        weights = np.ones(len(errors))
        weights[len(self.errors) :] = PRIOR_WEIGHT / len(PRIOR_ERRORS)
        samples = expected + errors * _spread(expected, self.mean)
        cap = HEADROOM_CAP * max(expected, recent_maximum)
        return Outlook(expected, np.clip(samples, 0.0, cap), weights / weights.sum())


def _spread(forecast: float, mean: float) -> float:
    return math.sqrt(max(forecast, 0.05 * mean) * mean) if mean > 0.0 else 1.0
