"""Carrying a decision out: scale, status, events. With `marking`, the only place where the loop writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound, Unanswered
from servingpool.adapters.cluster.objects import Key, Pod, Workload
from servingpool.api.conditions import ConditionType, Reason, Truth
from servingpool.api.part import Part
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.status import LastDecision, Latency, Status, Throughput
from servingpool.decision.decision import Decision
from servingpool.reconcile.marking import FORBIDDEN, SWITCHED_OFF, Marker, PodWriter
from servingpool.reconcile.preconditions import target_of
from servingpool.reconcile.state import PoolState
from servingpool.reconcile.status_builder import changes, worth_writing
from servingpool.reconcile.victims import choose, in_flight

log = logging.getLogger(__name__)


def _fields(part: type[Part]) -> list[str]:
    """As they are called in a manifest."""
    return [field.alias or name for name, field in part.model_fields.items()]


PROFILE_AFTER = 600.0
"""Seconds between two writes of the learned profile, the first one when calibration ends.

What a crash would lose is in Prometheus's history."""
WARNED = {
    ConditionType.READY: Truth.FALSE,
    ConditionType.METRICS_AVAILABLE: Truth.FALSE,
    ConditionType.DRAIN_READY: Truth.FALSE,
}
"""Conditions whose turn to this status is worth a warning event."""
WARNED_AGAIN_AFTER = 600.0
"""Seconds. A condition that flaps would post an event every other tick, and push the telling ones out of sight."""

ANYTHING = dict.fromkeys(_fields(Status)) | {
    "throughput": dict.fromkeys(_fields(Throughput)),
    "latency": dict.fromkeys(_fields(Latency)),
    "lastDecision": dict.fromkeys(_fields(LastDecision)),
}
"""A status that may hold any field. A merge patch goes into what is nested: what is meant to be gone must be named."""
CONFLICTS_BORNE = 2
"""In a row: by then the watch has shown whatever else there is."""
MOST_TOLD = 10
"""Pods named in a log line."""


class Writer(PodWriter, Protocol):
    """What acting needs of a cluster."""

    async def scale(self, target: Key, *, current: int, replicas: int) -> None:
        """Set replicas, if they are still `current`."""

    async def write_status(self, pool: Key, changes: dict[str, Any]) -> None:
        """Merge into a pool's status."""

    async def post_event(self, pool: Key, uid: str, *, type_: str, reason: str, message: str) -> None:
        """Post an event on a pool."""


class Actor:
    """Acts for all pools."""

    def __init__(self, writer: Writer, cache: ClusterCache, *, deletion_costs: bool) -> None:
        self._writer, self._cache = writer, cache
        self.failures: dict[str, int] = {"scale": 0, "cost": 0, "status": 0, "event": 0}
        """Writes that failed, by kind, since the start."""
        self._marker = Marker(writer, cache, self._count_cost) if deletion_costs else None

    async def scale(
        self, pool: ServingPool, state: PoolState, decision: Decision, known: Workload, now: float
    ) -> tuple[bool, tuple[Reason, str] | None]:
        """Order the replicas, of a target as it was decided on. Whether it was done, and what to say in Ready if not.

        Neither, where someone else changed the number meanwhile: the next tick decides anew. When that goes on, it is
        something else that only looks like it, such as a webhook that says no with a bare 422.
        """
        current, before = known.replicas, (state.drift, state.scale_outcome_unknown)
        # As if it were done, until an answer says otherwise: the tick may end before there is one.
        state.drift, state.scale_outcome_unknown = state.drift.order(known, decision.replicas), now
        try:
            await self._writer.scale(known.key, current=current, replicas=decision.replicas)
        except Conflict as error:
            state.drift, state.scale_outcome_unknown = before
            # Whoever changes the number shows a new one; what refuses an order leaves it where it was.
            state.conflicts = state.conflicts + 1 if state.refused_at == current else 1
            state.refused_at = current
            if state.conflicts <= CONFLICTS_BORNE:
                said = "replicas changed meanwhile, deciding anew at the next tick: %s"
                log.info(said, error, extra=_pool(pool.metadata))
                return False, None
            self.failures["scale"] += 1
            log.warning("%s, %d times in a row", error, state.conflicts, extra=_pool(pool.metadata))
            return False, (Reason.FAILED_UPDATE_SCALE, f"{error}, again and again")
        except ClusterError as error:
            state.conflicts = 0
            self.failures["scale"] += 1
            log.warning("%s", error, extra=_pool(pool.metadata))
            if not isinstance(error, Unanswered):
                state.drift, state.scale_outcome_unknown = before
            return False, (Reason.FAILED_UPDATE_SCALE, str(error))
        state.conflicts, state.scale_outcome_unknown = 0, None
        self._cache.scaled(known, decision.replicas)
        if not state.drift.answered:  # else the status would be written at every tick, for as long as nobody looks
            state.scaled_at = now
        log.info(
            "%s",
            decision.reason,
            extra=_pool(pool.metadata) | {"from": current, "to": decision.replicas, "need": str(decision.need)},
        )
        return True, None

    async def announce(self, pool: ServingPool, state: PoolState, decision: Decision, before: int) -> None:
        """Post what people are to know of a scaling from so many replicas."""
        message = f"New size: {decision.replicas}; reason: {decision.reason}"
        if not state.drift.answered:
            await self.event(pool.metadata, "Normal", Reason.SUCCESSFUL_RESCALE, message)
        if decision.replicas >= before or Reason.VICTIMS_NOT_CHOSEN in state.warned:
            return
        if self._marker is None:
            type_, message = "Normal", SWITCHED_OFF
        elif pool.metadata.namespace in self._marker.forbidden:
            type_, message = "Warning", FORBIDDEN
        else:
            return
        state.warned[Reason.VICTIMS_NOT_CHOSEN] = 0.0
        await self.event(pool.metadata, type_, Reason.VICTIMS_NOT_CHOSEN, message)

    async def mark(self, pool: ServingPool, state: PoolState, replicas: int) -> None:
        """Ahead of a scale-down to `replicas`, tell Kubernetes which pods to take. For a scale-up it costs nothing."""
        workload, namespace = self._cache.workload(target_of(pool)), pool.metadata.namespace
        if self._marker is None or workload is None or replicas >= workload.replicas:
            return
        busy = {} if state.observation is None else in_flight(state.observation)
        victims = choose(self._cache.pods(workload), busy, replicas)
        await self._marker.mark(namespace, victims)
        if victims.marks and namespace not in self._marker.forbidden:
            who = ", ".join(f"{pod.name} ({_in_flight(pod, busy)})" for pod in victims.pods[:MOST_TOLD])
            log.info("least in flight, so to be removed: %s", who, extra=_pool(pool.metadata))

    async def sweep(self, leading: Callable[[], bool]) -> None:
        """Take back what was told of pods that have survived."""
        if self._marker is not None:
            await self._marker.sweep(leading)

    async def tell(self, pool: Metadata, state: PoolState, status: Status, now: float) -> bool:
        """Write the status if a person would care. Whether that was done."""
        learned = state.memory.profile
        due = state.settled and now - state.profile_at >= PROFILE_AFTER and learned.curve != state.profile_curve
        if (
            not due
            and not state.status_write_unknown
            and not worth_writing(state.status, status, now - state.written_at)
        ):
            return False
        if due:
            status = status.model_copy(update={"profile": state.kept()})
        if not await self._write(pool, state, status):
            return False
        state.written_at = now
        if due:
            state.profile_at, state.profile_curve = now, learned.curve
        return True

    async def warn(self, pool: Metadata, state: PoolState, before: Status, now: float) -> None:
        """Post an event for what has gone wrong since that status."""
        for type_, bad in WARNED.items():
            found, then = state.status.condition(type_), before.condition(type_)
            if found is None or found.status != bad:
                continue
            if then is not None and (then.status, then.reason) == (found.status, found.reason):
                continue
            if now - state.warned.get(found.reason, -WARNED_AGAIN_AFTER) >= WARNED_AGAIN_AFTER:
                state.warned[found.reason] = now
                await self.event(pool, "Warning", Reason(found.reason), found.message)

    async def save(self, pool: Metadata, state: PoolState) -> None:
        """Write the learned profile whatever its age: the operator stops."""
        learned = state.memory.profile
        if learned.learned > 0.0 and learned.curve != state.profile_curve:
            # The profile alone: where the last write was not answered, the status that is known is the one before it.
            before = {} if state.status_write_unknown else state.status.profile or {}
            await self._send(pool, state, {"profile": changes(before, state.kept())})

    async def event(self, pool: Metadata, type_: str, reason: Reason, message: str) -> None:
        """Post an event; one that is lost is only logged."""
        try:
            await self._writer.post_event(pool.key, pool.uid, type_=type_, reason=reason, message=message)
        except ClusterError as error:
            self.failures["event"] += 1
            log.warning("%s", error, extra=_pool(pool))

    def _count_cost(self) -> None:
        self.failures["cost"] += 1

    async def _write(self, pool: Metadata, state: PoolState, status: Status) -> bool:
        # Where it is not known what is there everything is said, what is not there any more too.
        patch = changes(ANYTHING if state.status_write_unknown else state.status.to_dict(), status.to_dict())
        if patch and not await self._send(pool, state, patch):
            return False
        state.status, state.status_write_unknown = status, False
        return True

    async def _send(self, pool: Metadata, state: PoolState, patch: dict[str, Any]) -> bool:
        unknown, state.status_write_unknown = state.status_write_unknown, True
        try:
            await self._writer.write_status(pool.key, patch)
        except NotFound:
            # Deleted. Where its watch was broken then, no event says so.
            self._cache.forget_pool(pool.key, pool.uid)
            return False
        except ClusterError as error:
            state.status_write_unknown = unknown or isinstance(error, Unanswered)
            self.failures["status"] += 1
            log.warning("%s", error, extra=_pool(pool))
            return False
        state.status_write_unknown = unknown
        return True


def _in_flight(pod: Pod, busy: Mapping[str, float]) -> str:
    if pod.ready_since is None:
        return "not ready"
    return f"{busy[pod.name]:g} in flight" if pod.name in busy else "not known"


def _pool(pool: Metadata) -> dict[str, str]:
    return {"pool": "/".join(pool.key)}
