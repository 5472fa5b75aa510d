"""The last stage of a tick: it writes a pool's status if a person would care, and posts events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, get_args

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, NotFound, Unanswered
from servingpool.adapters.cluster.objects import Key
from servingpool.api.conditions import Condition, ConditionType, Reason, Truth
from servingpool.api.part import Part
from servingpool.api.serving_pool import Metadata
from servingpool.api.status import Change, Status
from servingpool.catalogue.events import WARNED, EventReason
from servingpool.reconcile.act import ScaleOutcome
from servingpool.reconcile.keep.kept_memory import ANY_PROFILE
from servingpool.reconcile.keep.state import PoolState
from servingpool.reconcile.plan.pool_plan import PoolPlan
from servingpool.status.builder import FIGURE_NAMES
from servingpool.status.write_rate import REST_AT_LATEST, WriteRate

log = logging.getLogger(__name__)


def _fields(part: type[Part]) -> dict[str, Any]:
    """Every field of a manifest, and every field of those that are parts themselves."""
    named = {field.alias or name: field.annotation for name, field in part.model_fields.items()}
    optional = {name: get_args(of)[0] for name, of in named.items() if type(None) in get_args(of)}
    return {name: _fields(optional[name]) if hasattr(optional.get(name), "model_fields") else None for name in named}


WARNED_AGAIN_AFTER = 600.0
"""Seconds. Otherwise a condition that flaps would post an event every other tick and hide other events."""

ENOUGH = (
    *(Reason.DESIRED_WITHIN_RANGE, Reason.TOO_FEW_REPLICAS),
    *(Reason.PREFILL_PER_DECODE, Reason.OTHER_ROLE_RUNS),
)
"""Reasons of ScalingLimited that take turns as the load goes up and down at min, and harm nobody: there are replicas
enough. Where they were written at once, they were 70% of all writes in steady traffic (docs/records/experiments.md)."""
ANYTHING = _fields(Status) | {"profile": ANY_PROFILE}
ANYTHING["lastDecision"]["figures"] = dict.fromkeys(FIGURE_NAMES.values())
"""A status with every field. A merge patch merges nested objects, so each field to remove must be named."""


class ReportWriter(Protocol):
    """Part of a cluster that reporting needs."""

    async def write_status(self, pool: Key, changes: dict[str, Any]) -> None:
        """Merge into a pool's status."""

    async def post_event(self, pool: Key, uid: str, *, type_: str, reason: str, message: str) -> None:
        """Post an event on a pool."""


class Reporter:
    """Reports for all pools."""

    def __init__(self, writer: ReportWriter, cache: ClusterCache) -> None:
        self._writer, self._cache = writer, cache
        self.failures: dict[str, int] = {"status": 0, "event": 0}
        """Writes that failed, by kind, since the start."""
        self.rate = WriteRate()

    async def announce(self, plan: PoolPlan, outcome: ScaleOutcome, state: PoolState) -> None:
        """Post the events of a scale."""
        decision = plan.decision
        message = EventReason.SUCCESSFUL_RESCALE.message(replicas=decision.replicas, reason=decision.reason)
        if outcome.ordered is not None:
            await self.event(plan.meta, EventReason.SUCCESSFUL_RESCALE.type, EventReason.SUCCESSFUL_RESCALE, message)
        if outcome.blind_choice is not None and EventReason.VICTIMS_NOT_CHOSEN not in state.warned:
            state.warned_of(EventReason.VICTIMS_NOT_CHOSEN, 0.0)
            type_, message = outcome.blind_choice
            await self.event(plan.meta, type_, EventReason.VICTIMS_NOT_CHOSEN, message)

    async def recommend(self, plan: PoolPlan, state: PoolState) -> None:
        """Post what Auto would have done, once per change of the recommendation, and log it."""
        if not state.recommends(plan):
            return
        decision, requested = plan.decision, plan.seen.observation.requested
        message = EventReason.RECOMMENDED.message(
            replicas=decision.replicas, requested=requested, reason=decision.reason
        )
        log.info("%s", message, extra=plan.meta.log_fields | {"from": requested, "to": decision.replicas})
        await self.event(plan.meta, EventReason.RECOMMENDED.type, EventReason.RECOMMENDED, message)

    async def tell(self, pool: Metadata, state: PoolState, status: Status, now: float, may: Callable[[], bool]) -> None:
        """Write the status if a person would care, then post an event for what has gone wrong since the last one.

        Each write may take seconds: `may` says whether the next one is still allowed.
        """
        before = state.status
        if may() and await self._write(pool, state, status, now) and may():
            await self._warn(pool, state, before, now)

    async def foretell(self, pool: Metadata, state: PoolState, history: tuple[Change, ...], now: float) -> bool:
        """Write a change before it is ordered. Whether that was done.

        Who orders 0 is told by the status only: an operator that ended before it told would leave a pool at 0 for ever.
        """
        status = state.status.model_copy(update={"history": history})
        patch = changes(ANYTHING if state.status_write_unknown else state.status.to_dict(), status.to_dict())
        if patch and not await self._send(pool, state, patch):
            return False
        state.status_written(status, now, with_profile=False)
        return True

    async def save(self, pool: Metadata, state: PoolState) -> None:
        """Write the learned profile whatever its age: the operator stops."""
        if state.kept.unsaved:
            # The profile alone: if the last write got no answer, the known status is the one before it.
            before = ANYTHING["profile"] if state.status_write_unknown else state.status.profile or {}
            await self._send(pool, state, {"profile": changes(before, state.kept.dump())})

    async def event(self, pool: Metadata, type_: str, reason: str, message: str) -> None:
        """Post an event; a lost event is only logged."""
        try:
            await self._writer.post_event(pool.key, pool.uid, type_=type_, reason=reason, message=message)
        except ClusterError as error:
            self.failures["event"] += 1
            log.warning("%s", error, extra=pool.log_fields)

    async def _warn(self, pool: Metadata, state: PoolState, before: Status, now: float) -> None:
        for type_ in WARNED:
            found, then = state.status.condition(type_), before.condition(type_)
            if found is None or found.status is not Truth.FALSE:
                continue
            if type_ is ConditionType.SLO_MET and found.reason != Reason.OBJECTIVE_UNATTAINABLE:
                continue  # alerts are for the others, which come and go
            if then is not None and (then.status, then.reason) == (found.status, found.reason):
                continue
            if now - state.warned.get(found.reason, -WARNED_AGAIN_AFTER) >= WARNED_AGAIN_AFTER:
                state.warned_of(found.reason, now)
                await self.event(pool, "Warning", found.reason, found.message)

    async def _write(self, pool: Metadata, state: PoolState, status: Status, now: float) -> bool:
        """Whether the status was worth a write, its turn had come, and it was written."""
        if state.status.last_scale_time != status.last_scale_time:
            self.rate.count()  # the operator has set the replicas: that never waits
        elif not self._is_due(state, status, now):
            self.rate.done(pool.key)
            return False
        elif not self.rate.admits(pool.key, now):
            return False
        due, unknown = state.profile_due(now), state.status_write_unknown
        if due:
            status = status.model_copy(update={"profile": state.kept.dump()})
        # If the stored status is unknown, every field is written, also those to remove.
        patch = changes(ANYTHING if unknown else state.status.to_dict(), status.to_dict())
        if patch and not await self._send(pool, state, patch):
            return False
        state.status_written(status, now, with_profile=due)
        self.rate.done(pool.key)
        return True

    def _is_due(self, state: PoolState, status: Status, now: float) -> bool:
        """Whether the status is to be written: its headline at once, all else once the last write is old enough."""
        before = state.status
        if state.status_write_unknown or state.kept.pressing or headline(before) != headline(status):
            return True
        rested = now - state.written_at
        if rested < self.rate.rest_after:
            return False
        # At the latest an idle pool's decision would look as old as that of an operator that is dead.
        return (
            rested >= REST_AT_LATEST or state.profile_due(now) or _without_decision(before) != _without_decision(status)
        )

    async def _send(self, pool: Metadata, state: PoolState, patch: dict[str, Any]) -> bool:
        before = state.status_write_begun()
        try:
            await self._writer.write_status(pool.key, patch)
        except ClusterError as error:
            if type(error) is NotFound:  # the pool is deleted. If its watch was broken then, no event says so
                self._cache.forget_pool(pool.key, pool.uid)
                self.rate.done(pool.key)
                return False
            state.status_write_ended(unknown=before or isinstance(error, Unanswered))
            self.failures["status"] += 1
            log.warning("%s", error, extra=pool.log_fields)
            return False
        state.status_write_ended(unknown=before)
        return True


def changes(before: Any, after: Any) -> Any:
    """The merge patch (RFC 7386) that turns `before` into `after`: lists whole, what is gone as None."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            inner = changes(before[key], value)
            if inner:
                patch[key] = inner
        elif key not in before or before[key] != value:
            patch[key] = value
    return patch


def headline(status: Status) -> tuple[Any, ...]:
    """What a person waits for: conditions, bounds, replicas, and who set them."""
    return (
        status.observed_generation,
        tuple(map(_looked_for, status.conditions)),
        status.fleet,
        status.bounds,
        status.replicas,
        [(one.name, one.replicas, one.ready, one.desired, one.stuck is None) for one in status.targets or ()],
        status.history,
        status.operator,
        None if status.cost is None else status.cost.compared_to,
    )


def _looked_for(condition: Condition) -> tuple[str, ...]:
    """What a person looks for in a condition. Of what is well the reason may come and go with a gateway that does."""
    if condition.reason in ENOUGH:
        return condition.type, ""
    tells = condition.type is ConditionType.READY or condition.status is not Truth.TRUE
    return condition.type, condition.status, condition.reason if tells else ""


def _without_decision(status: Status) -> Status:
    """The decision has another time at every tick: by itself it is written after `REST_AT_LATEST` only."""
    return status.model_copy(update={"last_decision": None})
