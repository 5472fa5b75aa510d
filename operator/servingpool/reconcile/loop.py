"""The loop: every pool, every few seconds, backend by backend.

Each Prometheus is read by itself, and its pools are decided as soon as it has answered. A tick does not wait for those
that take longer than it may last: they go on at their own pace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace
from functools import partial

from pydantic import ValidationError

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import Key, Raw, Workload
from servingpool.api.conditions import ConditionType, Reason, Truth
from servingpool.api.serving_pool import Metadata, ServingPool, problems, readable_status
from servingpool.api.status import Status
from servingpool.decision.belief import stuck
from servingpool.decision.decide import decide
from servingpool.decision.decision import Decision, Verdict
from servingpool.reconcile.act import Actor
from servingpool.reconcile.backfill import Backfill, PendingPool
from servingpool.reconcile.collect import Readings
from servingpool.reconcile.observing import core_pool, observe
from servingpool.reconcile.preconditions import check, gpus_of, in_mode, owners, target_of
from servingpool.reconcile.rounds import Rounds
from servingpool.reconcile.snapshot import NO_POOLS, Snapshot, snapshot
from servingpool.reconcile.state import PoolState
from servingpool.reconcile.status_builder import blind, metrics_condition, scaled, status, still, with_ready

log = logging.getLogger(__name__)

REFUSALS = "(none)"
"""Stands for a backend, whose names have no brackets, where a pool has none that can be asked."""
WRITES_AT_ONCE = 16
LONGEST_ACTING = 30.0
"""Seconds for all writes of a tick. Where each one takes the API server's whole time-out, the next tick is due."""
WAITS = "nothing is decided before its past was read from Prometheus, pool after pool"
"""Of a new pool: behind hundreds of others that takes minutes."""
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

    def __add__(self, other: Tick) -> Tick:
        """Both together."""
        return Tick(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class ScaleAction:
    """What is to be done to a target."""

    pool: ServingPool
    decision: Decision
    target: Workload
    """As it was decided on."""
    wanted: bool
    """False where it is only told: nothing changes, or the pool may not be acted for."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What is to be done for one pool."""

    meta: Metadata
    state: PoolState
    status: Status
    order: ScaleAction | None = None


class Reconciler:
    """Looks at all pools, decides and acts. Nothing here knows a vendor or reads a clock."""

    def __init__(
        self,
        cache: ClusterCache,
        readings: Readings,
        backfill: Backfill,
        actor: Actor,
        *,
        leading: Callable[[], bool],
        interval: float,
    ) -> None:
        self._cache, self._readings, self._actor, self._leading = cache, readings, actor, leading
        self._backfill, self._interval = backfill, interval
        self._rounds: Rounds[Tick] = Rounds()
        """By backend; of `REFUSALS` for pools that no backend can be asked for."""
        self._gate = asyncio.Semaphore(WRITES_AT_ONCE)
        self._acting = 0
        """Rounds that write."""
        self.states: dict[Key, PoolState] = {}
        self.snapshot: Snapshot = NO_POOLS
        """The pools as of the end of the last tick, for other threads: replaced as a whole, never changed."""
        self._parsed: dict[Key, tuple[str, ServingPool | str]] = {}
        """By resourceVersion, the pool or what is wrong with it: most do not change between two ticks."""

    async def tick(self, now: float) -> Tick:
        """One turn over all pools. `now` is Unix time in seconds."""
        if not self._leading():
            # A follower keeps its watches warm and no more: reading and deciding everywhere would double the queries.
            self.snapshot = NO_POOLS  # what it holds is of a time when this one led
            return Tick(pools=len(self._cache.pools))
        readable: list[ServingPool] = []
        refused: list[tuple[Raw, tuple[Reason, str]]] = []
        for key, raw in self._cache.pools.items():
            pool = self._parse(key, raw)
            problem = (Reason.INVALID_SPEC, pool) if isinstance(pool, str) else self._readings.problem(pool)
            if problem is None and isinstance(pool, ServingPool):
                self._keep(pool, raw)
                readable.append(pool)
            elif problem is not None:
                refused.append((raw, problem))
        done = self._done()  # of rounds that took longer than the last tick
        self._gate = asyncio.Semaphore(WRITES_AT_ONCE)
        self._rounds.begin(REFUSALS, partial(self._refuse, refused, now))
        for backend in self._readings.backends:
            own = [pool for pool in readable if pool.spec.metrics.backend == backend]
            self._rounds.begin(backend, partial(self._round, backend, own, now))
        await self._rounds.wait(self._interval)
        if not self._acting:  # else marks would be taken back before the scale-down that they are for
            await self._actor.sweep(self._leading)
        self._forget()
        self.snapshot = snapshot(self.states)
        return Tick(pools=len(self._cache.pools)) + done + self._done()

    def _done(self) -> Tick:
        """What the rounds did that have ended. A defect in one does not affect the others."""
        done = Tick()
        for name, outcome in self._rounds.ended().items():
            if isinstance(outcome, Tick):
                done += outcome
            else:
                log.error("a round over the pools of backend '%s' failed, the others go on", name, exc_info=outcome)
                done += Tick(failed=1)
        return done

    async def _refuse(self, refused: list[tuple[Raw, tuple[Reason, str]]], now: float) -> Tick:
        done = await self._act([self._refusal(raw, problem, now) for raw, problem in refused], now)
        return Tick(failed=_failures(done))

    async def _round(self, backend: str, own: list[ServingPool], now: float) -> Tick:
        """Read one backend, decide and act for its pools."""
        queries = await self._readings.read(backend, own, now)
        if not self._leading():
            return Tick(queries=queries)
        # At the start nobody waits for a decision meanwhile; later, whoever is warm goes first.
        starting = not any(self.states[pool.key].backfilled for pool in own if self._stands(pool.metadata))
        if starting:
            await self._warm(backend, own, now)
        decided, failed = await self._plans(own, now)
        done = await self._act(decided, now)
        if not starting:
            await self._warm(backend, own, now)
        return Tick(
            decided=sum(turn.order is not None for turn in decided),
            scaled=sum(outcome is True for outcome in done),
            failed=failed + _failures(done),
            queries=queries,
        )

    async def stop(self) -> None:
        """End what is under way, and write what was learned since the last write, for who comes next."""
        await self._rounds.cancel()
        if self._leading():
            gate = asyncio.Semaphore(WRITES_AT_ONCE)
            states = [state for state in self.states.values() if state.pool is not None]
            await asyncio.gather(*(self._save(state, gate) for state in states), return_exceptions=True)

    async def _plans(self, own: list[ServingPool], now: float) -> tuple[list[PoolPlan], int]:
        # Reading takes seconds, in which pools are deleted.
        owned = owners(self._cache.pools.values())
        turns, failed = [], 0
        for count, pool in enumerate(own):
            if count % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
            # One that was changed meanwhile is not judged by what it said before.
            if self._readings.rests(pool) or not self._stands(pool.metadata):
                continue
            raw = self._cache.pools[pool.key]
            if self._waits(pool):
                if not self.states[pool.key].status.conditions:
                    turns.append(self._refusal(raw, (Reason.READING_HISTORY, WAITS), now, Truth.UNKNOWN))
                continue
            try:
                turn = self._plan(pool, owned.get(pool.key, pool.key), now)
                turns.append(turn or self._refusal(raw, (Reason.TARGET_NOT_FOUND, _no_target(pool)), now))
            except Exception as error:
                failed += 1
                log.exception("deciding for a pool failed, the others go on", extra=_pool(pool.metadata))
                turns.append(self._refusal(raw, (Reason.INTERNAL_ERROR, _defect(error)), now))
        return turns, failed

    def _plan(self, pool: ServingPool, owner: Key, now: float) -> PoolPlan | None:
        """Observe and decide. None where there is no target to decide on."""
        state = self.states[pool.key]
        workload = self._cache.workload(target_of(pool))
        if workload is None:
            return None
        reading, queue = self._readings.of(pool), self._readings.gateway_queue(pool)
        observation, selection = observe(pool, workload, self._cache, reading, queue, now)
        state.drift = state.drift.see(workload, now)
        if state.scale_outcome_unknown is not None and state.drift.carried_out(workload):
            state.scaled_at, state.scale_outcome_unknown = state.scale_outcome_unknown, None
        core = core_pool(pool, in_charge=False)
        nodeless = stuck(observation, state.memory, core)
        auto = check(pool, workload, self._cache, owner, observation, nodeless, state.drift.problem)
        conduct = in_mode(pool.spec.mode, auto)
        if not conduct.act:
            state.drift = state.drift.rest()
        outcome = decide(observation, replace(core, in_charge=conduct.act), state.memory, now)
        state.pool, state.decision, state.observation = pool, outcome.decision, observation
        if state.backfilled:
            # Before that it looked at nothing, and such a look is later than all that history will teach.
            state.memory = outcome.memory
        state.gpus = gpus_of(pool, workload)
        told = status(
            pool,
            state.status,
            workload,
            conduct,
            metrics_condition(observation, selection, outcome.memory),
            outcome.decision,
            state.memory,
            observation,
        )
        if state.scaled_at is not None:
            told = scaled(told, workload.replicas, state.scaled_at)
        wanted = conduct.act and outcome.decision.verdict is not Verdict.HOLD
        order = ScaleAction(pool, outcome.decision, workload, wanted=wanted)
        return PoolPlan(pool.metadata, state, told, order)

    def _refusal(self, raw: Raw, problem: tuple[Reason, str], now: float, truth: Truth = Truth.FALSE) -> PoolPlan:
        """Tell why nothing can be decided. The workload stays as it is."""
        meta = Metadata.read(raw["metadata"])
        state = self.states.get(meta.key)
        if state is None or state.uid != meta.uid:
            state = self.states[meta.key] = PoolState(meta.uid, model="", status=readable_status(raw.get("status")))
            state.status_write_unknown = _unreadable(state.status, raw)
        state.decision = state.observation = None  # figures of a time when it could be decided are none of now
        return PoolPlan(meta, state, with_ready(meta, blind(meta, state.status, problem, now), problem, now, truth))

    async def _act(self, turns: list[PoolPlan], now: float) -> list[bool | BaseException]:
        """Carry out every turn. For each, whether replicas were changed, or what went wrong."""
        gate = self._gate
        until = asyncio.get_running_loop().time() + LONGEST_ACTING
        for turn in turns:
            turn.state.conditions = turn.status.conditions
        # Who lacks replicas does not wait until the victims of others are marked.
        turns = sorted(turns, key=lambda turn: not _grows(turn.order))
        self._acting += 1
        try:
            done = await asyncio.gather(
                *(self._carry_out(turn, gate, until, now) for turn in turns), return_exceptions=True
            )
        finally:
            self._acting -= 1
        for turn, outcome in zip(turns, done, strict=True):
            if isinstance(outcome, BaseException):
                log.error("acting for a pool failed, the others go on", exc_info=outcome, extra=_pool(turn.meta))
        return done

    async def _carry_out(self, turn: PoolPlan, gate: asyncio.Semaphore, until: float, now: float) -> bool:
        """Scale where it is to be, and tell. Whether replicas were changed."""
        async with gate:
            # Reading, and the writes before this one, take seconds: what was true then may not be now.
            if not self._leading() or not self._stands(turn.meta):
                return False
            # Begun past the end, its first request would be sent before it is cancelled.
            if asyncio.get_running_loop().time() < until:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        return await self._write(turn, now)
            log.warning("the API server is slow: this pool is left for the next tick", extra=_pool(turn.meta))
            return False

    async def _write(self, turn: PoolPlan, now: float) -> bool:
        told, done, order = turn.status, False, turn.order
        if order is not None and order.wanted:
            await self._actor.mark(order.pool, turn.state, order.decision.replicas)
            if not (self._leading() and self._stands(turn.meta)):
                return False  # marking took its time; who leads, or the next tick, takes the marks back
            done, failure = await self._actor.scale(order.pool, turn.state, order.decision, order.target, now)
            if not self._may_tell(turn):
                return done
            if done:
                await self._actor.announce(order.pool, turn.state, order.decision, order.target.replicas)
            if done and not turn.state.drift.answered:  # else the status would be written at every tick
                told = scaled(told, order.decision.replicas, now)
            elif failure is not None:
                told = with_ready(turn.meta, still(told, turn.state.status, ConditionType.READY), failure, now)
                turn.state.conditions = told.conditions
        before = turn.state.status
        if self._may_tell(turn) and await self._actor.tell(turn.meta, turn.state, told, now) and self._may_tell(turn):
            await self._actor.warn(turn.meta, turn.state, before, now)
        return done

    def _may_tell(self, turn: PoolPlan) -> bool:
        """Each write before may have taken seconds: another may lead by now, the pool be gone or made anew."""
        return self._leading() and self._is_there(turn.meta.key, turn.meta.uid)

    def _is_there(self, key: Key, uid: str) -> bool:
        raw = self._cache.pools.get(key)
        return raw is not None and raw["metadata"]["uid"] == uid

    def _stands(self, meta: Metadata) -> bool:
        """The pool is still there, and says what was decided on: a person may have paused it since."""
        return (
            meta.key in self.states
            and self._is_there(meta.key, meta.uid)
            and self._cache.pools[meta.key]["metadata"].get("generation") == meta.generation
        )

    async def _save(self, state: PoolState, gate: asyncio.Semaphore) -> None:
        async with gate:
            if state.pool is not None and self._is_there(state.pool.key, state.uid):
                await self._actor.save(state.pool.metadata, state)

    def _waits(self, pool: ServingPool) -> bool:
        """Whether a pool is to be taught from history before anything is decided for it."""
        return not self.states[pool.key].backfilled and self._readings.answered(pool)

    async def _warm(self, backend: str, pools: list[ServingPool], now: float) -> None:
        waiting = (pool for pool in pools if self._stands(pool.metadata) and self._waits(pool))
        fresh = [PendingPool(pool, self.states[pool.key], self._pods(pool)) for pool in waiting]
        if fresh:
            await self._backfill.warm(backend, fresh, now)

    def _pods(self, pool: ServingPool) -> int:
        workload = self._cache.workload(target_of(pool))
        return workload.replicas if workload is not None else 0

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

    def _keep(self, pool: ServingPool, raw: Raw) -> PoolState:
        """The pool's state; a new one for a pool, or a model, not seen before."""
        state = self.states.get(pool.key)
        if state is None or not state.is_of(pool):
            state, damage = PoolState.found(pool)
            if damage is not None:
                log.warning("the learned profile is dropped: %s", damage, extra=_pool(pool.metadata))
            state.status_write_unknown = _unreadable(state.status, raw)
            self.states[pool.key] = state
        return state

    def _forget(self) -> None:
        for key in self.states.keys() - self._cache.pools.keys():
            del self.states[key]
        for key in self._parsed.keys() - self._cache.pools.keys():
            del self._parsed[key]


def _unreadable(found: Status, raw: Raw) -> bool:
    """Something stands in the status that this version cannot read: all of it is to be written anew."""
    return found == Status() and bool(raw.get("status"))


def _failures(outcomes: Iterable[object]) -> int:
    return sum(isinstance(outcome, Exception) for outcome in outcomes)


def _grows(order: ScaleAction | None) -> bool:
    return order is not None and order.wanted and order.decision.replicas > order.target.replicas


def _no_target(pool: ServingPool) -> str:
    return f"Deployment {pool.spec.targets[0].name} does not exist in namespace {pool.metadata.namespace}"


def _defect(error: Exception) -> str:
    return f"the operator failed on this pool ({type(error).__name__}), its log says where; replicas stay as they are"


def _pool(meta: Metadata) -> dict[str, str]:
    return {"pool": "/".join(meta.key)}
