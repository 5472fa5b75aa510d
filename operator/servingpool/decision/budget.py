"""How many misses may be expected now, so that the share that comes true meets the target."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST, MOST = 0.5, 2.0
"""Bounds of the steering. Wider ones (0.25 to 4) let one start-up transient be repaid for hours."""
CAUTION_TIME = 1800.0
"""Seconds in which misses at twice the budget divide the steering by e."""
HOPE_TIME = 4 * CAUTION_TIME
"""Seconds in which a stretch without a miss multiplies it by e. Slower, because a quiet stretch says little of
the next step: with both at 1800 s the llm-d ramp met its third step at double budget and held 92.9%."""
CAREFUL = 0.75
"""Where it begins: hope is earned. Against 1.0 it costs Azure's code hour 7% more GPUs (8.3 instead of 7.8) and
takes its attainment from 94.6% to 95.7%; the conversation hour does not change."""
ABOVE_FLOOR = 0.3
"""Where the floor alone eats the budget, this part of the budget is allowed above it: no fleet size can
hold the SLO then, and running to max would buy nothing."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A slow, bounded dual variable: above 1 the model was too careful so far, below 1 too hopeful."""

    steering: float = CAREFUL

    def learn(
        self,
        *,
        missed: float,
        allowed: float,
        requests: float,
        usual_requests: float,
        elapsed: float,
        may_rise: bool = True,
        may_fall: bool = True,
    ) -> Budget:
        """Steer by one tick's share of misses. Ticks count by their requests, as the SLO does."""
        if requests <= 0.0 or usual_requests <= 0.0:
            return self
        weight = min(2.0, requests / usual_requests)
        surplus = min(2.0, missed / allowed) - 1.0
        if (surplus > 0.0 and not may_fall) or (surplus < 0.0 and not may_rise):
            return self
        time = CAUTION_TIME if surplus > 0.0 else HOPE_TIME
        moved = self.steering * math.exp(-surplus * weight * elapsed / time)
        return Budget(min(MOST, max(LEAST, moved)))

    def allowance(self, *, allowed: float, floor: float) -> float:
        """The share of misses a fleet may be sized for."""
        return max(allowed * self.steering, floor + ABOVE_FLOOR * allowed)
