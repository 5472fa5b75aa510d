"""How many statuses are written, and whose come first: the oldest change, over the pools of all backends.

A condition of all pools may change in one tick, as when Prometheus is down. 5,000 writes in 15 s would slow the API
server for everybody else in the cluster, and the scale-ups that are sent to it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
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
LATE = "%d pools wait for a write of their conditions, the first for %.0f s; scaling does not. Limit: %.1f a second."


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
    """Unix time in seconds at which the change was first seen, or its write was last tried: one that fails again and
    again goes to the end of the line."""


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
        """Pools whose turn has come, and whether for figures alone. A turn stays until the pool asks: the round of a
        slow backend lasts several ticks."""
        self._free = self._free_with_figures = 0
        """Writes of this tick that are left for changes that nobody has waited with."""
        self._urgent = 0
        """Writes of this tick that are not of figures alone."""

    def begin(self, now: float, interval: float, pools: Collection[Key], of: int) -> None:
        """A tick begins at Unix time `now`, over these pools `of` all: other operators write for the rest.

        `interval` and `now` are in seconds. Who is not among the pools loses its place.
        """
        seconds = interval if self._begun is None else min(interval, max(0.0, now - self._begun))
        self._begun, self.figures_after = now, figures_after(of)
        share = len(pools) / max(1, of)
        most, with_figures = (math.ceil(each * seconds * share) for each in (self._most, self._with_figures))
        with_figures -= self._urgent  # figures take what the conditions and scales of the last tick would leave
        self._urgent = 0
        self._waiting = {key: one for key, one in self._waiting.items() if key in pools}
        kept = {key: turn for key, turn in self._next.items() if key in self._waiting}
        line = sorted(self._waiting.keys() - kept.keys(), key=lambda key: (self._waiting[key].since, key))
        urgent = [key for key in line if not self._waiting[key].figures]
        figures = [key for key in line if self._waiting[key].figures]
        if len(urgent) > most and (waited := now - self._waiting[urgent[0]].since) > interval:
            log.warning(LATE, len(urgent), waited, self._most * share)
        urgent = urgent[:most]
        figures = figures[: max(0, with_figures - len(urgent))]
        turns = dict.fromkeys(urgent, False) | dict.fromkeys(figures, True)
        self._next = kept | turns
        self._free, self._free_with_figures = most - len(turns), with_figures - len(turns)

    def admits(self, pool: Key, now: float, *, figures: bool) -> bool:
        """Whether this pool's change may be written now. It waits until `done`. `figures`: it is of nothing else."""
        before = self._waiting.get(pool)
        since = before.since if before is not None and before.figures == figures else now
        turn = self._next.pop(pool, None)
        if turn is not None and figures and not turn:  # it waited with a condition, that is as it was again
            self._free += 1
            turn = None
        if turn is None and (self._free <= 0 or (figures and self._free_with_figures <= 0)):
            self._waiting[pool] = Waiting(figures, since)
            return False
        if turn is None:
            self.count(figures=figures)
        else:
            self._urgent += not figures
        self._waiting[pool] = Waiting(figures, now)
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
