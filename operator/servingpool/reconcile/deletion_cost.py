"""Chooses which replicas a scale-down removes: those with the least work in flight, the youngest where equal.

It also writes the marks that tell Kubernetes which pods to remove, and removes marks from pods that survive.

The ReplicaSet controller ranks its pods by: not scheduled, phase, not Ready, deletion cost, pods that share a node,
time since Ready, restarts, age (`ActivePodsWithRanks` in Kubernetes' pkg/controller). So pods that are not Ready are
removed first, whatever their cost, and the cost decides between Ready pods.

The costs themselves are the only record: any leader, also after a crash, reads them from the pods.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, Conflict, Forbidden, NotFound
from servingpool.adapters.cluster.objects import LOWEST_COST, Key, Pod, Workload
from servingpool.catalogue.events import EventReason
from servingpool.decision.observation import Observation, Unknown

log = logging.getLogger(__name__)

LONGEST_MARKING = 5.0
"""Seconds for all marks of one scale-down. Later marks are skipped: a choice that is not
quite ours costs less than idle GPUs."""
LONGEST_CLEARING = 10.0
"""Seconds per tick for removing leftover marks."""
MARKS_AT_ONCE = 4
"""Of one scale-down. Sixteen pools are written at a time."""
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
    """All of them: pods that are not Ready first, then from the idlest to the busiest."""
    marks: tuple[Pod, ...] = ()
    """Those of them that need a mark, so that Kubernetes makes the same choice."""
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
    """Choose from the pods that stand so that `replicas` are left. `busy` is what `in_flight` has found.

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


def left_over(pods: Sequence[Pod], *, standing: int, replicas: int, rollout: bool) -> Sequence[Pod]:
    """Of `pods`, which bear our cost, those that have survived the scale-down it was written for.

    All, unless one is still under way: more pods stand than are asked for. In a rollout that means nothing, for it lets
    more stand; a scale-down then is the Deployment controller's work of a moment, which was done before we look again.
    """
    return pods if rollout or standing <= replicas else ()


class PodWriter(Protocol):
    """What marking needs of a cluster."""

    async def set_deletion_cost(self, pod: Key, uid: str, cost: int | None) -> None:
        """Set it, or take ours back. Conflict where it is another's, or the pod is gone."""


class Marker:
    """Writes deletion costs."""

    def __init__(self, writer: PodWriter, cache: ClusterCache, failed: Callable[[], None]) -> None:
        self._writer, self._cache, self._failed = writer, cache, failed
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
            self._failed()
            log.warning("The API server is slow; not all pods to remove in namespace %s are marked.", namespace)

    async def sweep(self, leading: Callable[[], bool]) -> None:
        """Take our cost back from every pod that has survived, whatever its pool says or whether it has one.

        A mark that stays would decide the next scale-down, days later. This tick's victims keep theirs: the watch may
        not show the scale-down yet, an unconfirmed one may have happened, and a refused one would be marked and cleared
        at every tick.
        """
        chosen, self._chosen = self._chosen, set()
        found: defaultdict[tuple[str, Workload | None], list[Pod]] = defaultdict(list)
        for namespace, pod, workload in self._cache.costly():
            if pod.uid not in chosen:
                found[namespace, workload].append(pod)
        gate = asyncio.Semaphore(CLEARED_AT_ONCE)
        try:
            async with asyncio.timeout(LONGEST_CLEARING):
                # In parallel: a namespace whose pods cannot be patched must not delay the others.
                await asyncio.gather(
                    *(
                        self._write_one((namespace, pod.name), pod.uid, None, gate, leading)
                        for (namespace, workload), pods in found.items()
                        for pod in self._left_over(pods, workload)
                    )
                )
        except TimeoutError:
            self._failed()
            log.warning("The API server is slow; leftover deletion costs are cleared at a later tick.")

    def _left_over(self, pods: Sequence[Pod], workload: Workload | None) -> Sequence[Pod]:
        if workload is None:
            return pods
        standing = sum(1 for _ in self._cache.pods(workload))
        return left_over(pods, standing=standing, replicas=workload.replicas, rollout=self._cache.rolling_out(workload))

    async def _write(self, namespace: str, pods: Sequence[Pod], cost: int | None) -> None:
        gate = asyncio.Semaphore(MARKS_AT_ONCE)
        await asyncio.gather(*(self._write_one((namespace, pod.name), pod.uid, cost, gate) for pod in pods))

    async def _write_one(
        self, pod: Key, uid: str, cost: int | None, gate: asyncio.Semaphore, leading: Callable[[], bool] = lambda: True
    ) -> None:
        async with gate:
            if not leading():
                return
            try:
                await self._writer.set_deletion_cost(pod, uid, cost)
            except (Conflict, NotFound) as error:
                log.info("Deletion cost not changed: %s", error)  # the pod is gone, or somebody else has set a cost
            except Forbidden as error:
                self._failed()
                if pod[0] not in self.forbidden:
                    log.warning("%s (%s)", FORBIDDEN, error)
                self.forbidden.add(pod[0])
                return
            except ClusterError as error:
                self._failed()
                log.warning("%s", error)
                return
            self.forbidden.discard(pod[0])


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
