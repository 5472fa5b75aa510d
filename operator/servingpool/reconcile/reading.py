"""Reads the metrics of all pools: once per backend and kind of pool, however many pools there are.

Each backend is read by itself, within its own deadline: one that is slow delays its own pools only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from servingpool.adapters.prometheus import (
    BackendConfig,
    FleetReading,
    GatewayReading,
    NotAsked,
    PodPages,
    ReadRequest,
)
from servingpool.api.conditions import Reason
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import NOT_EXPOSED, Reading, Unknown
from servingpool.reconcile.observing import requests_for, share_of

log = logging.getLogger(__name__)

T = TypeVar("T")
Share = tuple[str, tuple[tuple[str, str], ...]]
"""Engine and extra labels: what pools of a backend that are read together share."""


class Backend(Protocol):
    """What the loop needs of a Prometheus."""

    config: BackendConfig

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        """Every pod's page as last scraped; NotAsked where it had no time for this request."""

    async def history(
        self,
        request: ReadRequest,
        *,
        start: float,
        end: float,
        step: float,
        most_pages: int,
        namespaces: Sequence[str],
    ) -> Sequence[tuple[float, PodPages]] | Unknown:
        """The pages of these namespaces as they were; Unknown where there are more than so many."""

    async def gateway(self) -> GatewayReading | Unknown:
        """What waits before the engines."""


class Readings:
    """The backends by name, and what each said last."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._readers = {name: _Reader(name, backend) for name, backend in backends.items()}

    @property
    def backends(self) -> Collection[str]:
        """Their names."""
        return self._readers.keys()

    def problem(self, pool: ServingPool) -> tuple[Reason, str] | None:
        """Why this pool cannot be read at all; None where it can."""
        name, namespace = pool.spec.metrics.backend, pool.metadata.namespace
        reader = self._readers.get(name)
        if reader is None:
            known = ", ".join(sorted(self._readers))
            return Reason.UNKNOWN_BACKEND, f"metrics.backend must be one of {known}, got {name}"
        if not reader.backend.config.serves(namespace):
            return Reason.UNKNOWN_BACKEND, f"backend {name} is not open to namespace {namespace}"
        return None

    def of(self, pool: ServingPool) -> FleetReading | Unknown:
        """What was read last for this pool."""
        return self._reader(pool).latest[share_of(pool)]

    def gateway_queue(self, pool: ServingPool) -> Reading:
        """What waits for this pool before its engines, where its backend is told of a gateway."""
        reading = self._reader(pool).queues
        if reading is None:
            return NOT_EXPOSED
        if isinstance(reading, Unknown):
            return reading
        return reading.select(pool.metadata.namespace, pool.spec.model)

    def rests(self, pool: ServingPool) -> bool:
        """Whether it had no turn, and what was read last is no older than a page may be.

        Nothing is decided then: it is as if its backend were looked at less often. Decided on what was read last, a
        fleet would shrink on it.
        """
        return share_of(pool) in self._reader(pool).resting

    def answered(self, pool: ServingPool) -> bool:
        """Whether its backend did when it was last asked. One that does not has its history asked for later."""
        return isinstance(self.of(pool), FleetReading)

    async def read(self, backend: str, pools: Sequence[ServingPool], now: float) -> int:
        """Ask one backend for all its pools. How many queries that took."""
        return await self._readers[backend].read(pools, now)

    def _reader(self, pool: ServingPool) -> _Reader:
        return self._readers[pool.spec.metrics.backend]


class _Reader:
    """One backend, and what it said last."""

    def __init__(self, name: str, backend: Backend) -> None:
        self.backend = backend
        self.latest: dict[Share, FleetReading | Unknown] = {}
        self.resting: set[Share] = set()
        self.queues: GatewayReading | Unknown | None = None
        """None where there is no gateway."""
        self._name = name
        self._answered: dict[Share, float] = {}
        """When each was last answered, in Unix time in seconds."""
        self._rounds = 0
        self._turns: dict[Share, int] = {}
        """The round of each one's last turn, answered or not."""

    async def read(self, pools: Sequence[ServingPool], now: float) -> int:
        """Ask for all pools; whoever has waited longest for a turn comes first.

        There is one deadline for all that is asked. A backend that is too slow for as many different labels as its
        pools have would else answer the same few for ever.
        """
        self._rounds += 1
        wanted = dict(sorted(requests_for(pools).items(), key=lambda one: self._turns.get(one[0], 0)))
        # The gateway first: it is one small query, for all pools.
        asked = self.backend.config.gateway is not None and bool(wanted)
        (self.queues,), answers = await asyncio.gather(
            asyncio.gather(self._gateway(asked=asked)),
            asyncio.gather(*(sound(self._name, self.backend.read(request, now)) for request in wanted.values())),
        )
        self.latest = dict(zip(wanted, answers, strict=True))
        unasked = {one for one, answer in self.latest.items() if isinstance(answer, NotAsked)}
        self._turns = {one: self._turns.get(one, 0) if one in unasked else self._rounds for one in wanted}
        self._answered = {one: at for one, at in self._answered.items() if one in wanted} | {
            one: now for one, answer in self.latest.items() if isinstance(answer, FleetReading)
        }
        self.resting = {one for one in unasked if self._lasts(one, now)}
        return asked + sum(answer.queries for answer in answers if isinstance(answer, FleetReading))

    async def _gateway(self, *, asked: bool) -> GatewayReading | Unknown | None:
        return await sound(self._name, self.backend.gateway()) if asked else None

    def _lasts(self, one: Share, now: float) -> bool:
        return one in self._answered and 0.0 <= now - self._answered[one] < self.backend.config.staleness


async def sound(backend: str, answer: Coroutine[Any, Any, T]) -> T | Unknown:
    """The answer. A defect in reading one backend is unknown for its pools, and nothing to the others."""
    try:
        return await answer
    except Exception as defect:
        log.exception("reading backend %s failed", backend)
        return Unknown(f"Prometheus backend '{backend}' could not be read: {type(defect).__name__} in the operator")
