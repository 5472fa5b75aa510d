"""The load at which the KV cache is full, known long before it is reached.

A request holds its tokens in the cache for as long as it runs, and it runs longer the busier the engine is:
requests in the batch, and with them the share of the cache in use, grow as load / (1 - load). One figure
per mix of requests, the usage at half load, is therefore enough to say where the cache fills. Behind that point
requests queue however fast the steps are, so a knee hardly lies beyond it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FORGETTING = 900.0
"""Seconds: the tokens held per request change with the mix."""
FULL = 0.9
"""Share of the cache beyond which preemptions and queueing set in: the mean over time of what peaks at 1."""
LEAST_LOAD, MOST_LOAD = 0.05, 0.9
"""Outside of these the ratio is noise over noise."""


@dataclass(frozen=True, slots=True)
class KvCache:
    """Weighted sums for usage = slope * load / (1 - load)."""

    product: float = 0.0
    square: float = 0.0

    def learn(self, *, usage: float, load: float, elapsed: float) -> KvCache:
        """Add one look: mean share of the cache in use, and the load then."""
        if not LEAST_LOAD <= load <= MOST_LOAD:
            return self
        if usage >= FULL:
            # How much more would be in use is not seen, so it tells only where the cache was thought to be larger.
            if load >= self.full_at:
                return self
            usage = FULL
        keep, crowd = math.exp(-elapsed / FORGETTING), load / (1.0 - load)
        return KvCache(self.product * keep + usage * crowd, self.square * keep + crowd * crowd)

    @property
    def full_at(self) -> float:
        """Load at which the cache is full; 1 where it never matters or nothing was seen."""
        if self.product <= 0.0 or self.square <= 0.0:
            return 1.0
        slope = self.product / self.square
        return FULL / (FULL + slope)
