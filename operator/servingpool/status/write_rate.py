"""How many statuses are written, and whose come first: one token bucket, the oldest change first, over all pools.

A condition of all pools may change in one tick, as when Prometheus is down. 5,000 writes in 15 s would slow the API
server for everybody else in the cluster, and the scale-ups that are sent to it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from servingpool.adapters.cluster.objects import Key

log = logging.getLogger(__name__)

MOST = 20.0
"""Status writes a second, averaged over a tick. SIG scalability takes so many changes a second for a whole cluster."""
REST_AIM = 4.0
"""Status writes a second for what nobody waits for, from which `rest_after` grows with the number of pools."""
REST_AFTER, REST_AT_LATEST = 60.0, 600.0
"""Least and most seconds of `rest_after`. A learned profile is kept unwritten for as long as the latter, so that where
there are many pools one write has both."""
LATE = "%d pools wait for a write of their status, the first for %.0f s; scaling does not. Limit: %.1f a second."


def rest_after(pools: int) -> float:
    """Seconds between two writes of a pool for what nobody waits for: 60 up to 240 pools, 600 from 2,400 on."""
    return min(REST_AT_LATEST, max(REST_AFTER, pools / REST_AIM))


class WriteRate:
    """Shares the writes of a tick out. A place in the line is kept over ticks, so no backend starves others' pools."""

    def __init__(self, most: float = MOST) -> None:
        """`most`: writes a second. Nothing may be written before the first tick begins."""
        self._most = most
        self.rest_after = REST_AFTER
        """Seconds between two writes of a pool for what nobody waits for."""
        self._begun: float | None = None
        self._waiting: dict[Key, float] = {}
        """Unix time in seconds since which each pool waits, or at which its write was last tried: one that fails again
        and again goes to the end of the line."""
        self._turns: set[Key] = set()
        """Pools whose turn has come. A turn stays until the pool asks: the round of a slow backend lasts several
        ticks."""
        self._free = 0
        """Writes of this tick that are left for pools that have not waited."""

    def begin(self, now: float, interval: float, pools: Collection[Key], of: int) -> None:
        """A tick begins at Unix time `now`, over these pools `of` all: other operators write for the rest.

        `interval` and `now` are in seconds. Who is not among the pools loses its place.
        """
        seconds = interval if self._begun is None else min(interval, max(0.0, now - self._begun))
        self._begun, self.rest_after = now, rest_after(of)
        most = self._most * len(pools) / max(1, of)
        self._waiting = {key: since for key, since in self._waiting.items() if key in pools}
        self._turns &= self._waiting.keys()
        line = sorted(self._waiting.keys() - self._turns, key=lambda key: (self._waiting[key], key))
        self._free = math.ceil(most * seconds)
        if len(line) > self._free and (waited := now - self._waiting[line[0]]) > interval:
            log.warning(LATE, len(line), waited, most)
        self._turns.update(line[: self._free])
        self._free = max(0, self._free - len(line))

    def admits(self, pool: Key, now: float) -> bool:
        """Whether this pool's status may be written now. The pool waits until `done`."""
        if pool in self._turns:
            self._turns.remove(pool)
        elif self._free > 0:
            self.count()
        else:
            self._waiting.setdefault(pool, now)
            return False
        self._waiting[pool] = now
        return True

    def count(self) -> None:
        """A write that does not wait."""
        self._free -= 1

    def done(self, pool: Key) -> None:
        """Nothing of this pool is unwritten. Its turn goes to another."""
        self._waiting.pop(pool, None)
        if pool in self._turns:
            self._turns.remove(pool)
            self._free += 1
