"""Which replicas a scale-down takes: those with the least work in flight, the youngest where equal.

The ReplicaSet controller ranks its pods by: not scheduled, phase, not Ready, deletion cost, pods that share a node,
time since Ready, restarts, age (`ActivePodsWithRanks` in Kubernetes' pkg/controller). So pods that are not Ready go
first whatever anyone writes, and a cost decides between the Ready ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from servingpool.adapters.cluster.objects import LOWEST_COST, Pod
from servingpool.decision.observation import Observation, Unknown


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that go."""

    pods: tuple[Pod, ...] = ()
    """All of them; who is not Ready first, then from the idlest to the busiest."""
    marks: tuple[Pod, ...] = ()
    """Of them, those that a cost must be written on for Kubernetes to choose alike."""
    clears: tuple[Pod, ...] = ()
    """Who stays and bears a cost of ours, left over from before: to be taken back first."""
    cost: int = -1
    """That cost: below those of all who stay, even where taking one back fails."""


def in_flight(observation: Observation) -> dict[str, float]:
    """Requests that run and wait on each replica, by its pod's name; a replica where either is unknown is left out."""
    if isinstance(observation.metrics, Unknown):
        return {}
    found = {}
    for page in observation.metrics:
        if not isinstance(page.running, Unknown) and not isinstance(page.waiting, Unknown):
            found[page.replica] = page.running + page.waiting
    return found


def choose(pods: Iterable[Pod], busy: Mapping[str, float], replicas: int) -> Victims:
    """Choose from the pods that stand so that `replicas` are left. `busy` is what `in_flight` has found.

    A replica that is not known is never taken for an idle one: it goes behind all that are known. Costs that others
    have written come before ours: their order is kept, and nothing is written where they have.
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


def _order(pod: Pod, busy: Mapping[str, float]) -> tuple[bool, bool, int, bool, float, float, float, str]:
    theirs = pod.cost is not None and not pod.cost.ours
    return (
        pod.ready_since is not None,
        not pod.unschedulable,
        pod.cost.value if pod.cost is not None and theirs else 0,
        theirs,  # of equal cost, those that we may mark: else who goes is not ours to say
        busy.get(pod.name, math.inf),
        -pod.created_at,
        -(pod.ready_since or 0.0),
        pod.name,
    )


def _bears(pod: Pod, cost: int) -> bool:
    return pod.cost is not None and (not pod.cost.ours or pod.cost.value <= cost)
