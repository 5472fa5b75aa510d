"""The operator as a whole: the loop on its clock, the election beside it, and whether it is alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from servingpool.adapters.cluster.lease import Election
from servingpool.reconcile.exposing import LoopMetrics
from servingpool.reconcile.loop import Reconciler

log = logging.getLogger(__name__)

DEAD_AFTER = 4
"""Intervals without a finished tick after which the loop counts as hung."""
QUIET = 1.5
"""Seconds without a newly listed object after which the first lists count as read."""
LONGEST_LISTING = 90.0


@dataclass(slots=True)
class Heartbeat:
    """When things last happened, by a monotonic clock in seconds."""

    clock: Callable[[], float]
    started: float = field(init=False)
    listed: float = field(init=False)
    """When a watch last delivered an object of its first list."""
    ticked: float | None = None

    def __post_init__(self) -> None:
        self.started = self.listed = self.clock()

    def problem(self, interval: float) -> str | None:
        """Why the operator should be restarted; None while it is well."""
        since = self.clock() - (self.ticked if self.ticked is not None else self.started + LONGEST_LISTING)
        longest = DEAD_AFTER * interval
        return f"no tick for {since:.0f} s, more than {longest:.0f} s" if since > longest else None


class Operator:
    """Runs the loop. Start it in kopf's event loop, stop it before kopf closes that."""

    def __init__(
        self,
        reconciler: Reconciler,
        election: Election | None,
        metrics: LoopMetrics,
        heartbeat: Heartbeat,
        *,
        interval: float,
        now: Callable[[], float],
        lost: Callable[[], None],
    ) -> None:
        self._reconciler, self._election, self._metrics = reconciler, election, metrics
        self._heartbeat, self._interval, self._now, self._lost = heartbeat, interval, now, lost
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the loop and the election."""
        self._tasks = [asyncio.create_task(self._loop(), name="loop")]
        if self._election is not None:
            self._tasks.append(asyncio.create_task(self._elect(self._election), name="election"))

    async def stop(self) -> None:
        """Finish the tick, write what was learned, give the Lease back."""
        self._stopping.set()
        loop, *others = self._tasks
        with contextlib.suppress(asyncio.CancelledError):
            await loop
        await self._reconciler.stop()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._election is not None:
            await self._election.release()

    async def _elect(self, election: Election) -> None:
        await election.run()
        # Another may be leading by now. What this process believes of the fleet is no longer its to act on.
        log.error("the lease was lost: leaving, to start afresh as a follower")
        self._lost()

    async def _loop(self) -> None:
        await self._first_lists()
        due = self._heartbeat.clock()
        while not self._stopping.is_set():
            began = self._heartbeat.clock()
            self._metrics.lateness.observe(max(0.0, began - due))
            try:
                await self._tick()
            except Exception:
                # One tick that fails must not be the last: the fleet stays as it is and the next tick tries again.
                log.exception("the tick failed")
            else:
                self._heartbeat.ticked = self._heartbeat.clock()
            self._metrics.duration.observe(self._heartbeat.clock() - began)
            # On the grid, and never a burst of ticks to make up for those that a slow one has missed.
            due = max(due + self._interval, self._heartbeat.clock())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), max(0.0, due - self._heartbeat.clock()))

    async def _tick(self) -> None:
        done = await self._reconciler.tick(self._now())
        self._metrics.pools.set(done.pools)
        self._metrics.leading.set(self._election is None or self._election.leading)
        self._metrics.queries.inc(done.queries)
        self._metrics.failures.inc(done.failed)

    async def _first_lists(self) -> None:
        """Wait until the watches have listed what there is.

        A pool whose Deployment is listed a second later is no pool without a target.
        """
        while not self._stopping.is_set():
            clock = self._heartbeat.clock()
            if clock - self._heartbeat.listed >= QUIET or clock - self._heartbeat.started >= LONGEST_LISTING:
                return
            await asyncio.sleep(0.1)
