"""Sets replicas, and before a scale-down tells Kubernetes which pods to remove.

In: a `PoolPlan`. Out: a `ScaleOutcome`. Removed are those with the least work in flight, the youngest where equal.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, Conflict, Forbidden, NotFound, Unanswered
from servingpool.adapters.cluster.kinds import DEPLOYMENT
from servingpool.adapters.cluster.objects import LOWEST_COST, Key, Pod, TargetKey, Workload
from servingpool.api.conditions import Reason
from servingpool.catalogue.events import EventReason
from servingpool.decision.observation import Observation, Unknown
from servingpool.reconcile.keep.state import PoolState
from servingpool.reconcile.plan.pool_plan import PoolPlan, ScaleAction

log = logging.getLogger(__name__)
Check = Callable[[], bool]

LONGEST_MARKING = 5.0
"""Seconds for all marks of one scale-down. Later marks are skipped: a choice that is not
quite ours costs less than idle GPUs."""
LONGEST_CLEARING = 10.0
"""Seconds per tick for removing leftover marks."""
MARKS_AT_ONCE = 4
"""Marks of a scale-down that are written at a time. Sixteen pools are written at a time."""
CLEARED_AT_ONCE = 16
FORBIDDEN = EventReason.VICTIMS_NOT_CHOSEN.message(
    cause="No permission to patch pods",
    remedy="Grant patch on pods, or set podDeletionCost.enabled to false.",
)
SWITCHED_OFF = EventReason.VICTIMS_NOT_CHOSEN.message(
    cause="podDeletionCost.enabled is false",
    remedy="Set it to true to delete idle pods first.",
)


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that go."""

    pods: tuple[Pod, ...] = ()
    """Pods in the order of their going: those not Ready first, then from the idlest to the busiest."""
    marks: tuple[Pod, ...] = ()
    """Pods that need a mark, so that Kubernetes makes the same choice."""
    clears: tuple[Pod, ...] = ()
    """Pods that stay and still carry our cost: cleared first."""
    cost: int = -1
    """The cost of the marks: below that of every pod that stays, even if removing an old mark fails."""


def in_flight(observation: Observation, standing: Iterable[str] = ()) -> dict[str, float]:
    """Requests that run and wait on each replica, by its pod's name; a replica where either is unknown is left out.

    Those that are `standing` still serve none of what they show, so they have none, and go first.
    """
    if isinstance(observation.metrics, Unknown):
        return {}
    found = {}
    for sample in observation.metrics:
        if not isinstance(sample.running, Unknown) and not isinstance(sample.waiting, Unknown):
            found[sample.replica] = sample.running + sample.waiting
    return found | dict.fromkeys(standing, 0.0)


def choose(pods: Iterable[Pod], busy: Mapping[str, float], replicas: int) -> Victims:
    """The pods to remove so that `replicas` are left. `busy`: requests by pod, as `in_flight` found them.

    A replica with unknown load is not taken for idle: it comes after all known ones. Costs that others have written are
    respected and not overwritten.
    """
    order = sorted(pods, key=lambda pod: _order(pod, busy))
    count = len(order) - replicas
    if count <= 0:
        return Victims()
    gone, staying = order[:count], order[count:]
    cost = max(LOWEST_COST, min([0, *(pod.cost.value for pod in staying if pod.cost is not None)]) - 1)
    needed = bool(staying)  # Kubernetes does not rank where all go
    marks = tuple(pod for pod in gone if needed and pod.ready_since is not None and not _bears(pod, cost))
    clears = tuple(pod for pod in staying if pod.cost is not None and pod.cost.ours)
    return Victims(tuple(gone), marks, clears, cost)


class PodWriter(Protocol):
    """Part of a cluster that marking needs."""

    async def set_deletion_cost(self, pod: Key, uid: str, cost: int | None) -> None:
        """Set it, or take ours back. Conflict where it is another's, or the pod is gone."""


class Marker:
    """Writes deletion costs."""

    def __init__(self, writer: PodWriter, cache: ClusterCache, failures: dict[str, int]) -> None:
        self._writer, self._cache, self._failures = writer, cache, failures
        self.forbidden: set[str] = set()
        """Namespaces in which the last attempt was forbidden."""
        self._chosen: set[str] = set()
        """Uids of the victims of this tick."""

    async def mark(self, namespace: str, victims: Victims) -> None:
        """Write the cost on the victims. Never an error: the scale-down goes ahead."""
        self._chosen.update(pod.uid for pod in victims.pods)
        try:
            async with asyncio.timeout(LONGEST_MARKING):
                await self._write(namespace, victims.clears, None)
                # One before the others: if it is forbidden, all are.
                await self._write(namespace, victims.marks[:1], victims.cost)
                if namespace not in self.forbidden:
                    await self._write(namespace, victims.marks[1:], victims.cost)
        except TimeoutError:
            self._failures["cost"] += 1
            log.warning("The API server is slow; not all pods to remove in namespace %s are marked.", namespace)

    async def sweep(self, owns: Callable[[Key | TargetKey], bool]) -> None:
        """Take our deletion cost back from every pod that has survived, even of a deleted or unreadable pool.

        A mark that stays would decide the next scale-down, days later. This tick's victims keep theirs: the watch may
        not show the scale-down yet, an unconfirmed one may have happened, and a refused one would be marked and cleared
        at every tick.
        """
        chosen, self._chosen = self._chosen, set()
        found: defaultdict[tuple[str, Workload | None], list[Pod]] = defaultdict(list)
        for namespace, pod, workload in self._cache.costly():
            if pod.uid not in chosen and owns(_swept_as(namespace, pod, workload)):
                found[namespace, workload].append(pod)
        gate = asyncio.Semaphore(CLEARED_AT_ONCE)
        try:
            async with asyncio.timeout(LONGEST_CLEARING):
                # In parallel: a namespace whose pods cannot be patched must not delay the others.
                await asyncio.gather(
                    *(
                        self._write_one(namespace, pod, None, gate, partial(owns, _swept_as(namespace, pod, workload)))
                        for (namespace, workload), pods in found.items()
                        for pod in self._left_over(pods, workload)
                    )
                )
        except TimeoutError:
            self._failures["cost"] += 1
            log.warning("The API server is slow; leftover deletion costs are cleared at a later tick.")

    def _left_over(self, pods: Sequence[Pod], workload: Workload | None) -> Sequence[Pod]:
        """Pods that bear our deletion cost and have survived the scale-down it was written for.

        All, unless one is still under way: more pods stand than are asked for. In a rollout that means nothing, for it
        lets more stand; a scale-down then is the Deployment controller's work of a moment, which was done before we
        look again.
        """
        if workload is None or self._cache.rolling_out(workload):
            return pods
        return pods if sum(1 for _ in self._cache.pods(workload)) <= workload.replicas else ()

    async def _write(self, namespace: str, pods: Sequence[Pod], cost: int | None) -> None:
        gate = asyncio.Semaphore(MARKS_AT_ONCE)
        await asyncio.gather(*(self._write_one(namespace, pod, cost, gate) for pod in pods))

    async def _write_one(
        self, namespace: str, pod: Pod, cost: int | None, gate: asyncio.Semaphore, may: Check = lambda: True
    ) -> None:
        async with gate:
            if not may():
                return
            try:
                await self._writer.set_deletion_cost((namespace, pod.name), pod.uid, cost)
            except (Conflict, NotFound) as error:
                log.info("Deletion cost not changed: %s", error)  # the pod is gone, or somebody else has set a cost
            except Forbidden as error:
                self._failures["cost"] += 1
                if namespace not in self.forbidden:
                    log.warning("%s (%s)", FORBIDDEN, error)
                self.forbidden.add(namespace)
                return
            except ClusterError as error:
                self._failures["cost"] += 1
                log.warning("%s", error)
                return
            self.forbidden.discard(namespace)


def _swept_as(namespace: str, pod: Pod, workload: Workload | None) -> Key | TargetKey:
    """What tells who clears a pod's cost: its Deployment, or the pod itself where that is gone."""
    return (namespace, pod.name) if workload is None else workload.key


def _order(pod: Pod, busy: Mapping[str, float]) -> tuple[bool, bool, int, bool, float, float, float, str]:
    theirs = pod.cost is not None and not pod.cost.ours
    return (
        pod.ready_since is not None,
        not pod.unschedulable,
        pod.cost.value if pod.cost is not None and theirs else 0,
        theirs,  # at equal cost first those that we may mark
        busy.get(pod.name, math.inf),
        -pod.created_at,
        -(pod.ready_since or 0.0),
        pod.name,
    )


def _bears(pod: Pod, cost: int) -> bool:
    return pod.cost is not None and (not pod.cost.ours or pod.cost.value <= cost)


CONFLICTS_BORNE = 2
"""Conflicts in a row before they count as a failure."""
MOST_NAMED = 10
"""Pods named in a log line."""


@dataclass(frozen=True, slots=True)
class ScaleOutcome:
    """Result of carrying a plan out."""

    scaled: bool = False
    """The API server has set replicas."""
    ordered: int | None = None
    """Replicas of all targets since; None where not worth telling: one of many orders that answer another program."""
    failure: tuple[Reason, str] | None = None
    """Sentence for the Ready condition; None where nothing failed."""
    blind_choice: tuple[str, str] | None = None
    """Type and message of an event: why Kubernetes chose itself which pods to remove."""
    complete: bool = False
    """Every order of the plan was carried out."""

    def then(self, later: ScaleOutcome) -> ScaleOutcome:
        """This outcome, with that of acting on another target of the pool after it."""
        return ScaleOutcome(
            self.scaled or later.scaled,
            self.ordered if later.ordered is None else later.ordered,
            self.failure or later.failure,
            self.blind_choice or later.blind_choice,
        )


NOT_SCALED = ScaleOutcome()
"""Nothing was to be done; or somebody else changed the number meanwhile, and the next tick decides anew."""


class ScaleWriter(PodWriter, Protocol):
    """Part of a cluster that scaling needs."""

    async def scale(self, target: Workload, replicas: int) -> None:
        """Set replicas, if they are still as the target says."""


class Actor:
    """Acts for all pools."""

    def __init__(self, writer: ScaleWriter, cache: ClusterCache, *, deletion_costs: bool) -> None:
        self._writer, self._cache = writer, cache
        self.failures: dict[str, int] = {"scale": 0, "cost": 0}
        """Writes that failed, by kind, since the start."""
        self._marker = Marker(writer, cache, self.failures) if deletion_costs else None

    async def act(
        self, plan: PoolPlan, state: PoolState, unchanged: Check, admitted: Callable[[ScaleAction], bool]
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
            if unchanged():
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

    async def sweep(self, owns: Callable[[Key | TargetKey], bool]) -> None:
        """Clear our deletion costs from pods that have survived, of targets that we own."""
        if self._marker is not None:
            await self._marker.sweep(owns)

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
            return ScaleOutcome(failure=Reason.FAILED_UPDATE_SCALE.said(error=repeated))
        except ClusterError as error:
            self.failures["scale"] += 1
            log.warning("%s", error, extra=fields)
            ledger.failed(order, unknown=isinstance(error, Unanswered))
            return ScaleOutcome(failure=Reason.FAILED_UPDATE_SCALE.said(error=error))
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


def _in_flight(pod: Pod, busy: Mapping[str, float]) -> str:
    if pod.ready_since is None:
        return "not ready"
    return f"{busy[pod.name]:g} in flight" if pod.name in busy else "unknown"
