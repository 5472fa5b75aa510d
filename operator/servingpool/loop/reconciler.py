"""The loop: every pool, every few seconds, backend by backend.

A tick is a line of steps, each with one frozen result: `collect` what Prometheus and the cluster show, `plan`
decides, `act` scales, `status` reports. `keep` holds what the next tick needs.

Each Prometheus is read separately, and its pools are decided as soon as it has answered. A tick does not wait for a
Prometheus that takes longer than the interval: its round continues at its own pace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from servingpool.adapters.cluster.fair_order import in_turns
from servingpool.adapters.cluster.objects import Key, Raw, TargetKey
from servingpool.adapters.cluster.scale import Fault, TargetReader
from servingpool.api.conditions import Reason
from servingpool.api.group import KIND
from servingpool.api.mode import Mode
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.status import Status
from servingpool.gpubudget.budgets import Shared
from servingpool.gpubudget.members import Groups, Subject, named_versions
from servingpool.gpubudget.report import BudgetReporter
from servingpool.loop.backfill import Backfill, PendingPool
from servingpool.loop.metrics import NO_POOLS, Snapshot, snapshot
from servingpool.reconcile.act import NOT_SCALED, Actor, ScaleOutcome
from servingpool.reconcile.collect.collected import collect
from servingpool.reconcile.collect.readings import Readings
from servingpool.reconcile.collect.targets import Owners, keys_of, owns, target_of, told_by_name
from servingpool.reconcile.config import Price
from servingpool.reconcile.keep.history import Ready
from servingpool.reconcile.keep.state import PoolState, PoolStates
from servingpool.reconcile.plan.pool_plan import Planned, PoolPlan, Refusal, plan_pool
from servingpool.reconcile.plan.preconditions import no_target, owners
from servingpool.status.builder import build
from servingpool.status.report import Reporter

log = logging.getLogger(__name__)

REFUSALS = "(none)"
"""Round of the pools that no backend can be asked for. Names of backends have no brackets."""
BUDGETS = "(budgets)"
"""Round that reads claims and reports budgets."""
T = TypeVar("T")
NO_BUDGETS: Mapping[str, Shared] = MappingProxyType({})
NO_PRICES: Mapping[str, Price] = MappingProxyType({})
WRITES_AT_ONCE = 16
LONGEST_ACTING = 30.0
"""Seconds for all writes of a tick."""
LEAST_ACTING = 3.0
"""Seconds in which writes begin, however long reading took."""
ROUND = 0.8
"""Share of the interval after which no further pool's writes begin: the next round would begin late, for all."""
LOOKS = 1.0
"""Seconds between two looks at which pools are ours."""
YIELD_EVERY = 20
"""Pools between two turns of the event loop, so that the watches and the lease are served (about 30 ms)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Counts of one tick."""

    pools: int = 0
    owned: int = 0
    """Pools that this operator writes for."""
    decided: int = 0
    scaled: int = 0
    failed: int = 0
    """Pools whose turn ended in an exception: a defect of ours, logged with its traceback."""
    queries: int = 0
    unreadable: int = 0
    """Rows of Prometheus' answers that were left out."""

    def __add__(self, other: Tick) -> Tick:
        """The sums of both."""
        return Tick(*(getattr(self, count) + getattr(other, count) for count in self.__slots__))


Due = tuple[PoolState, Planned]
"""A pool's state, with its plan."""


class Share(Protocol):
    """What this operator writes for. Its answers may change with each `await`."""

    name: str | None
    """The operator's name in the status of its pools; None where no pool needs to tell."""

    @property
    def any(self) -> bool:
        """Whether we may write for anything now."""

    def owns(self, subject: Subject) -> bool:
        """Whether we may begin a write for it now."""

    def moved(self, subject: Subject) -> bool:
        """Whether another operator may have written for it, so that what we know of it is out of date."""

    def look(self, groups: Callable[[], Groups]) -> None:
        """`groups` are those of our caches. It comes every LOOKS seconds, and not before our caches are full."""


class All:
    """All pools, or none: one operator leads."""

    name: str | None = None

    def __init__(self, leading: Callable[[], bool]) -> None:
        self._leading = leading

    @property
    def any(self) -> bool:
        """See `Share`, here and below."""
        return self._leading()

    def owns(self, _: Subject) -> bool:
        """All alike."""
        return self._leading()

    def moved(self, _: Subject) -> bool:
        """Whoever is replaced as leader exits."""
        return False

    def look(self, _: Callable[[], Groups]) -> None:
        """Groups do not matter."""


class Reconciler:
    """Collects, decides and acts for all pools. It knows no vendor and reads no clock."""

    def __init__(  # noqa: PLR0913, the parts of the loop
        self,
        targets: TargetReader,
        readings: Readings,
        backfill: Backfill,
        actor: Actor,
        reporter: Reporter,
        *,
        share: Share,
        interval: float,
        prices: Mapping[str, Price] = NO_PRICES,
        budgets: BudgetReporter,
    ) -> None:
        """`prices`: hosted prices by the name for `spec.compareTo`."""
        self._targets, self._cache = targets, targets.cache
        self._readings, self._backfill, self._share = readings, backfill, share
        self._actor, self._reporter, self._interval, self._prices = actor, reporter, interval, prices
        self._budgets, self._orders = budgets, budgets.budgets.orders
        self._rounds: Rounds[Tick] = Rounds()
        """Rounds by backend; under `REFUSALS` that of pools that no backend can be asked for."""
        self._gate = asyncio.Semaphore(WRITES_AT_ONCE)
        self._acting = 0
        """Rounds that write."""
        self._postponed: set[Key] = set()
        """Pools whose writes did not begin in their last round, for there was no time."""
        self._under_way: dict[Key, Due] = {}
        """Pools that are decided on in this tick, and not acted for yet."""
        self.states = PoolStates(self._cache.pools)
        self.snapshot: Snapshot = NO_POOLS
        """The pools as of the end of the last tick, for other threads: replaced as a whole, never changed."""
        self.shared: Mapping[str, Shared] = NO_BUDGETS
        """Budgets as shared last, by name."""

    def look(self) -> None:
        """See which pools are ours, also between ticks: their writes last longer than a change may go unseen."""
        self._share.look(self._budgets.budgets.membership.groups)

    async def tick(self, now: float) -> Tick:
        """Run a tick over all pools. `now` is Unix time in seconds."""
        self.look()
        if not self._share.any:
            # A follower only watches: reading and deciding on every operator would double the queries.
            self.snapshot, self.shared = NO_POOLS, NO_BUDGETS  # the old ones date from when this operator led
            return Tick(pools=len(self._cache.pools))
        self.forget_moved()
        ours = [(key, raw) for key, raw in self._cache.pools.items() if self._share.owns(key)]
        self._reporter.rate.begin(now, self._interval, {key for key, _ in ours}, of=len(self._cache.pools))
        readable: list[ServingPool] = []
        unreadable: list[tuple[Raw, tuple[Reason, str]]] = []
        async for key, raw in _giving_way(ours):
            pool = self.states.parse(key, raw)
            overlong = self._cache.left_out.why(KIND, key)
            pool = pool if overlong is None else overlong
            problem = Reason.INVALID_SPEC.said(problems=pool) if isinstance(pool, str) else self._readings.problem(pool)
            if problem is None and isinstance(pool, ServingPool):
                self.states.keep(pool, raw.get("status"))
                readable.append(pool)
            elif problem is not None:
                unreadable.append((raw, problem))
        done = self._done()  # of rounds that took longer than the last tick
        # With thousands of pools each part takes long: the event loop has a turn between them.
        await asyncio.sleep(0)
        wanted = self._wanted(readable)
        await asyncio.sleep(0)
        counted = named_versions(raw for raw, _ in unreadable) if self._cache.budgets else {}
        counted = {key: version for key, version in counted.items() if key not in wanted}
        self._targets.forget({**wanted, **counted})
        if not self._acting:  # a semaphore belongs to the event loop that waits at it
            self._gate = asyncio.Semaphore(WRITES_AT_ONCE)
        self._rounds.begin(REFUSALS, partial(self._refuse_all, unreadable, counted, now))
        self._rounds.begin(BUDGETS, partial(self._budget_round, now))
        for backend in self._readings.backends:
            own = [pool for pool in readable if pool.spec.metrics.backend == backend]
            self._rounds.begin(backend, partial(self._round, backend, own, wanted, now))
        await self._rounds.wait(self._interval)
        if not self._acting:  # else marks would be removed before their scale-down
            await self._actor.sweep(self._share.owns)
        self.states.forget(self._share.moved)
        self._orders.forget(partial(named_versions, self._cache.pools.values()))
        self._postponed &= self._cache.pools.keys()
        self._judge_rest(tuple(self._under_way))
        self._budgets.budgets.settle(now, self._share.moved)
        self.snapshot, self.shared = snapshot(self.states), MappingProxyType(dict(self._budgets.budgets.latest))
        owned = len(readable) + len(unreadable)
        return Tick(pools=len(self._cache.pools), owned=owned) + done + self._done()

    async def stop(self) -> None:
        """Cancel rounds under way, and write what was learned since the last write, for the next leader."""
        await self._rounds.cancel()
        if self._share.any:
            self._gate = asyncio.Semaphore(WRITES_AT_ONCE)
            # The oldest first, for the process may be ended before all are written.
            oldest = sorted(self.states.values(), key=lambda state: state.kept.written_at)
            await asyncio.gather(*map(self._save, oldest), return_exceptions=True)

    def forget_moved(self) -> None:
        """Forget the pools and budgets that others may write for: if they come back, it is as after a restart."""
        self.states.forget(self._share.moved)
        self._budgets.forget(self._share.moved)

    def _done(self) -> Tick:
        """Results of the rounds that have ended. A defect in one round does not affect the others."""
        done = Tick()
        for name, outcome in self._rounds.ended().items():
            if isinstance(outcome, Tick):
                done += outcome
            else:
                log.error("A round over the pools of backend '%s' failed; others continue.", name, exc_info=outcome)
                done += Tick(failed=1)
        return done

    async def _refuse_all(
        self, unreadable: list[tuple[Raw, tuple[Reason, str]]], counted: Mapping[TargetKey, str], now: float
    ) -> Tick:
        """Say what is wrong with these pools, and read their targets, whose GPUs budgets count."""
        begin_by = self._begin_by()
        done = await self._carry_out([self._refuse(raw, *problem, now) for raw, problem in unreadable], begin_by)
        await self._targets.read(counted)
        return Tick(failed=_failures(done))

    async def _budget_round(self, now: float) -> Tick:
        """Read what claims ask for, and say what the last tick made of the budgets."""
        await self._budgets.report(now, self._share.owns)
        return Tick()

    def _wanted(self, pools: Sequence[ServingPool]) -> Mapping[TargetKey, str]:
        """The targets, each in the API version that its owner names: others may name a version that is gone."""
        owned = owners(self._cache.pools)
        found: dict[TargetKey, str] = {}
        of_owners: dict[TargetKey, str] = {}
        for pool in pools:
            own = {} if pool.spec.mode is Mode.RECOMMEND else owned.get(pool.key, {})
            for key, target in zip(keys_of(pool), pool.spec.targets, strict=True):
                (of_owners if own.get(key) == pool.key else found)[key] = target.api_version
        return found | of_owners

    async def _round(self, backend: str, own: list[ServingPool], wanted: Mapping[TargetKey, str], now: float) -> Tick:
        """Read one backend, decide and act for its pools."""
        begin_by = self._begin_by()
        targets = {key: wanted[key] for pool in own for key in keys_of(pool)}
        await asyncio.sleep(0)
        there = list(filter(self._there, own))
        await asyncio.sleep(0)
        (queries, unreadable), _ = await asyncio.gather(
            self._readings.read(backend, there, now), self._targets.read(targets)
        )
        if not self._share.any:
            return Tick(queries=queries, unreadable=unreadable)
        # At the start no pool waits for a decision meanwhile; later, pools with history go first.
        starting = not any(self._begun(pool) for pool in own if self.states.unchanged(pool.metadata))
        if starting:
            await self._teach(backend, own, now)
        due, failed = await self._decide(own, now)
        done = await self._carry_out(due, begin_by)
        if not starting:
            # At once: a pool that has moved here was without a decision for half a minute already.
            taught, failures = await self._decide(await self._teach(backend, own, now), now)
            due, failed = due + taught, failed + failures
            done += await self._carry_out(taught, begin_by)
        return Tick(
            decided=sum(isinstance(each, PoolPlan) for _, each in due),
            scaled=sum(outcome is True for outcome in done),
            failed=failed + _failures(done),
            queries=queries,
            unreadable=unreadable,
        )

    async def _decide(self, own: list[ServingPool], now: float) -> tuple[list[Due], int]:
        """Plans of these pools; and the number of pools for which deciding failed."""
        # Reading takes seconds, in which pools are deleted.
        owned = owners(self._cache.pools)
        due: list[Due] = []
        failed = 0
        async for pool in _giving_way(own):
            # A pool that was changed meanwhile is decided at the next tick.
            if self._readings.rests(pool) or not self.states.unchanged(pool.metadata):
                continue
            raw = self._cache.pools[pool.key]
            if self._waits(pool):
                if not self.states[pool.key].status.conditions:
                    due.append(self._refuse(raw, *Reason.READING_HISTORY.said(), now))
                continue
            try:
                due.append(self._plan(pool, owned, now) or self._refuse(raw, *self._no_target(pool), now))
            except Exception as error:
                failed += 1
                log.exception("Deciding for this pool failed; others continue.", extra=pool.metadata.log_fields)
                message = Reason.INTERNAL_ERROR.message(error=type(error).__name__)
                due.append(self._refuse(raw, Reason.INTERNAL_ERROR, message, now))
        plans = [each for _, each in due if isinstance(each, PoolPlan)]
        cut = zip(plans, self._budgets.budgets.apply(plans, owned, now) if self._cache.budgets else plans, strict=True)
        message = Reason.INTERNAL_ERROR.message(error="sharing GPUs")
        judged: dict[Key, Planned] = {
            plan.meta.key: each or Refusal(plan.meta, now, Reason.INTERNAL_ERROR, message) for plan, each in cut
        }
        due = [(state, judged.get(each.meta.key, each)) for state, each in due]
        for state, each in due:
            if isinstance(each, PoolPlan):
                state.decided(each)
        return due, failed + sum(isinstance(each, Refusal) for each in judged.values())

    def _plan(self, pool: ServingPool, owned: Owners, now: float) -> Due | None:
        """Collect and decide. None where a target cannot be read."""
        state = self.states[pool.key]
        seen = collect(pool, owned.get(pool.key, {}), self._cache, self._readings, now)
        if seen is None:
            return None
        # A pool in Recommend owns nothing, also where it is the oldest.
        scales = owns(pool.key, owned) and pool.spec.mode is not Mode.RECOMMEND
        serving = [one.ready_for or 0.0 for one in seen.observation.ready]
        ready = Ready(len(serving), min(serving, default=0.0))
        state.targets_seen(seen.targets, self._orders, ready, now, scales=scales)
        seen = replace(seen, ours=state.history.ours(state.targets.values()))
        budgets, alike = self._budgets.budgets, [stage.targets for stage in seen.stages]
        room = budgets.room(pool.key, alike) if self._cache.budgets else {}
        # Only a batch asks: what it waits for must be its own.
        shared = pool.spec.batch is not None and bool(budgets.selecting(pool.key))
        return state, plan_pool(
            seen, state.drift, state.kept.memories, self._prices, backfilled=state.backfilled, room=room, shared=shared
        )

    def _there(self, pool: ServingPool) -> bool:
        """Whether the targets are not known to be wrong: a pool without a target needs no metrics."""
        missing = (key for key in keys_of(pool) if self._cache.workload(key) is None)
        return all(self._targets.fault(key).fault is Fault.FAILED for key in missing)

    def _no_target(self, pool: ServingPool) -> tuple[Reason, str]:
        """Why the first target that cannot be read cannot be."""
        targets = zip(keys_of(pool), pool.spec.targets, strict=True)
        key, target = next(each for each in targets if self._cache.workload(each[0]) is None)
        return no_target(target, key.namespace, self._targets.fault(key))

    def _refuse(self, raw: Raw, reason: Reason, message: str, now: float) -> Due:
        meta, state = self.states.of_refused(raw)
        return state, Refusal(meta, now, reason, message)

    def _begin_by(self) -> float:
        """Latest time, by the event loop's clock, at which the writes of a round that begins now may begin."""
        return asyncio.get_running_loop().time() + ROUND * self._interval

    async def _carry_out(self, due: list[Due], begin_by: float) -> list[bool | BaseException]:
        """Act and report for every pool. For each, whether replicas were changed, or what went wrong."""
        gate, begun = self._gate, asyncio.get_running_loop().time()
        until, begin_by = begun + LONGEST_ACTING, max(begin_by, begun + LEAST_ACTING)
        due = write_order(due, self._postponed)
        self._under_way.update((each.meta.key, (state, each)) for state, each in due)
        self._acting += 1
        try:
            done = await asyncio.gather(
                *(self._carry_out_one(state, each, gate, begin_by, until) for state, each in due),
                return_exceptions=True,
            )
        finally:
            self._acting -= 1
            self._judge_rest({each.meta.key for _, each in due})
        if late := sum(each.meta.key in self._postponed for _, each in due):
            log.warning("No time is left in this round: of %d pools %d are written at the next tick.", len(due), late)
        for (_, each), outcome in zip(due, done, strict=True):
            if isinstance(outcome, BaseException):
                log.error("Writes for a pool failed; others continue.", exc_info=outcome, extra=each.meta.log_fields)
        return done

    async def _carry_out_one(
        self, state: PoolState, due: Planned, gate: asyncio.Semaphore, begin_by: float, until: float
    ) -> bool:
        async with gate:
            if asyncio.get_running_loop().time() >= begin_by:
                self._postponed.add(due.meta.key)
                return False
            self._postponed.discard(due.meta.key)
            # Reading, and the writes before this one, take seconds: the pool may have changed.
            if not self._may_act(state, due.meta):
                return False
            # If begun after the deadline, its first request would be sent before it is cancelled.
            if asyncio.get_running_loop().time() < until:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        return await self._act_and_report(state, due)
            log.warning("The API server is slow; this pool is retried at the next tick.", extra=due.meta.log_fields)
            return False

    async def _act_and_report(self, state: PoolState, due: Planned) -> bool:
        """Write for one pool of a tick. Returns whether replicas were changed."""
        # Each write may take seconds: another may lead by now, the pool be gone or made anew.
        may_report = partial(self._may_report, state, due.meta)
        if isinstance(due, PoolPlan) and due.switches_off:
            told = state.history.order_zero(due.decision.reason, due.at)
            if not may_report() or not await self._reporter.foretell(due.meta, state, told, due.at):
                return False
        outcome = await self._act(due, state) if isinstance(due, PoolPlan) else NOT_SCALED
        if outcome is None:
            return False
        if isinstance(due, PoolPlan) and outcome.scaled and may_report():
            await self._reporter.announce(due, outcome, state)
        if isinstance(due, PoolPlan) and may_report():
            await self._reporter.recommend(due, state)
        status = self._judge(state, due, outcome)
        await self._reporter.tell(due.meta, state, status, due.at, may_report)
        return outcome.scaled

    async def _act(self, plan: PoolPlan, state: PoolState) -> ScaleOutcome | None:
        budgets, unchanged = self._budgets.budgets, partial(self._may_act, state, plan.meta)
        admitted = partial(budgets.admits, plan) if self._cache.budgets else lambda _: True
        try:
            return await self._actor.act(plan, state, unchanged, admitted)
        finally:
            for action in plan.actions:
                budgets.ended(action, plan.at)

    def _judge(self, state: PoolState, due: Planned, outcome: ScaleOutcome) -> Status:
        """The status of a pool as of this tick."""
        self._under_way.pop(due.meta.key, None)
        history = state.history.told(state.targets.values(), state.uid)
        # A condition that changed and is not written yet keeps the time of its change.
        held = state.status.model_copy(update={"conditions": state.conditions})
        told = build(due, outcome, held, state.scaled_at, history, self._share.name)
        state.judged(told.conditions)
        return told

    def _judge_rest(self, keys: Iterable[Key]) -> None:
        """Set the conditions of the pools among these that could not be acted for."""
        for state, due in [self._under_way[key] for key in keys if key in self._under_way]:
            self._judge(state, due, NOT_SCALED)

    async def _save(self, state: PoolState) -> None:
        async with self._gate:
            if state.pool is not None and self._may_report(state, state.pool.metadata):
                await self._reporter.save(state.pool.metadata, state)

    def _may_act(self, state: PoolState, meta: Metadata) -> bool:
        return self._is_ours(state, meta) and self.states.unchanged(meta)

    def _may_report(self, state: PoolState, meta: Metadata) -> bool:
        return self._is_ours(state, meta) and self.states.exists(meta)

    def _is_ours(self, state: PoolState, meta: Metadata) -> bool:
        # A pool that has moved away and back has another state.
        return self._share.owns(meta.key) and self.states.get(meta.key) is state

    def _waits(self, pool: ServingPool) -> bool:
        """Whether a pool needs its history before anything is decided for it."""
        return not self.states[pool.key].backfilled and self._readings.answered(pool)

    def _begun(self, pool: ServingPool) -> bool:
        """Whether a pool was or may be decided on before; one of several targets, which has no history, if it was."""
        state = self.states[pool.key]
        return state.backfilled and not (pool.spec.several and state.plan is None)

    async def _teach(self, backend: str, pools: list[ServingPool], now: float) -> list[ServingPool]:
        """Learn the history of the pools that need it. Those that can be decided on now."""
        waiting = [pool for pool in pools if self.states.unchanged(pool.metadata) and self._waits(pool)]
        if waiting:
            fresh = []
            for pool in waiting:
                state, workload = self.states[pool.key], self._cache.workload(target_of(pool))
                if workload is None or told_by_name(workload, self._cache.replicas(workload)):
                    fresh.append(PendingPool(pool, state, 0 if workload is None else workload.replicas))
                else:
                    state.backfill_ended()
            await self._backfill.run(backend, fresh, now)
        return [pool for pool in waiting if self.states.unchanged(pool.metadata) and not self._waits(pool)]


def write_order(due: Iterable[Due], postponed: Container[Key]) -> list[Due]:
    """The pools in the order of writes: namespaces in turn, so that scale-ups of one namespace delay no other.

    Within a namespace scale-ups precede deletion costs and status, and postponed writes precede new ones.
    """
    first = sorted(due, key=lambda each: (not each[1].grows, each[1].meta.key not in postponed))
    return in_turns(first, lambda each: each[1].meta.namespace)


async def _giving_way(items: Iterable[T]) -> AsyncIterator[T]:
    """The items. The event loop has a turn every YIELD_EVERY items."""
    for count, item in enumerate(items, 1):
        if count % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        yield item


def _failures(outcomes: Iterable[object]) -> int:
    return sum(isinstance(outcome, Exception) for outcome in outcomes)


class Rounds(Generic[T]):
    """Rounds by name. A slow round delays only the next round of its name."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[T]] = {}

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Begin a round, unless the last round of that name is under way or `ended` has not returned it."""
        if name not in self._under_way:
            self._under_way[name] = asyncio.create_task(work())

    async def wait(self, seconds: float) -> None:
        """Wait until all have ended, or this long."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)

    def ended(self) -> dict[str, T | BaseException]:
        """Results of the rounds that have ended since the last call, or the exception that ended them."""
        done = {name: task for name, task in self._under_way.items() if task.done()}
        self._under_way = {name: task for name, task in self._under_way.items() if name not in done}
        return {name: task.exception() or task.result() for name, task in done.items() if not task.cancelled()}

    async def cancel(self) -> None:
        """Cancel all rounds."""
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
