"""How many statuses are written, and whose come first: the oldest change, over the pools of all backends.

A condition of all pools may change in one tick, as when Prometheus is down. 5,000 writes in 15 s would slow the API
server for everybody else in the cluster, and the scale-ups that are sent to it.
"""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

from servingpool.adapters.cluster.objects import Key

log = logging.getLogger(__name__)

MOST = 20.0
"""Status writes a second, averaged over a tick. SIG scalability takes so many changes a second for a whole cluster."""
MOST_WITH_FIGURES = 10.0
"""Status writes a second above which figures and profiles wait. So conditions always find room."""
FIGURES_AIM = 4.0
"""Status writes a second for figures, from which `figures_after` grows with the number of pools."""
FIGURES_AT_LATEST = 600.0
"""Seconds, as long as a learned profile is kept unwritten: where there are many pools, one write has both."""
FIGURES_AFTER = 60.0
"""Seconds between two writes of a pool for nothing but figures, where there are few pools."""
ASKS_WITHIN = 4
"""Intervals after which a waiting pool that has not asked again loses its place: it may be deleted."""


def figures_after(pools: int) -> float:
    """Seconds between two writes of a pool for nothing but figures: 60 up to 240 pools, 600 from 1,201 on.

    A whole number of them makes up the time between two profiles.
    """
    times = max(1, int(FIGURES_AT_LATEST * FIGURES_AIM) // max(1, pools))
    return max(FIGURES_AFTER, FIGURES_AT_LATEST / times)


class Waiting(NamedTuple):
    """A change that is not written yet."""

    figures: bool
    """It is of figures or the profile alone."""
    since: float
    """Unix time in seconds at which the change was first seen."""
    asked: float
    """Unix time in seconds at which the pool last asked."""


class WriteRate:
    """Shares the writes of a tick out. A place in the line is kept over ticks, so no backend starves others' pools."""

    def __init__(self, most: float = MOST, with_figures: float = MOST_WITH_FIGURES) -> None:
        """`most` and `with_figures`: writes a second. Nothing may be written before the first tick begins."""
        self._most, self._with_figures = most, with_figures
        self.figures_after = FIGURES_AFTER
        """Seconds between two writes of a pool for nothing but figures."""
        self._begun: float | None = None
        self._waiting: dict[Key, Waiting] = {}
        self._next: dict[Key, bool] = {}
        """Pools whose turn it is in this tick, and whether for figures alone."""
        self._free = self._free_with_figures = 0
        """Writes of this tick that are left for changes that nobody has waited with."""
        self._urgent = 0
        """Writes of this tick that are not of figures alone."""

    def begin(self, now: float, interval: float, pools: int, share: float = 1.0) -> None:
        """A tick begins at Unix time `now`, in a cluster of so many pools, of which our `share` is written here.

        `interval` and `now` are in seconds.
        """
        seconds = interval if self._begun is None else min(interval, max(0.0, now - self._begun))
        most, with_figures = (math.ceil(each * seconds * share) for each in (self._most, self._with_figures))
        with_figures -= self._urgent  # figures take what the conditions and scales of the last tick would leave
        self._urgent = 0
        self._begun, self.figures_after = now, figures_after(pools)
        latest = now - ASKS_WITHIN * interval
        self._waiting = {key: one for key, one in self._waiting.items() if one.asked >= latest}
        line = sorted(self._waiting, key=lambda key: self._waiting[key].since)
        urgent = [key for key in line if not self._waiting[key].figures]
        figures = [key for key in line if self._waiting[key].figures]
        if len(urgent) > most:
            said = "Status writes are limited to %.0f a second: %d pools wait, the first for %.0f s."
            log.warning(said, self._most, len(urgent), now - self._waiting[urgent[0]].since)
        urgent = urgent[:most]
        figures = figures[: max(0, with_figures - len(urgent))]
        self._next = dict.fromkeys(urgent, False) | dict.fromkeys(figures, True)
        self._free, self._free_with_figures = most - len(self._next), with_figures - len(self._next)

    def admits(self, pool: Key, now: float, *, figures: bool) -> bool:
        """Whether this pool's change may be written now. It waits until `done`. `figures`: it is of nothing else."""
        before = self._waiting.get(pool)
        since = before.since if before is not None and before.figures == figures else now
        self._waiting[pool] = Waiting(figures, since, now)
        turn = self._next.pop(pool, None)
        if turn is not None:
            if turn or not figures:
                self._urgent += not figures
                return True
            self._free += 1  # it waited with a condition, that is as it was again
        if self._free <= 0 or (figures and self._free_with_figures <= 0):
            return False
        self.count(figures=figures)
        return True

    def count(self, *, figures: bool = False) -> None:
        """A write that does not wait."""
        self._free -= 1
        self._free_with_figures -= 1
        self._urgent += not figures

    def done(self, pool: Key) -> None:
        """Nothing of this pool is unwritten. Its turn goes to another's condition, never to figures."""
        self._waiting.pop(pool, None)
        self._free += self._next.pop(pool, None) is not None
