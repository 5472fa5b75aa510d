"""Carrying a decision out: scale, status, events. With `marking`, the only place where the loop writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound, Unanswered
from servingpool.adapters.cluster.objects import Key, Pod
from servingpool.api.conditions import ConditionType, Reason, Truth
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.status import Status
from servingpool.api.time import from_unix
from servingpool.decision.decision import Decision
from servingpool.reconcile.conduct import target_of
from servingpool.reconcile.marking import FORBIDDEN, Marker, PodWriter
from servingpool.reconcile.state import PoolState
from servingpool.reconcile.telling import changes, worth_writing
from servingpool.reconcile.victims import choose, in_flight

log = logging.getLogger(__name__)

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

STATUS_FIELDS = tuple(field.alias or name for name, field in Status.model_fields.items())
"""As they are called in a manifest."""
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

    def __init__(self, writer: Writer, cache: ClusterCache) -> None:
        self._writer, self._cache = writer, cache
        self.failures: dict[str, int] = {"scale": 0, "cost": 0, "status": 0, "event": 0}
        """Writes that failed, by kind, since the start."""
        self._marker = Marker(writer, cache, self._count_cost)

    async def scale(
        self, pool: ServingPool, state: PoolState, decision: Decision, current: int
    ) -> tuple[bool, tuple[Reason, str] | None]:
        """Order the replicas. Whether it was done, and what to say in Ready where it failed.

        Neither, where someone else changed the number meanwhile: the next tick decides anew. When that goes on, it is
        something else that only looks like it, such as a webhook that says no with a bare 422.
        """
        target = target_of(pool)
        try:
            await self._writer.scale(target, current=current, replicas=decision.replicas)
        except Conflict as error:
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
            return False, (Reason.FAILED_UPDATE_SCALE, str(error))
        state.conflicts = 0
        if (workload := self._cache.workload(target)) is not None:
            state.contest = state.contest.order(workload, decision.replicas)
        self._cache.scaled(target, decision.replicas)
        log.info(
            "%s",
            decision.reason,
            extra=_pool(pool.metadata) | {"from": current, "to": decision.replicas, "need": str(decision.need)},
        )
        message = f"New size: {decision.replicas}; reason: {decision.reason}"
        if not state.contest.answered:  # else it would be one every tick, for as long as nobody looks
            await self.event(pool.metadata, "Normal", "SuccessfulRescale", message)
        unmarked = decision.replicas < current and pool.metadata.namespace in self._marker.forbidden
        if unmarked and Reason.VICTIMS_NOT_CHOSEN not in state.warned:
            state.warned[Reason.VICTIMS_NOT_CHOSEN] = 0.0
            await self.event(pool.metadata, "Warning", Reason.VICTIMS_NOT_CHOSEN, FORBIDDEN)
        return True, None

    async def mark(self, pool: ServingPool, state: PoolState, replicas: int) -> None:
        """Ahead of a scale-down to `replicas`, tell Kubernetes which pods to take. For a scale-up it costs nothing."""
        workload, namespace = self._cache.workload(target_of(pool)), pool.metadata.namespace
        if workload is None or replicas >= workload.replicas:
            return
        busy = {} if state.observation is None else in_flight(state.observation)
        victims = choose(self._cache.pods(workload), busy, replicas)
        await self._marker.mark(namespace, victims)
        if victims.marks and namespace not in self._marker.forbidden:
            who = ", ".join(f"{pod.name} ({_in_flight(pod, busy)})" for pod in victims.pods[:MOST_TOLD])
            log.info("least in flight, so to be removed: %s", who, extra=_pool(pool.metadata))

    async def sweep(self, leading: Callable[[], bool]) -> None:
        """Take back what was told of pods that have survived."""
        await self._marker.sweep(leading)

    async def tell(self, pool: Metadata, state: PoolState, status: Status, now: float) -> None:
        """Write the status if a person would care, and warn of what has just gone wrong."""
        learned = state.memory.profile
        due = state.settled and now - state.profile_at >= PROFILE_AFTER and learned.curve != state.profile_curve
        if not due and not state.unsure and not worth_writing(state.status, status, now - state.written_at):
            return
        if due:
            status = status.model_copy(update={"profile": state.kept()})
        before = state.status
        if await self._write(pool, state, status):
            state.written_at = now
            if due:
                state.profile_at, state.profile_curve = now, learned.curve
            await self._warn(pool, state, before, now)

    async def save(self, pool: Metadata, state: PoolState) -> None:
        """Write the learned profile whatever its age: the operator stops."""
        learned = state.memory.profile
        if learned.learned > 0.0 and learned.curve != state.profile_curve:
            await self._write(pool, state, state.status.model_copy(update={"profile": state.kept()}))

    async def event(self, pool: Metadata, type_: str, reason: str, message: str) -> None:
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
        unsure = state.unsure
        before = dict.fromkeys(STATUS_FIELDS) if unsure else state.status.to_dict()
        patch = changes(before, status.to_dict())
        if not patch:
            return True
        state.unsure = True
        try:
            await self._writer.write_status(pool.key, patch)
        except NotFound:
            return False  # deleted meanwhile: the watch will say so
        except ClusterError as error:
            state.unsure = unsure or isinstance(error, Unanswered)
            self.failures["status"] += 1
            log.warning("%s", error, extra=_pool(pool))
            return False
        state.status, state.unsure = status, False
        return True

    async def _warn(self, pool: Metadata, state: PoolState, before: Status, now: float) -> None:
        for type_, bad in WARNED.items():
            found, then = state.status.condition(type_), before.condition(type_)
            if found is None or found.status != bad:
                continue
            if then is not None and (then.status, then.reason) == (found.status, found.reason):
                continue
            if now - state.warned.get(found.reason, -WARNED_AGAIN_AFTER) >= WARNED_AGAIN_AFTER:
                state.warned[found.reason] = now
                await self.event(pool, "Warning", found.reason, found.message)


def stamped(status: Status, replicas: int, now: float) -> Status:
    """The status of a pool that was scaled just now."""
    return status.model_copy(update={"replicas": replicas, "last_scale_time": from_unix(now)})


def _in_flight(pod: Pod, busy: Mapping[str, float]) -> str:
    if pod.ready_since is None:
        return "not ready"
    return f"{busy[pod.name]:g} in flight" if pod.name in busy else "not known"


def _pool(pool: Metadata) -> dict[str, str]:
    return {"pool": "/".join(pool.key)}
