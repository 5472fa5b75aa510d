"""What the loop keeps of each pool between two ticks.

Only this module changes it: the steps of a tick call its methods, and read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from servingpool.adapters.cluster.objects import TargetKey, Workload
from servingpool.api.conditions import Condition, Reason
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.spec import Mode
from servingpool.api.status import Status
from servingpool.decision.decision import Decision, Verdict
from servingpool.decision.observation import Observation
from servingpool.decision.state import Memory
from servingpool.reconcile.expense import Expense
from servingpool.reconcile.history import History
from servingpool.reconcile.kept_memory import NO_ROLE, KeptMemory
from servingpool.reconcile.pool_plan import PoolPlan, StagePlan
from servingpool.reconcile.target_state import TargetState
from servingpool.reconcile.targets import SeenTarget, together

log = logging.getLogger(__name__)

RECOMMENDED_AGAIN_AFTER = 600.0
"""Seconds until the same recommendation is an event again, if what stood was right meanwhile."""


@dataclass(slots=True)
class PoolState:
    """One pool. It goes when the pool does."""

    uid: str
    """Of the pool: a pool that is deleted and recreated starts anew."""
    kept: KeptMemory
    """What the core knows of the pool and its model."""
    status: Status
    """As last written, or as found."""
    conditions: tuple[Condition, ...] = ()
    """As of the last tick, or as found at the start. They may not be written yet."""
    backfilled: bool = False
    """History was learned, or given up on."""
    failed_backfills: int = 0
    """Failed attempts to read history."""
    status_write_unknown: bool = False
    """A write of the status got no answer, so it may be applied or not."""
    written_at: float = 0.0
    """Unix time in seconds of the last write of status."""
    scaled_at: float | None = None
    """Likewise, of the last scale that is reported; None if there was none since the start."""
    targets: dict[TargetKey, TargetState] = field(default_factory=dict)
    history: History = field(default_factory=History)
    """Of all targets together."""
    recommended: tuple[int, ...] | None = None
    """Replicas, of each target where there are several, that an event of mode Recommend named last; None in others."""
    recommended_at: float = -RECOMMENDED_AGAIN_AFTER
    """Unix time in seconds of that event."""
    agreed: bool = False
    """Since then, what stood was what was recommended."""
    warned: dict[str, float] = field(default_factory=dict)
    """Unix time in seconds of the last warning event, by reason."""
    pool: ServingPool | None = None
    decision: Decision | None = None
    observation: Observation | None = None
    stages: tuple[StagePlan, ...] = ()
    """What was last decided for each stage."""
    expense: Expense = field(default_factory=Expense)

    @classmethod
    def found(cls, pool: ServingPool) -> PoolState:
        """The state of a pool seen for the first time, resumed from its status."""
        state = cls.of_status(pool.metadata, pool.spec.model, pool.status)
        state.conditions = pool.status.conditions
        if any(one.reason == Reason.RECOMMENDING for one in state.conditions):
            desired, replicas = pool.status.desired_replicas, pool.status.replicas
            state.recommended = None if desired is None or desired == replicas else (desired,)
        kept = pool.status.profile
        if kept is not None:
            try:
                state.kept.resume(kept)
            except ValueError as damage:
                log.warning("The learned profile is discarded: %s", damage, extra=pool.metadata.log_fields)
        return state

    @classmethod
    def of_status(cls, meta: Metadata, model: str, status: Status) -> PoolState:
        """The state of a pool of which only the status is known."""
        history = History.found(status)
        kept = KeptMemory(model)
        return cls(uid=meta.uid, kept=kept, status=status, status_write_unknown=status.unread, history=history)

    def is_of(self, pool: ServingPool) -> bool:
        """Whether this state belongs to this pool and model."""
        return (self.uid, self.kept.model) == (pool.metadata.uid, pool.spec.model)

    # What history taught.

    @property
    def memory(self) -> Memory:
        """What the core knows of a pool without roles."""
        return self.kept.memories[NO_ROLE]

    def taught(self, memory: Memory) -> None:
        """History was learned."""
        self.kept.taught(memory)

    def history_failed(self) -> None:
        """The backend did not give the history that was asked for."""
        self.failed_backfills += 1

    def backfill_ended(self) -> None:
        """History was learned, or reading it was given up."""
        self.backfilled = True

    # What a tick collected and decided.

    def targets_seen(self, targets: Sequence[SeenTarget], ready: int, now: float, *, scales: bool) -> None:
        """The targets as they are now: they show whether others set their replicas, and whether an order was done.

        `ready` replicas they have in all. `scales`: no other pool scales one of them.
        """
        workloads = [target.workload for target in targets]
        self.targets = {each.key: self._target(each) for each in workloads}  # those that left the spec are forgotten
        sent = [self.targets[each.key].seen(each, now) for each in workloads]
        wanted = None if self.decision is None else self.decision.replicas
        self.history = self.history.see(
            together(workloads), ready, now, wanted=wanted, scales=scales, keep=self.drift is None
        )
        self.scaled_at = max((at for at in sent if at is not None), default=self.scaled_at)

    @property
    def drift(self) -> str | None:
        """Who else keeps setting the replicas of a target; None where nobody does."""
        for key, one in self.targets.items():
            if one.drift.problem is not None:
                return one.drift.problem if len(self.targets) == 1 else f"{key}: {one.drift.problem}"
        return None

    def _target(self, workload: Workload) -> TargetState:
        return self.targets.setdefault(workload.key, TargetState())

    def decided(self, plan: PoolPlan) -> None:
        """A decision was made."""
        if not plan.permission.act:
            for one in self.targets.values():
                one.rest()
        self.pool, self.decision, self.observation = plan.seen.pool, plan.decision, plan.seen.observation
        self.expense = plan.expense
        self.stages = plan.stages
        self.kept.decided(plan)

    def refused(self) -> None:
        """Nothing can be decided, so the last figures are no longer valid."""
        self.decision = self.observation = None

    # What acting did.

    def order_sent(self, target: Workload, replicas: int, fleet: Workload, why: str, now: float) -> None:
        """It counts as done until an answer says otherwise: the tick may end before the answer.

        `fleet`: all targets together, as they are before it.
        """
        self.history = self.history.order(fleet, fleet.replicas + replicas - target.replicas, why, now)
        self._target(target).order_sent(target, replicas, now)

    def order_done(self, target: Workload, fleet: Workload, now: float) -> bool:
        """The API server has set the replicas of a target as it was decided on. Whether that is worth telling."""
        one = self._target(target)
        # Else a contest would write the status at every tick. Whose a 0 is, only the status tells.
        told = not one.drift.answered or (self.history.sent is not None and self.history.sent.to == 0)
        self.history = self.history.done(fleet, keep=told)
        one.order_done()
        if told:
            self.scaled_at = now
        return told

    def order_failed(self, target: Workload, *, unknown: bool) -> None:
        """The order failed; `unknown`: it may have been carried out."""
        self._target(target).order_failed(unknown=unknown)
        if not unknown:
            self.history = self.history.refused()

    def order_conflicted(self, target: Workload) -> int:
        """The target is not as it was decided on. How often in a row."""
        self.history = self.history.refused()
        return self._target(target).order_conflicted(target)

    # What is reported.

    def recommends(self, plan: PoolPlan) -> bool:
        """Whether a recommendation is new: of mode Recommend, and not what was said last."""
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
        """Whether what was learned is to be written."""
        return self.kept.due(now, settled=self.decision is not None and not self.decision.calibrating)

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
