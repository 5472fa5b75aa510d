"""Whether the miss curve promises too much: the misses that came over those that it foretold.

A miss is blamed on the highest load of its request's lifetime, while a fleet is sized for the load of half a minute.
Where traffic is rough, the curve learned by the one is too hopeful for the other: 3.0% were foretold and 4.1% came with
gamma arrivals of CV 5. The ratio of the two sums says by how much, whoever is in charge of the fleet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 2 * 3600.0
"""Seconds after which a tick counts 1/e."""
PRIOR = 0.05 * 600.0
"""Foretold misses that the prior weighs, as share times seconds: ten minutes at five percent."""
GUESS = 1.5
"""The ratio before anything is known."""
LEAST, MOST = 1.0, 4.0
"""Of the ratio. At light load the curve foretells a little and nothing comes: that is no licence for heavy load. Let
down to 0.5, reasoning traffic was met with twice the allowance and attained 86%."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Two sums of shares of misses times seconds, each tick weighed by its requests."""

    foretold: float = 0.0
    came: float = 0.0

    def learn(self, *, foretold: float, came: float, weight: float, elapsed: float) -> Calibration:
        """Add a tick: shares of misses; `weight` is its requests over the usual number."""
        keep = math.exp(-elapsed / MEMORY)
        seconds = elapsed * min(2.0, weight)
        return Calibration(self.foretold * keep + foretold * seconds, self.came * keep + came * seconds)

    @property
    def ratio(self) -> float:
        """Misses that come for each that the curve foretells."""
        return min(MOST, max(LEAST, (self.came + GUESS * PRIOR) / (self.foretold + PRIOR)))
