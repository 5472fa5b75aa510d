"""Reads the metrics of all pools: once per backend and kind of pool, however many pools there are."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from servingpool.adapters.prometheus import BackendConfig, FleetReading, GatewayReading, PodPages, ReadRequest
from servingpool.api.conditions import Reason
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.learn import observe
from servingpool.decision.observation import Gateway
from servingpool.decision.unknown import Unknown
from servingpool.reconcile.observing import apart, core_pool, past, requests_for, share_of
from servingpool.reconcile.state import PoolState

log = logging.getLogger(__name__)

HISTORY_STEP = 60.0
"""Seconds between two looks at the past: four scrapes of 15 s."""
HISTORY_ENDS = 15.0
"""Seconds ago: the live look that follows is then one of many, an interval after the last."""
HISTORY_POOLS = 50
"""Pools asked for at once: of 4 pods each, they have 12,000 pages in an hour (about 30 MB)."""
T = TypeVar("T")
Share = tuple[str, str, tuple[tuple[str, str], ...]]
"""Backend, engine and extra labels: what pools that are read together share."""


class Backend(Protocol):
    """What the loop needs of a Prometheus."""

    config: BackendConfig

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        """Every pod's page as last scraped."""

    async def history(
        self, request: ReadRequest, *, start: float, end: float, step: float, namespaces: Sequence[str]
    ) -> Sequence[tuple[float, PodPages]] | Unknown:
        """The pages of these namespaces as they were."""

    async def gateway(self) -> GatewayReading | Unknown:
        """What waits before the engines."""


class Readings:
    """The backends by name, and what they said in this tick."""

    def __init__(self, backends: Mapping[str, Backend], *, history: float) -> None:
        self._backends = backends
        self._history = history
        self._latest: dict[Share, FleetReading | Unknown] = {}
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
        return self._latest[_share(pool)]

    def gateway(self, pool: ServingPool) -> Gateway:
        """What waits for this pool before its engines, where its backend is told of a gateway."""
        reading = self._gateways.get(pool.spec.metrics.backend)
        if reading is None:
            return Gateway()
        if isinstance(reading, Unknown):
            return Gateway(queued=reading)
        return reading.select(pool.metadata.namespace, pool.spec.model)

    def answered(self, pool: ServingPool) -> bool:
        """Whether its backend did in this tick. One that does not now has its history asked for later."""
        return isinstance(self.of(pool), FleetReading)

    async def read(self, pools: Sequence[ServingPool], now: float) -> None:
        """Ask every backend for all its pools."""
        wanted = {
            (name, *share): request
            for name in self._backends
            for share, request in requests_for(_on(pools, name)).items()
        }
        gateways = sorted({share[0] for share in wanted if self._backends[share[0]].config.gateway is not None})
        answers, queues = await asyncio.gather(
            asyncio.gather(
                *(_sound(share[0], self._backends[share[0]].read(ask, now)) for share, ask in wanted.items())
            ),
            asyncio.gather(*(_sound(name, self._backends[name].gateway()) for name in gateways)),
        )
        self._latest = dict(zip(wanted, answers, strict=True))
        self._gateways = dict(zip(gateways, queues, strict=True))
        self.queries = len(gateways) + sum(answer.queries for answer in answers if isinstance(answer, FleetReading))

    async def warm(
        self, fresh: Sequence[tuple[ServingPool, PoolState]], every: Sequence[ServingPool], now: float
    ) -> None:
        """Teach pools seen for the first time what Prometheus remembers, before their first decision."""
        twins: Counter[tuple[Any, ...]] = Counter(
            (*_share(pool), pool.metadata.namespace, pool.spec.model) for pool in every
        )
        for name in self._backends:
            for share, request in requests_for(_on([pool for pool, _ in fresh], name)).items():
                members = [(p, s) for p, s in fresh if p.spec.metrics.backend == name and share_of(p) == share]
                for first in range(0, len(members), HISTORY_POOLS):
                    chunk = members[first : first + HISTORY_POOLS]
                    # By model too: one namespace may hold all pools, and each chunk would read the past of them all.
                    models = frozenset(pool.spec.model for pool, _ in chunk)
                    if not await self._warm_chunk(name, replace(request, models=models), chunk, twins, now):
                        break  # each further one would take the backend's whole timeout
        for _, state in fresh:
            state.warm = True

    async def _warm_chunk(
        self,
        name: str,
        request: ReadRequest,
        members: Sequence[tuple[ServingPool, PoolState]],
        twins: Mapping[tuple[Any, ...], int],
        now: float,
    ) -> bool:
        """Whether the backend answered."""
        if self._history < HISTORY_STEP:
            return True
        past_hour = self._backends[name].history(
            request,
            # A whole number of steps back, for the last step is the one that counts.
            start=now - HISTORY_ENDS - self._history // HISTORY_STEP * HISTORY_STEP,
            end=now - HISTORY_ENDS,
            step=HISTORY_STEP,
            namespaces=sorted({pool.metadata.namespace for pool, _ in members}),
        )
        history = await _sound(name, past_hour)
        if isinstance(history, Unknown):
            log.warning("no history for %d pools from backend %s: %s", len(members), name, history.reason)
            return False
        looked_at = apart(history)
        for pool, state in members:
            shared = twins[(*_share(pool), pool.metadata.namespace, pool.spec.model)] > 1
            own = looked_at.get((pool.metadata.namespace, pool.spec.model), ())
            try:
                looks = _teach(pool, state, own, shared=shared)
            except Exception:
                # A page that breaks us would end every tick for all pools, for it stays in the past for an hour.
                log.exception("the past of a pool could not be learned", extra={"pool": "/".join(pool.key)})
            else:
                log.info("warmed up from %d looks at the past", looks, extra={"pool": "/".join(pool.key)})
            await asyncio.sleep(0)
        return True


def _teach(pool: ServingPool, state: PoolState, history: Sequence[tuple[float, PodPages]], *, shared: bool) -> int:
    """Learn from the past, oldest first; how many looks there were."""
    core, memory, looks = core_pool(pool, in_charge=False), state.memory, 0
    kept = memory.profile
    for at, observation in past(pool, history, shared=shared):
        memory = observe(observation, core, memory, at)
        # What a kept profile has seen already fills the windows, and must not be learned twice.
        if at <= kept.at:
            memory = replace(memory, profile=kept)
        looks += 1
    # Needs of the last minutes are not in the history: nothing is removed before a window has filled anew.
    state.memory = replace(memory, since=None)
    return looks


async def _sound(backend: str, answer: Coroutine[Any, Any, T]) -> T | Unknown:
    """The answer. A defect in reading one backend is unknown for its pools, and nothing to the others."""
    try:
        return await answer
    except Exception as defect:
        log.exception("reading backend %s failed", backend)
        return Unknown(f"Prometheus backend '{backend}' could not be read: {type(defect).__name__} in the operator")


def _on(pools: Sequence[ServingPool], backend: str) -> list[ServingPool]:
    return [pool for pool in pools if pool.spec.metrics.backend == backend]


def _share(pool: ServingPool) -> Share:
    return (pool.spec.metrics.backend, *share_of(pool))
