"""Whether the TTFT histogram includes the time in the queue.

Engines differ: some count TTFT from a request's arrival, some from its admission, and no engine sees the queue of the
gateway before it. Where the queue is included, TTFT rises by a second for each second of waiting. Where not, it hardly
rises.

That slope is the covariance of TTFT and wait over the variance of the wait. The wait is known at scrapes only, and two
bursts between them look like one queue. So the covariance of the waits at two successive scrapes stands for the
variance: their errors are independent. Where no queue outlasts the time between scrapes, nothing is concluded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from servingpool.decision.engine import Wait
from servingpool.decision.params import Params

ENOUGH = 5.0
"""Replicas' intervals with a queue at both scrapes; with fewer nothing is concluded. Where 20 requests were enough, 15
of 252 runs were judged wrongly: requests of one interval share its error."""
LASTING = 0.3
"""Correlation of the waits at two successive scrapes, 0 to 1, from which on queues outlast the time between them."""
ROUNDING = 1e-5
"""Part of the mean square wait below which its variance may be rounding: a kept profile has seven digits."""

ONE, BEGIN, END, TTFT = range(4)
PAIRS = tuple(combinations_with_replacement((ONE, BEGIN, END, TTFT), 2))[:-1]
"""Pairs of these four figures; nobody needs the square of TTFT."""


@dataclass(frozen=True, slots=True)
class QueueInTtft:
    """Evidence from all replicas, and the verdict."""

    moments: tuple[float, ...] = (0.0,) * len(PAIRS)
    """Sum over requests of each product of two of (1, begin, end, TTFT), in the order of PAIRS."""
    queued: float = 0.0
    """Replicas' intervals with a queue at both scrapes."""
    excluded: bool = False
    """Whether the histogram excludes the queue. Stands until the evidence contradicts it."""

    def update(self, waits: Sequence[Wait], *, elapsed: float, params: Params, known: bool = False) -> QueueInTtft:
        """Add the requests that began in these `elapsed` seconds. `known`: the engine is known to exclude its queue.

        Minutes with a queue outweigh the past sooner than those without, so after an upgrade the next queue tells.
        """
        queued = sum([one.begin > 0.0 < one.end for one in waits])
        keep = math.exp(-elapsed / (params.mean_window if queued else params.evidence_memory))
        moments = [held * keep for held in self.moments]
        for one in waits:
            figures = (1.0, one.begin, one.end, one.ttft)
            for place, (first, second) in enumerate(PAIRS):
                moments[place] += one.requests * figures[first] * figures[second]
        added = QueueInTtft(tuple(moments), self.queued * keep + queued, known or self.excluded)
        slope = None if known or not waits else added.slope
        if slope is None:
            return added
        # Clients that give up make a wait look longer and the slope smaller, so a verdict is not turned by a little.
        excluded = slope < params.included_slope * (2.0 if self.excluded else 1.0)
        return QueueInTtft(added.moments, added.queued, excluded)

    @property
    def slope(self) -> float | None:
        """Seconds of TTFT for each second of waiting; None where the evidence does not tell."""
        if self.queued < ENOUGH or self.moments[0] <= 0.0:
            return None
        both = self._covariance(BEGIN, END)
        lasting = LASTING * math.sqrt(max(0.0, self._covariance(BEGIN, BEGIN) * self._covariance(END, END)))
        # A damaged profile may give NaN, which is more than nothing.
        if not both > max(lasting, ROUNDING * self._mean(BEGIN, END)):
            return None
        return (self._covariance(BEGIN, TTFT) + self._covariance(END, TTFT)) / (2.0 * both)

    def _covariance(self, first: int, second: int) -> float:
        return self._mean(first, second) - self._mean(ONE, first) * self._mean(ONE, second)

    def _mean(self, first: int, second: int) -> float:
        return self.moments[PAIRS.index((first, second))] / self.moments[0]
