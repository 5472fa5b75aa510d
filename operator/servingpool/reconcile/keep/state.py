"""State of each pool between two ticks, and the states of all pools with their parsed specs.

Only this module changes a state: the stages of a tick call its methods, and read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from servingpool.adapters.cluster.objects import Key, Raw, TargetKey
from servingpool.api.conditions import Condition, Reason
from servingpool.api.serving_pool import Metadata, ServingPool, problems
from servingpool.api.spec import Mode
from servingpool.api.status import Status
from servingpool.decision.decision import Verdict
from servingpool.decision.learn.memory import Memory
from servingpool.reconcile.collect.targets import SeenTarget
from servingpool.reconcile.keep.history import History, Ready, Teller
from servingpool.reconcile.keep.kept_memory import NO_ROLE, KeptMemory
from servingpool.reconcile.keep.orders import Ledger, Order, Orders
from servingpool.reconcile.plan.pool_plan import PoolPlan

log = logging.getLogger(__name__)

RECOMMENDED_AGAIN_AFTER = 600.0
"""Seconds until the same recommendation is an event again, if the requested replicas agreed meanwhile."""


@dataclass(slots=True)
class PoolState:
    """State of a pool between two ticks. It is deleted when the pool is deleted."""

    uid: str
    """UID of the pool: a pool that is deleted and recreated starts anew."""
    kept: KeptMemory
    """The core's memory of the pool, with its model."""
    status: Status
    """The status as last written, or as found."""
    mode: Mode = Mode.AUTO
    """The mode as the spec has it, valid or not."""
    conditions: tuple[Condition, ...] = ()
    """Conditions as of the last tick, or as found at the start. They may not be written yet."""
    backfilled: bool = False
    """History was learned, or given up on."""
    failed_backfills: int = 0
    """Failed attempts to read history."""
    status_write_unknown: bool = False
    """A write of the status got no answer, so it may be applied or not."""
    written_at: float = 0.0
    """Unix time in seconds of the last write of status; at the start, of the decision that the status tells of. Else a
    restart would write every pool at once."""
    scaled_at: float | None = None
    """Unix time in seconds of the last scale that is reported; None if there was none since the start."""
    targets: dict[TargetKey, Ledger] = field(default_factory=dict)
    """The ledgers of its targets, as of the last tick."""
    history: History = field(default_factory=History)
    """Changes of the replicas of all targets."""
    recommended: tuple[int, ...] | None = None
    """Replicas, of each target where there are several, that an event of mode Recommend named last; None in others."""
    recommended_at: float = -RECOMMENDED_AGAIN_AFTER
    """Unix time in seconds of that event."""
    agreed: bool = False
    """Whether the requested replicas have been the recommended ones since `recommended_at`."""
    warned: dict[str, float] = field(default_factory=dict)
    """Unix time in seconds of the last warning event, by reason."""
    pool: ServingPool | None = None
    """As last decided on."""
    plan: PoolPlan | None = None
    """The last one; None where nothing could be decided since."""

    @classmethod
    def found(cls, pool: ServingPool, status: Status) -> PoolState:
        """The state of a pool seen for the first time, resumed from its status."""
        state = cls.of_status(pool.metadata, pool.spec.model, status)
        if any(one.reason == Reason.RECOMMENDING for one in state.conditions):
            desired, replicas = status.desired_replicas, status.replicas
            state.recommended = None if desired is None or desired == replicas else (desired,)
        kept = status.profile
        if kept is not None:
            try:
                state.kept.resume(kept)
            except ValueError as damage:
                log.warning("The learned profile is discarded: %s", damage, extra=pool.metadata.log_fields)
        return state

    @classmethod
    def of_status(cls, meta: Metadata, model: str, status: Status) -> PoolState:
        """The state of a pool of which only the status is known."""
        history = History.of_status(status)
        kept, last = KeptMemory(model), status.last_decision
        state = cls(uid=meta.uid, kept=kept, status=status, status_write_unknown=status.unread, history=history)
        state.conditions, state.written_at = status.conditions, 0.0 if last is None else last.at.timestamp()
        return state

    # What history taught.

    @property
    def memory(self) -> Memory:
        """The core's memory of a pool without roles."""
        return self.kept.memories[NO_ROLE]

    def taught(self, memory: Memory) -> None:
        """History was learned."""
        self.kept.memories[NO_ROLE] = memory

    def history_failed(self) -> None:
        """The backend did not give the history that was asked for."""
        self.failed_backfills += 1

    def backfill_ended(self) -> None:
        """History was learned, or reading it was given up."""
        self.backfilled = True

    # What a tick collected and decided.

    def targets_seen(
        self, targets: Sequence[SeenTarget], orders: Orders, ready: Ready, now: float, *, scales: bool
    ) -> None:
        """The targets as they are now: they show whether others set their replicas, and whether an order was done.

        `scales`: no other pool scales one of them.
        """
        seen = [(target.workload, orders.see(target.workload, now)) for target in targets]
        self.targets = {workload.key: ledger for workload, ledger in seen}  # those that left the spec are forgotten
        found = [ledger.order for ledger in self.targets.values() if self.history.added(ledger)]
        late = (order.at for order in found if order is not None and order.pool == self.uid)
        self.scaled_at = max(late, default=self.scaled_at)
        teller = Teller(self.uid, None if self.plan is None else self.plan.decision.replicas, scales)
        self.history = self.history.see(seen, ready, now, teller=teller, keep=self.drift is None)

    @property
    def drift(self) -> str | None:
        """Program that keeps resetting the replicas of a target; None where nobody does."""
        for key, one in self.targets.items():
            if one.contest.problem is not None:
                return one.contest.problem if len(self.targets) == 1 else f"{key}: {one.contest.problem}"
        return None

    def decided(self, plan: PoolPlan) -> None:
        """A decision was made."""
        if not plan.permission.act:
            for target in plan.seen.targets:
                if target.owner == plan.meta.key:
                    self.targets[target.workload.key].rest()
        self.pool, self.plan = plan.seen.pool, plan
        self.kept.learn({stage.role: stage.kept for stage in plan.stages})

    def refused(self) -> None:
        """Nothing can be decided, so the last figures are no longer valid."""
        self.plan = None

    # What acting did.

    def order_done(self, ledger: Ledger, order: Order) -> bool:
        """The API server has set the replicas of a target. Whether that is worth telling."""
        before = self.history
        # Else a contest would write the status at every tick.
        self.history = before.done(ledger.uid, order, keep=not ledger.contest.answered(order.at))
        ledger.done(order)
        told = self.history.changes is not before.changes
        if told:
            self.scaled_at = order.at
        return told

    # What is reported.

    def recommends(self, plan: PoolPlan) -> bool:
        """Whether a recommendation is new: of mode Recommend, and another than the last."""
        decision, before = plan.decision, self.recommended
        named = tuple(part.replicas for part in decision.parts)
        if plan.seen.pool.spec.mode is not Mode.RECOMMEND:
            self.recommended = None
            return False
        if decision.verdict is Verdict.HOLD:
            self.agreed = True
            return False
        again = self.agreed and plan.at - self.recommended_at >= RECOMMENDED_AGAIN_AFTER
        if named == before and not again:
            return False
        self.recommended, self.recommended_at, self.agreed = named, plan.at, False
        return True

    def judged(self, conditions: Sequence[Condition]) -> None:
        """The conditions as of this tick, whether they can be written or not."""
        self.conditions = tuple(conditions)

    def profile_due(self, now: float) -> bool:
        """Whether the learned profile is to be written."""
        return self.kept.due(now, settled=self.plan is not None and not self.plan.decision.calibrating)

    def status_write_begun(self) -> bool:
        """A write of the status is sent. Returns whether the stored status was unknown before."""
        before, self.status_write_unknown = self.status_write_unknown, True
        return before

    def status_write_ended(self, *, unknown: bool) -> None:
        """The write has ended; `unknown`: it got no answer."""
        self.status_write_unknown = unknown

    def status_written(self, status: Status, now: float, *, with_profile: bool) -> None:
        """The API server has this status."""
        self.status, self.status_write_unknown, self.written_at = status, False, now
        if with_profile:
            self.kept.profile_written(now)

    def warned_of(self, reason: str, now: float) -> None:
        """A warning event is posted."""
        self.warned[reason] = now


class PoolStates(dict[Key, PoolState]):
    """The states of all pools by namespace and name, and their specs as parsed last."""

    def __init__(self, pools: Mapping[Key, Raw]) -> None:
        """States of the `pools` that exist, as the watches show them."""
        super().__init__()
        self._pools = pools
        self._parsed: dict[Key, tuple[tuple[object, ...], ServingPool | str]] = {}
        """The pool, or its errors, by what changes with the spec and with a deletion."""

    def parse(self, key: Key, raw: Raw) -> ServingPool | str:
        """The pool without its status, or the errors of its spec. The status is read once, when a state begins."""
        metadata = raw["metadata"]
        version = tuple(metadata.get(name) for name in ("uid", "generation", "deletionTimestamp"))
        held = self._parsed.get(key)
        if held is not None and held[0] == version:
            return held[1]
        try:
            pool: ServingPool | str = ServingPool.read({part: value for part, value in raw.items() if part != "status"})
        except ValidationError as error:
            pool = problems(error)
        self._parsed[key] = (version, pool)
        return pool

    def keep(self, pool: ServingPool, status: object) -> None:
        """Begin a state for a pool, or a model, not seen before, from the `status` in its manifest."""
        state = self.get(pool.key)
        if state is None or (state.uid, state.kept.model) != (pool.metadata.uid, pool.spec.model):
            former, state = state, PoolState.found(pool, Status.found(status))
            self[pool.key] = state
            if former is not None and former.uid == state.uid:
                state.kept.keep_starts(former.kept)
        state.mode = pool.spec.mode
        if pool.spec.several:
            # What Prometheus has of the past does not tell which target a pod was of, and so not how fast each is.
            state.backfill_ended()

    def of_refused(self, raw: Raw) -> tuple[Metadata, PoolState]:
        """The state of a pool for which nothing can be decided, perhaps not even its spec be read."""
        meta = Metadata.read(raw["metadata"])
        state = self.get(meta.key)
        if state is None or state.uid != meta.uid:
            state = self[meta.key] = PoolState.of_status(meta, "", Status.found(raw.get("status")))
        state.mode = Mode.found(raw.get("spec"))
        state.refused()
        return meta, state

    def exists(self, meta: Metadata) -> bool:
        """Whether the pool still exists, changed or not."""
        raw = self._pools.get(meta.key)
        return raw is not None and raw["metadata"]["uid"] == meta.uid

    def unchanged(self, meta: Metadata) -> bool:
        """Whether the pool exists and its spec is the decided one: a person may have paused it since."""
        generation = self._pools[meta.key]["metadata"].get("generation") if self.exists(meta) else None
        return meta.key in self and generation == meta.generation

    def forget(self, moved: Callable[[Key], bool]) -> None:
        """Keep only states of pools that exist, and that no other operator may have written for."""
        for key in [key for key in self if key not in self._pools or moved(key)]:
            del self[key]
        for key in [key for key in self._parsed if key not in self._pools or moved(key)]:
            del self._parsed[key]
