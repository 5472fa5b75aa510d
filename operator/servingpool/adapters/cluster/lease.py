"""Leader election: one of several operators writes.

A Lease with fencing by resourceVersion, as client-go has it. The Python client's own election has lock calls
without timeout and no release on cancellation, and kopf's peering is a heartbeat without fencing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound
from servingpool.adapters.cluster.kinds import OPERATOR
from servingpool.adapters.cluster.objects import Key

log = logging.getLogger(__name__)

T = TypeVar("T")

GIVING_BACK = 3
"""Tries. A renewal that is done in between takes one; a webhook that says no with a bare 422 would take them all."""


class Leases(Protocol):
    """Part of a cluster that the election needs."""

    async def read_lease(self, lease: Key) -> dict[str, Any]:
        """Read it, or NotFound."""

    async def create_lease(self, lease: Key, spec: dict[str, Any]) -> dict[str, Any]:
        """Create it, or Conflict."""

    async def replace_lease(self, lease: Key, held: dict[str, Any]) -> dict[str, Any]:
        """Replace it as read, or Conflict."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a lease, in seconds.

    Others may take over `duration` after the last renewal they saw; the leader stops writing `deadline` after its
    last success. In between nobody writes, and never two.
    """

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


class Election:
    """A candidate. Writers ask `leading`; it turns false by the clock alone, whatever hangs."""

    def __init__(self, leases: Leases, lease: Key, identity: str, *, terms: Terms, clock: Callable[[], float]) -> None:
        self._leases, self._lease, self.identity, self._terms = leases, lease, identity, terms
        self._clock = clock
        self._held: dict[str, Any] | None = None
        self._renewed = float("-inf")
        """Local time of our last success, taken before the request: the server's clock does not matter."""
        self._seen: tuple[str | None, Any] = (None, None)
        self._seen_at = float("-inf")
        """Time, by our clock, of the last change in another holder's record."""
        self._taken = False
        """Whether another operator holds the lease, as of the last answer."""
        self._answered = clock()

    @property
    def leading(self) -> bool:
        """Whether we may write now."""
        return self._held is not None and self._clock() < self._renewed + self._terms.deadline

    @property
    def silence(self) -> float:
        """Seconds since the API server last let us read or write the Lease."""
        return self._clock() - self._answered

    async def run(self) -> None:
        """Acquire, renew, and return when another leads after us. Cancel to stop; then call `release`.

        An API server that is away for a minute ends nobody's term: it cannot be written to anyway, and if the Lease
        still names us afterwards, nobody else has written meanwhile.
        """
        led = leading = False
        while True:
            started = self._clock()
            try:
                await self.attempt()
            except (ClusterError, TimeoutError) as error:
                log.warning("%s", str(error) or f"Cannot renew Lease {'/'.join(self._lease)}: no answer in time")
            leading = log_change(leading, self.leading, f"Leading as {self.identity}", self._terms.deadline)
            led = led or leading
            if led and self._taken:
                return
            await asyncio.sleep(max(0.0, self._terms.retry - (self._clock() - started)))

    async def attempt(self) -> None:
        """Try once to acquire or renew the lease."""
        now = self._clock()
        try:
            held = await self._soon(self._leases.read_lease(self._lease))
        except NotFound:
            self._held = await self._soon(self._leases.create_lease(self._lease, self._spec(transitions=0)))
            self._renewed, self._taken = now, False
            return
        self._answered = self._clock()
        spec = held.get("spec") or {}
        holder = spec.get("holderIdentity")
        record = (holder, spec.get("renewTime"))
        if record != self._seen:
            # From the answer on: counted from the question, a slow one ends the other's term before he does.
            self._seen, self._seen_at = record, self._clock()
        self._taken = holder not in {None, "", self.identity}
        if self._taken:
            self._held = None
            duration = float(spec.get("leaseDurationSeconds") or self._terms.duration)
            if self._clock() < self._seen_at + duration:
                return
        transitions = min(2**31 - 1, int(spec.get("leaseTransitions") or 0) + (holder != self.identity))
        held["metadata"]["labels"] = (held["metadata"].get("labels") or {}) | dict([OPERATOR])
        held["spec"] = spec | self._spec(transitions=transitions, acquired=spec if holder == self.identity else None)
        try:
            self._held = await self._soon(self._leases.replace_lease(self._lease, held))
        except Conflict:
            # Somebody annotates it; or it was deleted, and is another's by now.
            if await self._soon(self._ours()) is None:
                self._held = None
            return
        self._renewed, self._taken = now, False

    async def release(self) -> None:
        """Give the Lease back, so that the next leader need not wait for it to run out."""
        self._held = None
        try:
            await self._soon(self._give_back())
        except (ClusterError, TimeoutError) as error:
            log.info("The lease was not released and will expire: %s", str(error) or "no answer in time")

    async def _ours(self) -> dict[str, Any] | None:
        """The Lease as it stands, if it names us."""
        with contextlib.suppress(NotFound):
            held = await self._leases.read_lease(self._lease)
            if (held.get("spec") or {}).get("holderIdentity") == self.identity:
                return held
        return None

    async def _give_back(self) -> None:
        for _ in range(GIVING_BACK):
            # Read anew: a renewal that `run` was cancelled in may have been done all the same, or be done any moment.
            held = await self._ours()
            if held is None:
                return
            held["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": timestamp()}
            with contextlib.suppress(Conflict, NotFound):
                await self._leases.replace_lease(self._lease, held)
                return

    async def _soon(self, request: Coroutine[Any, Any, T]) -> T:
        """Answer within half the deadline: a connection that died silently leaves time for another try."""
        async with asyncio.timeout(self._terms.deadline / 2):
            return await request

    def _spec(self, *, transitions: int, acquired: dict[str, Any] | None = None) -> dict[str, Any]:
        now = timestamp()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._terms.duration),
            "acquireTime": (acquired or {}).get("acquireTime") or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


def log_change(before: bool, leading: bool, said: str, deadline: float) -> bool:
    """Log where we may write now and might not `before`, or the reverse. Returns whether we may."""
    if leading and not before:
        log.info("%s", said)
    elif before and not leading:
        log.warning("The lease was not renewed for %g s; this operator stops writing.", deadline)
    return leading


def timestamp() -> str:
    """Now, as a Lease has its times: UTC, in microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
