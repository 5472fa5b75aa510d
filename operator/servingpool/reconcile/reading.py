"""Reads the metrics of all pools: once per backend and kind of pool, however many pools there are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
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
from servingpool.decision.observation import NOT_EXPOSED
from servingpool.decision.unknown import Reading, Unknown
from servingpool.reconcile.observing import requests_for, share_of

log = logging.getLogger(__name__)

T = TypeVar("T")
Share = tuple[str, str, tuple[tuple[str, str], ...]]
"""Backend, engine and extra labels: what pools that are read together share."""


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
    """The backends by name, and what they said in this tick."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends
        self._latest: dict[Share, FleetReading | Unknown] = {}
        self._answered: dict[Share, float] = {}
        """When each was last answered, in Unix time in seconds."""
        self._resting: set[Share] = set()
        self._rounds = 0
        self._turns: dict[Share, int] = {}
        """The round of each one's last turn, answered or not."""
        self._gateways: dict[str, GatewayReading | Unknown] = {}
        self.queries = 0
        """Queries sent in the last tick."""

    def problem(self, pool: ServingPool) -> tuple[Reason, str] | None:
        """Why this pool cannot be read at all; None where it can."""
        name, namespace = pool.spec.metrics.backend, pool.metadata.namespace
        backend = self._backends.get(name)
        if backend is None:
            known = ", ".join(sorted(self._backends))
            return Reason.UNKNOWN_BACKEND, f"metrics.backend must be one of {known}, got {name}"
        if not backend.config.serves(namespace):
            return Reason.UNKNOWN_BACKEND, f"backend {name} is not open to namespace {namespace}"
        return None

    def of(self, pool: ServingPool) -> FleetReading | Unknown:
        """What was read for this pool in this tick."""
        return self._latest[share(pool)]

    def gateway_queue(self, pool: ServingPool) -> Reading:
        """What waits for this pool before its engines, where its backend is told of a gateway."""
        reading = self._gateways.get(pool.spec.metrics.backend)
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
        return share(pool) in self._resting

    def answered(self, pool: ServingPool) -> bool:
        """Whether its backend did in this tick. One that does not now has its history asked for later."""
        return isinstance(self.of(pool), FleetReading)

    async def read(self, pools: Sequence[ServingPool], now: float) -> None:
        """Ask every backend for all its pools; whoever has waited longest for a turn comes first.

        A backend has one deadline in a tick for all that it is asked. One that is too slow for as many different labels
        as its pools have would else answer the same few for ever.
        """
        self._rounds += 1
        asked_for = {
            (name, *kind): request
            for name in self._backends
            for kind, request in requests_for(_on(pools, name)).items()
        }
        wanted = dict(sorted(asked_for.items(), key=lambda one: self._turns.get(one[0], 0)))
        gateways = sorted({asked[0] for asked in wanted if self._backends[asked[0]].config.gateway is not None})
        # The gateways first: each is one small query, for all pools.
        queues, answers = await asyncio.gather(
            asyncio.gather(*(sound(name, self._backends[name].gateway()) for name in gateways)),
            asyncio.gather(
                *(sound(asked[0], self._backends[asked[0]].read(ask, now)) for asked, ask in wanted.items())
            ),
        )
        self._latest = dict(zip(wanted, answers, strict=True))
        unasked = {one for one, answer in self._latest.items() if isinstance(answer, NotAsked)}
        self._turns = {one: self._turns.get(one, 0) if one in unasked else self._rounds for one in self._latest}
        self._answered = {one: at for one, at in self._answered.items() if one in self._latest} | {
            one: now for one, answer in self._latest.items() if isinstance(answer, FleetReading)
        }
        self._resting = {one for one in unasked if self._lasts(one, now)}
        self._gateways = dict(zip(gateways, queues, strict=True))
        self.queries = len(gateways) + sum(answer.queries for answer in answers if isinstance(answer, FleetReading))

    def _lasts(self, one: Share, now: float) -> bool:
        return one in self._answered and 0.0 <= now - self._answered[one] < self._backends[one[0]].config.staleness


async def sound(backend: str, answer: Coroutine[Any, Any, T]) -> T | Unknown:
    """The answer. A defect in reading one backend is unknown for its pools, and nothing to the others."""
    try:
        return await answer
    except Exception as defect:
        log.exception("reading backend %s failed", backend)
        return Unknown(f"Prometheus backend '{backend}' could not be read: {type(defect).__name__} in the operator")


def _on(pools: Sequence[ServingPool], backend: str) -> list[ServingPool]:
    return [pool for pool in pools if pool.spec.metrics.backend == backend]


def share(pool: ServingPool) -> Share:
    """Those with the same are read together."""
    return (pool.spec.metrics.backend, *share_of(pool))
