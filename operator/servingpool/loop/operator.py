"""The operator as a whole: the loop on its clock, the election beside it, and whether it is alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from servingpool.loop.metrics import LoopMetrics
from servingpool.loop.reconciler import LOOKS, Reconciler

log = logging.getLogger(__name__)

DEAD_AFTER = 4
"""Intervals without a finished tick after which the loop counts as hung."""
LEAST_TENURE = 90.0
"""Seconds for which a tick may always last before its member loses its share: a slow tick is better than none."""
LEAST_PATIENCE = 120.0
"""Seconds without a finished tick that are always allowed: a tick may wait for Prometheus and the API server."""
LONGEST_SILENCE = 300.0
"""Seconds without an answer about the Lease after which the operator restarts: credentials may have expired."""
QUIET = 10.0
"""Seconds without a newly listed object after which the first lists count as whole, whatever was expected."""
LONGEST_LISTING = 90.0
FORGET_EVERY = 60.0
"""Seconds between two comparisons of the cache with the cluster: a small request per kind and watched namespace."""
FOLLOWER_LOOKS = 1.0
"""Seconds between two checks of a follower whether it leads."""
LAST_TICK = 5.0
"""Seconds for the tick under way at the end. With the writes after it, it fits into the pod's grace period of 30 s."""
LAST_WRITES = 10.0
"""Seconds for writing learned profiles at the end."""


class Watched(Protocol):
    """Part of the watches that the loop needs."""

    listed_at: float
    """Time at which an object of a list was last shown, by the heartbeat's clock."""

    def complete(self) -> bool:
        """Whether all objects that existed at the start were shown."""

    async def forget_deleted(self) -> None:
        """Remove objects from the cache that no longer exist, though no watch reported it."""


class Candidate(Protocol):
    """Part of the election, or of the membership in shards, that the operator needs."""

    @property
    def leading(self) -> bool:
        """Whether it may write now."""

    @property
    def silence(self) -> float:
        """Seconds since the API server last answered about the Lease."""

    async def run(self) -> None:
        """Hold the Lease; return when another leads after us."""

    async def release(self) -> None:
        """Give the Lease back."""


@dataclass(slots=True)
class Heartbeat:
    """Times of the last events, by a monotonic clock in seconds."""

    clock: Callable[[], float]
    started: float = field(init=False)
    ticked: float | None = None
    ended: float | None = None
    """When a tick has last ended, also one that failed: without the Lease the next would not fail, and renew it."""

    def __post_init__(self) -> None:
        self.started = self.clock()

    def problem(self, interval: float, silence: float) -> str | None:
        """Why the operator should be restarted; None while it is well.

        `silence` is the time in seconds since the API server last answered about the Lease.
        """
        since, longest = self._since(self.ticked), max(DEAD_AFTER * interval, LEAST_PATIENCE)
        if since > longest:
            return f"No tick for {since:.0f} s; the limit is {longest:.0f} s."
        if silence > LONGEST_SILENCE:
            return f"The lease could not be read for {silence:.0f} s; the limit is {LONGEST_SILENCE:.0f} s."
        return None

    def hangs(self, interval: float) -> bool:
        """Whether a tick lasts so long that another operator should have the pools."""
        return self._since(self.ended) > max(DEAD_AFTER * interval, LEAST_TENURE)

    def _since(self, event: float | None) -> float:
        return self.clock() - (self.started + LONGEST_LISTING if event is None else event)


class Operator:
    """Runs the loop. Start it in kopf's event loop, stop it before kopf closes that."""

    def __init__(
        self,
        reconciler: Reconciler,
        watched: Watched,
        election: Candidate | None,
        metrics: LoopMetrics,
        heartbeat: Heartbeat,
        *,
        interval: float,
        now: Callable[[], float],
        lost: Callable[[], None],
    ) -> None:
        self._reconciler, self._watched, self._election, self._metrics = reconciler, watched, election, metrics
        self._heartbeat, self._interval, self._now, self._lost = heartbeat, interval, now, lost
        self._stopping, self._woken = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the loop and the election."""
        self._tasks = [
            asyncio.create_task(self._loop(), name="loop"),
            asyncio.create_task(self._forget_deleted(), name="forget-deleted"),
        ]
        if self._election is not None:
            self._tasks.append(asyncio.create_task(self._elect(self._election), name="election"))

    async def stop(self) -> None:
        """Finish the tick, write what was learned, give the Lease back."""
        self._stopping.set()
        self._woken.set()
        loop = self._tasks[0]
        await asyncio.wait({loop}, timeout=LAST_TICK)
        loop.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WRITES):
                await self._reconciler.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._election is not None:
            await self._election.release()

    @property
    def problem(self) -> str | None:
        """Why the operator should be restarted; None while it is well."""
        return self._heartbeat.problem(self._interval, 0.0 if self._election is None else self._election.silence)

    @property
    def _leading(self) -> bool:
        return self._election is None or self._election.leading

    def share_changed(self) -> None:
        """Other pools are ours now: those that have moved away are forgotten at once, and a tick runs for the rest."""
        self._reconciler.forget_moved()
        self._woken.set()

    @property
    def alive(self) -> bool:
        """Whether the loop runs: a member whose loop hangs must not keep its share."""
        return not self._heartbeat.hangs(self._interval)

    async def _elect(self, election: Candidate) -> None:
        try:
            await election.run()
        except Exception:
            log.exception("Leader election failed; exiting.")
        else:
            # Another leads by now. What this process believes of the fleet is no longer its to act on.
            log.error("The lease was lost; exiting to restart as a follower.")
        self._lost()

    async def _loop(self) -> None:
        await self._first_lists()
        self._tasks.append(asyncio.create_task(self._look(), name="look"))
        due, early = self._heartbeat.clock(), False
        while not self._stopping.is_set():
            began, leading = self._heartbeat.clock(), self._leading
            try:
                await self._tick()
            except Exception:
                # One tick that fails must not be the last: the fleet stays as it is and the next tick tries again.
                log.exception("The tick failed; the next one runs as usual.")
            else:
                self._heartbeat.ticked = self._heartbeat.clock()
            self._heartbeat.ended = self._heartbeat.clock()
            if leading:
                # A follower's looks are many, short and on time: beside them no quantile would show a late leader.
                self._metrics.lateness.observe(max(0.0, began - due))
                self._metrics.duration.observe(self._heartbeat.clock() - began)
            pause = self._interval if self._leading else min(self._interval, FOLLOWER_LOOKS)
            if not early:  # else the tick that is due comes as well
                # On the grid, and never a burst of ticks to make up for those that a slow one has missed.
                due = pause + (due if began - due < pause else began)
            early = False
            with contextlib.suppress(TimeoutError):
                early = await asyncio.wait_for(self._woken.wait(), max(0.0, due - self._heartbeat.clock()))
            self._woken.clear()

    async def _tick(self) -> None:
        done = await self._reconciler.tick(self._now())
        self._metrics.pools.set(done.pools)
        self._metrics.owned.set(done.owned)
        self._metrics.leading.set(self._leading)
        self._metrics.queries.inc(done.queries)
        self._metrics.unreadable.inc(done.unreadable)
        self._metrics.failures.inc(done.failed)

    async def _look(self) -> None:
        """See every second which pools are ours: what changes its group and comes back between two ticks is noticed."""
        while True:
            try:
                self._reconciler.look()
            except Exception:
                log.exception("The groups of the pools could not be read; the next try is in %.0f s.", LOOKS)
            await asyncio.sleep(LOOKS)

    async def _forget_deleted(self) -> None:
        """Forget deleted objects beside the loop: a slow API server must not hold up a tick."""
        while True:
            await asyncio.sleep(FORGET_EVERY)
            try:
                await self._watched.forget_deleted()
            except Exception:
                log.exception("Comparing the cache with the cluster failed; the next try is in %.0f s.", FORGET_EVERY)

    async def _first_lists(self) -> None:
        """Wait until the watches have shown what there is.

        A pool whose Deployment is shown a second later is no pool without a target, and of a fleet of which half is
        shown, half is unknown.
        """
        while not self._stopping.is_set() and not self._watched.complete():
            clock = self._heartbeat.clock()
            quiet = clock - max(self._watched.listed_at, self._heartbeat.started)
            if quiet >= QUIET or clock - self._heartbeat.started >= LONGEST_LISTING:
                log.warning("The watches did not show all objects in time; starting without the rest.")
                return
            await asyncio.sleep(0.1)


BORNE = 3600.0
"""Seconds after which a system clock that was set back is followed: it was wrong before, and schedules need it."""


class SteadyClock:
    """Unix time in seconds, that passes as the monotonic clock does and follows the system's clock forward.

    Were the system's clock set back, every duration would be wrong: how long pods are Ready, how long ago an order was
    sent. So time passes on as before, for `BORNE` seconds at most.
    """

    def __init__(self, system: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """`system`: Unix time in seconds, which may be set; `monotonic`: seconds from any beginning."""
        self._system, self._monotonic = system, monotonic
        self._ahead = system() - monotonic()
        """Seconds by which Unix time is ahead of the monotonic clock."""
        self._behind_since: float | None = None
        """Monotonic time since when the system's clock is behind; None while it is not."""

    def __call__(self) -> float:
        """Now."""
        monotonic = self._monotonic()
        ahead = self._system() - monotonic
        if ahead >= self._ahead:
            self._ahead, self._behind_since = ahead, None
        elif self._behind_since is None:
            self._behind_since = monotonic
        elif monotonic - self._behind_since >= BORNE:
            self._ahead, self._behind_since = ahead, None  # the core empties its windows, and removes nothing meanwhile
        return monotonic + self._ahead
