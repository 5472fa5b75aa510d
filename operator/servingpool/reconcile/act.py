"""The third stage of a tick: it sets replicas, and before a scale-down tells Kubernetes which pods to remove."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, Conflict, Unanswered
from servingpool.adapters.cluster.kinds import DEPLOYMENT
from servingpool.adapters.cluster.objects import Pod, Workload
from servingpool.api.conditions import Reason
from servingpool.catalogue.events import EventReason
from servingpool.reconcile.deletion_cost import FORBIDDEN, SWITCHED_OFF, Marker, PodWriter, choose, in_flight
from servingpool.reconcile.pool_plan import PoolPlan, ScaleAction
from servingpool.reconcile.state import PoolState

log = logging.getLogger(__name__)

CONFLICTS_BORNE = 2
"""Conflicts in a row before they count as a failure."""
MOST_NAMED = 10
"""Pods named in a log line."""


@dataclass(frozen=True, slots=True)
class ScaleOutcome:
    """What acting did."""

    scaled: bool = False
    """The API server has set replicas."""
    ordered: int | None = None
    """Replicas of all targets since, if that is worth telling: not one of many orders that answer another program."""
    failure: tuple[Reason, str] | None = None
    """What to say in the Ready condition."""
    blind_choice: tuple[str, str] | None = None
    """Type and message of an event: why Kubernetes chose itself which pods to remove."""
    complete: bool = False
    """Every order of the plan was carried out."""

    def then(self, later: ScaleOutcome) -> ScaleOutcome:
        """This, and what acting on another target of the pool did after it."""
        return ScaleOutcome(
            self.scaled or later.scaled,
            self.ordered if later.ordered is None else later.ordered,
            self.failure or later.failure,
            self.blind_choice or later.blind_choice,
        )


NOT_SCALED = ScaleOutcome()
"""Nothing was to be done; or somebody else changed the number meanwhile, and the next tick decides anew."""


class ScaleWriter(PodWriter, Protocol):
    """What acting needs of a cluster."""

    async def scale(self, target: Workload, replicas: int) -> None:
        """Set replicas, if they are still as the target says."""


class Actor:
    """Acts for all pools."""

    def __init__(self, writer: ScaleWriter, cache: ClusterCache, *, deletion_costs: bool) -> None:
        self._writer, self._cache = writer, cache
        self.failures: dict[str, int] = {"scale": 0, "cost": 0}
        """Writes that failed, by kind, since the start."""
        self._marker = Marker(writer, cache, self._count_cost) if deletion_costs else None

    async def act(
        self, plan: PoolPlan, state: PoolState, unchanged: Callable[[], bool], admitted: Callable[[ScaleAction], bool]
    ) -> ScaleOutcome | None:
        """Carry the plan's actions out, one after the other, increases first.

        None if nothing was sent, because the pool was not `unchanged` once the pods were marked, or no budget has
        `admitted` an action: asked right before each write. Who leads then, or the next tick, takes the marks back.

        Nothing is removed unless all that was to be added was ordered: it may be what replaces the removed.
        """
        if not plan.actions:
            return NOT_SCALED
        outcome, begun, complete = NOT_SCALED, False, True
        for action in plan.actions:
            if not action.grows and not complete:
                break
            await self._mark(plan, action)
            if not unchanged():
                return outcome if begun else None
            if not admitted(action):
                complete = False
                continue
            begun = True
            one = await self._scale(plan, action, state)
            complete = complete and one.scaled
            outcome = outcome.then(one)
        return replace(outcome, complete=complete) if begun else None

    async def sweep(self, leading: Callable[[], bool]) -> None:
        """Clear our deletion costs from pods that have survived."""
        if self._marker is not None:
            await self._marker.sweep(leading)

    async def _mark(self, plan: PoolPlan, action: ScaleAction) -> None:
        """Ahead of a scale-down, tell Kubernetes which pods to take: where a ReplicaSet takes them, no other asks."""
        workload, namespace = self._cache.workload(action.target.key), plan.meta.namespace
        if self._marker is None or workload is None or action.replicas >= workload.replicas:
            return
        if workload.key.sort != DEPLOYMENT:
            return
        busy = in_flight(plan.seen.observation, plan.standing)
        victims = choose(self._cache.pods(workload), busy, action.replicas)
        await self._marker.mark(namespace, victims)
        if victims.marks and namespace not in self._marker.forbidden:
            names = ", ".join(f"{pod.name} ({_in_flight(pod, busy)})" for pod in victims.pods[:MOST_NAMED])
            log.info("Chosen for removal, fewest requests in flight: %s", names, extra=plan.meta.log_fields)

    async def _scale(self, plan: PoolPlan, action: ScaleAction, state: PoolState) -> ScaleOutcome:
        """Order the replicas, of a target as it was decided on.

        A conflict that goes on is something else that only looks like one, such as a webhook that says no with a bare
        422.
        """
        target, ledger = action.target, state.targets[action.target.key]
        fields = plan.meta.log_fields | ({"target": str(target.key)} if len(plan.seen.targets) > 1 else {})
        order = ledger.sent(target, action.replicas, state.uid, plan.decision.reason, plan.at)
        try:
            await self._writer.scale(target, action.replicas)
        except Conflict as error:
            conflicts = ledger.conflicted(order)
            if conflicts <= CONFLICTS_BORNE:
                said = "Replicas changed in the meantime; deciding again at the next tick: %s"
                log.info(said, error, extra=fields)
                return NOT_SCALED
            self.failures["scale"] += 1
            repeated = f"{error}, {conflicts} times in a row"
            log.warning("%s", repeated, extra=fields)
            said = Reason.FAILED_UPDATE_SCALE.message(error=repeated)
            return ScaleOutcome(failure=(Reason.FAILED_UPDATE_SCALE, said))
        except ClusterError as error:
            self.failures["scale"] += 1
            log.warning("%s", error, extra=fields)
            ledger.failed(order, unknown=isinstance(error, Unanswered))
            return ScaleOutcome(failure=(Reason.FAILED_UPDATE_SCALE, Reason.FAILED_UPDATE_SCALE.message(error=error)))
        told = state.order_done(ledger, order)
        decision = plan.decision
        log.info(
            "%s",
            decision.reason,
            extra=fields | {"from": target.replicas, "to": action.replicas, "need": str(decision.need)},
        )
        return ScaleOutcome(
            scaled=True,
            ordered=state.history.replicas if told else None,
            blind_choice=None if action.grows else self._blind_choice(target),
        )

    def _blind_choice(self, target: Workload) -> tuple[str, str] | None:
        if target.key.sort != DEPLOYMENT:
            return None
        if self._marker is None:
            return "Normal", SWITCHED_OFF
        forbidden = target.key.namespace in self._marker.forbidden
        return (EventReason.VICTIMS_NOT_CHOSEN.type, FORBIDDEN) if forbidden else None

    def _count_cost(self) -> None:
        self.failures["cost"] += 1


def _in_flight(pod: Pod, busy: Mapping[str, float]) -> str:
    if pod.ready_since is None:
        return "not ready"
    return f"{busy[pod.name]:g} in flight" if pod.name in busy else "unknown"
