"""The loop: every pool, one after the other, every few seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import Key, Raw
from servingpool.api.conditions import Reason
from servingpool.api.serving_pool import Metadata, ServingPool, problems, readable_status
from servingpool.api.status import Status
from servingpool.decision.decide import decide
from servingpool.decision.decision import Decision, Verdict
from servingpool.reconcile.acting import Actor, stamped
from servingpool.reconcile.conduct import judge, owners, target_of
from servingpool.reconcile.observing import core_pool, observe
from servingpool.reconcile.reading import Readings
from servingpool.reconcile.state import PoolState
from servingpool.reconcile.telling import metrics_condition, status, with_ready

log = logging.getLogger(__name__)

WRITES_AT_ONCE = 16
WARMED_A_TICK = 200
"""Pools that are taught from history in one tick; the others hold until it is their turn."""
YIELD_EVERY = 20
"""Pools between two turns of the event loop, so that the watches and the lease are served (about 30 ms)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did."""

    pools: int = 0
    decided: int = 0
    scaled: int = 0
    failed: int = 0
    """Pools whose turn ended in an exception: a defect of ours, logged with its traceback."""
    queries: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be done for one pool."""

    pool: ServingPool
    state: PoolState
    decision: Decision
    status: Status
    current: int
    act: bool


class Reconciler:
    """Looks at all pools, decides and acts. Nothing here knows a vendor or reads a clock."""

    def __init__(self, cache: ClusterCache, readings: Readings, actor: Actor, *, leading: Callable[[], bool]) -> None:
        self._cache, self._readings, self._actor, self._leading = cache, readings, actor, leading
        self.states: dict[Key, PoolState] = {}
        self._parsed: dict[Key, tuple[str, ServingPool | str]] = {}
        """By resourceVersion, the pool or what is wrong with it: most do not change between two ticks."""

    async def tick(self, now: float) -> Tick:
        """One turn over all pools. `now` is Unix time in seconds."""
        if not self._leading():
            # A follower keeps its watches warm and no more: reading and deciding everywhere would double the queries.
            self.states.clear()
            return Tick(pools=len(self._cache.pools))
        self._forget()
        readable = []
        for key, raw in tuple(self._cache.pools.items()):
            pool = self._parse(key, raw)
            problem = (Reason.INVALID_SPEC, pool) if isinstance(pool, str) else self._readings.problem(pool)
            if problem is None and isinstance(pool, ServingPool):
                self._keep(pool)
                readable.append(pool)
            elif problem is not None:
                await self._refuse(raw, problem, now)
        await self._readings.read(readable, now)
        await self._warm(readable, now)
        turns, failed = await self._turns(readable, now)
        gate = asyncio.Semaphore(WRITES_AT_ONCE)
        done = await asyncio.gather(*(self._carry_out(turn, gate, now) for turn in turns), return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                failed += 1
                log.error("acting for a pool failed, the others go on", exc_info=outcome)
        return Tick(
            pools=len(self._cache.pools),
            decided=len(turns),
            scaled=sum(outcome is True for outcome in done),
            failed=failed,
            queries=self._readings.queries,
        )

    async def stop(self) -> None:
        """Write what was learned since the last write, for who comes next."""
        if self._leading():
            gate = asyncio.Semaphore(WRITES_AT_ONCE)
            states = [state for state in self.states.values() if state.pool is not None]
            await asyncio.gather(*(self._save(state, gate) for state in states))

    async def _turns(self, pools: list[ServingPool], now: float) -> tuple[list[Turn], int]:
        owned = owners([(self._cache.pools[pool.key]["metadata"]["creationTimestamp"], pool) for pool in pools])
        turns, failed = [], 0
        for count, pool in enumerate(pools):
            if count % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if not self.states[pool.key].warm:
                continue
            try:
                turn = self._turn(pool, owned.get(target_of(pool)), now)
            except Exception:
                failed += 1
                log.exception("deciding for a pool failed, the others go on", extra={"pool": "/".join(pool.key)})
                continue
            if turn is None:
                await self._refuse(self._cache.pools[pool.key], (Reason.TARGET_NOT_FOUND, _no_target(pool)), now)
            else:
                turns.append(turn)
        return turns, failed

    def _turn(self, pool: ServingPool, owner: Key | None, now: float) -> Turn | None:
        """Observe and decide. None where there is no target to decide on."""
        state = self.states[pool.key]
        conduct = judge(pool, self._cache, owner)
        if conduct.workload is None:
            return None
        observation, selection = observe(pool, conduct.workload, self._cache, self._readings.of(pool), now)
        outcome = decide(observation, core_pool(pool, in_charge=conduct.act), state.memory, now)
        state.pool, state.memory, state.decision, state.observation = (
            pool,
            outcome.memory,
            outcome.decision,
            observation,
        )
        state.gpus = pool.spec.targets[0].gpus_per_replica or conduct.workload.gpus
        told = status(
            pool,
            state.status,
            conduct,
            metrics_condition(observation, selection),
            outcome.decision,
            state.memory,
            observation,
        )
        return Turn(pool, state, outcome.decision, told, conduct.workload.replicas, conduct.act)

    async def _carry_out(self, turn: Turn, gate: asyncio.Semaphore, now: float) -> bool:
        """Scale where it is to be, and tell. Whether replicas were changed."""
        told, scaled = turn.status, False
        async with gate:
            if not self._leading():
                return False
            if turn.act and turn.decision.verdict is not Verdict.HOLD:
                scaled, failure = await self._actor.scale(turn.pool, turn.decision, turn.current)
                if scaled:
                    told = stamped(told, now)
                elif failure is not None:
                    told = with_ready(turn.pool.metadata, told, failure, now)
            await self._actor.tell(turn.pool.metadata, turn.state, told, now)
        return scaled

    async def _save(self, state: PoolState, gate: asyncio.Semaphore) -> None:
        async with gate:
            if state.pool is not None:
                await self._actor.save(state.pool.metadata, state)

    async def _refuse(self, raw: Raw, problem: tuple[Reason, str], now: float) -> None:
        """Tell why nothing can be decided. The workload stays as it is."""
        meta = Metadata.read(raw["metadata"])
        state = self.states.get(meta.key)
        if state is None:
            state = self.states[meta.key] = PoolState(meta.uid, model="", status=readable_status(raw.get("status")))
        await self._actor.tell(meta, state, with_ready(meta, state.status, problem, now), now)

    async def _warm(self, pools: list[ServingPool], now: float) -> None:
        fresh = [(pool, self.states[pool.key]) for pool in pools if not self.states[pool.key].warm][:WARMED_A_TICK]
        if fresh:
            await self._readings.warm(fresh, pools, now)

    def _parse(self, key: Key, raw: Raw) -> ServingPool | str:
        version = raw["metadata"].get("resourceVersion", "")
        held = self._parsed.get(key)
        if held is not None and held[0] == version:
            return held[1]
        try:
            pool: ServingPool | str = ServingPool.read(raw)
        except ValidationError as error:
            pool = problems(error)
        self._parsed[key] = (version, pool)
        return pool

    def _keep(self, pool: ServingPool) -> PoolState:
        """The pool's state; a new one for a pool, or a model, not seen before."""
        state = self.states.get(pool.key)
        if state is None or not state.is_of(pool):
            state, damage = PoolState.found(pool)
            if damage is not None:
                log.warning("the learned profile is dropped: %s", damage, extra={"pool": "/".join(pool.key)})
            self.states[pool.key] = state
        return state

    def _forget(self) -> None:
        for key in self.states.keys() - self._cache.pools.keys():
            del self.states[key]
        for key in self._parsed.keys() - self._cache.pools.keys():
            del self._parsed[key]


def _no_target(pool: ServingPool) -> str:
    return f"Deployment {pool.spec.targets[0].name} does not exist in namespace {pool.metadata.namespace}"
