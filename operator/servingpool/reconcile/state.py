"""What the loop keeps of each pool between two ticks.

Only this module changes it: the stages of a tick call its methods, and read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from servingpool.adapters.cluster.objects import Raw, TargetKey, Workload
from servingpool.api.conditions import Condition, Reason
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.spec import Mode
from servingpool.api.status import Status
from servingpool.decision.decision import Decision, Verdict
from servingpool.decision.gateway_demand import Vanished
from servingpool.decision.miss_curve import MissCurve
from servingpool.decision.observation import Observation
from servingpool.decision.roles import DECODE, PREFILL
from servingpool.decision.state import Memory, Profile
from servingpool.reconcile import learned_profile
from servingpool.reconcile.expense import Expense
from servingpool.reconcile.history import History
from servingpool.reconcile.pool_plan import PoolPlan
from servingpool.reconcile.routing import NOT_SEEN, Spread
from servingpool.reconcile.sides import role_of
from servingpool.reconcile.target_state import TargetState
from servingpool.reconcile.targets import SeenTarget, together

log = logging.getLogger(__name__)

MODEL, ROLES = "model", "roles"
"""Keys in a kept profile. Speed and lengths are learned of one model: another's would size the fleet for it. Where
targets have roles, each has a profile."""
PROFILE_AFTER = 600.0
"""Seconds between two writes of the learned profile, the first one when calibration ends.

What a crash would lose is in Prometheus's history."""

RECOMMENDED_AGAIN_AFTER = 600.0
"""Seconds until the same recommendation is an event again, if what stood was right meanwhile."""


class Written(NamedTuple):
    """What shows that a profile has changed since it was written."""

    curve: MissCurve | None = None
    vanished: Vanished | None = None

    @classmethod
    def of(cls, profile: Profile) -> Written:
        """As it is now."""
        return cls(profile.curve, profile.vanished)


NOT_WRITTEN = Written()


@dataclass(slots=True)
class PoolState:
    """One pool. It goes when the pool does."""

    uid: str
    """Of the pool: a pool that is deleted and recreated starts anew."""
    model: str
    """The model that was learned; a pool with another model starts anew."""
    status: Status
    """As last written, or as found."""
    conditions: tuple[Condition, ...] = ()
    """As of the last tick, or as found at the start. They may not be written yet."""
    memory: Memory = field(default_factory=Memory)
    """Of a pool without roles."""
    of_roles: dict[str, Memory] = field(default_factory=lambda: {PREFILL: Memory(), DECODE: Memory()})
    """By role, where targets have roles."""
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
    profile_at: float = 0.0
    """Likewise, of the last write of the learned profile."""
    written: dict[str, Written] = field(default_factory=dict)
    """What it held then, by role; of a pool without roles by the empty name."""
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
    spreads: dict[str, Spread] = field(default_factory=dict)
    """How requests were spread over several targets, by role."""
    sides: tuple[PoolPlan, ...] = ()
    """What was last decided for prefill and for decode, where targets have roles."""
    expense: Expense = field(default_factory=Expense)

    @classmethod
    def found(cls, pool: ServingPool, raw: Raw) -> PoolState:
        """The state of a pool seen for the first time, resumed from its status."""
        state = cls.of_status(pool.metadata, pool.spec.model, pool.status, raw)
        state.conditions = pool.status.conditions
        if any(one.reason == Reason.RECOMMENDING for one in state.conditions):
            desired, replicas = pool.status.desired_replicas, pool.status.replicas
            state.recommended = None if desired is None or desired == replicas else (desired,)
        kept = pool.status.profile
        if kept is not None:
            try:
                state.resume(kept)
            except ValueError as damage:
                log.warning("The learned profile is discarded: %s", damage, extra=pool.metadata.log_fields)
        return state

    @classmethod
    def of_status(cls, meta: Metadata, model: str, status: Status, raw: Raw) -> PoolState:
        """The state of a pool of which only the status is known."""
        # A status that cannot be read is of another version: it is written anew as a whole.
        unreadable = status == Status() and bool(raw.get("status"))
        history = History.found(status)
        return cls(uid=meta.uid, model=model, status=status, status_write_unknown=unreadable, history=history)

    def resume(self, kept: Mapping[str, Any]) -> None:
        """Resume the profile that `kept` returned. ValueError says why it cannot be used."""
        if kept.get(MODEL) != self.model:
            raise ValueError(f"learned for model {kept.get(MODEL)!r}, spec.model is now {self.model!r}")
        if ROLES in kept:
            found = kept[ROLES] if isinstance(kept[ROLES], Mapping) else {}
            self.of_roles = {role: Memory(learned_profile.load(found.get(role))) for role in self.of_roles}
        else:
            self.memory = Memory(learned_profile.load(kept))
        # Not written before it changes: else a restart would write every pool at once.
        self.written = {role: Written.of(each) for role, each in self._profiles(roles=ROLES in kept).items()}
        self.profile_at = max(each.at for each in self._profiles(roles=ROLES in kept).values())

    def is_of(self, pool: ServingPool) -> bool:
        """Whether this state belongs to this pool and model."""
        return (self.uid, self.model) == (pool.metadata.uid, pool.spec.model)

    # What history taught.

    def taught(self, memory: Memory) -> None:
        """History was learned."""
        self.memory = memory

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
        self.sides = plan.sides
        if plan.sides:
            self.of_roles = {role_of(side.seen.pool): side.memory for side in plan.sides}
        else:
            self.memory = plan.memory
        self.spreads = {
            (role := role_of(side.seen.pool)): self.spreads.get(role, NOT_SEEN).seen(side.seen.observation, plan.at)
            for side in plan.each
        }

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
        told = not one.drift.answered  # else a contest would write the status at every tick
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
        named = tuple(part.replicas for part in decision.parts) or (decision.replicas,)
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

    @property
    def memories(self) -> Mapping[str, Memory]:
        """All that the core knows, by role."""
        return {"": self.memory} | self.of_roles

    def _profiles(self, *, roles: bool | None = None) -> dict[str, Profile]:
        """What is kept: of each role, or of the pool. `roles`: whether it has some; by default as decided on last."""
        if roles is None:
            roles = self.pool is not None and self.pool.spec.has_roles
        return {role: each.profile for role, each in (self.of_roles.items() if roles else (("", self.memory),))}

    def profile_due(self, now: float) -> bool:
        """Whether what was learned is to be written: calibration has ended, and it has changed since some time."""
        settled = self.decision is not None and not self.decision.calibrating
        profiles, written = self._profiles(), self.written
        if any(each.vanished != written.get(role, NOT_WRITTEN).vanished for role, each in profiles.items()):
            return True  # what an operator that starts anew would try again
        return settled and now - self.profile_at >= PROFILE_AFTER and self._changed

    @property
    def _changed(self) -> bool:
        profiles = self._profiles().items()
        return any(each.curve != self.written.get(role, NOT_WRITTEN).curve for role, each in profiles)

    @property
    def unsaved(self) -> bool:
        """Something was learned since the profile was last written."""
        return any(each.learned > 0.0 for each in self._profiles().values()) and self._changed

    def kept(self) -> dict[str, Any]:
        """What was learned, in the form that `found` reads."""
        found = {role: learned_profile.dump(each) for role, each in self._profiles().items()}
        return found.get("", {ROLES: found}) | {MODEL: self.model}

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
            self.profile_at = now
            self.written = {role: Written.of(each) for role, each in self._profiles().items()}

    def warned_of(self, reason: str, now: float) -> None:
        """A warning event is posted."""
        self.warned[reason] = now
