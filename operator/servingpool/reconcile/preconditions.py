"""What the cluster allows for a pool: whether its target may be scaled, and if not, why.

Each rule is what users of HPA and KEDA expect, and each has its own reason in the Ready condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from servingpool.adapters.cluster.objects import Key, Raw, Workload
from servingpool.api.conditions import Reason, Truth
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Mode
from servingpool.reconcile.collect import Collected


@dataclass(frozen=True, slots=True)
class Conduct:
    """What may be done, and the Ready condition that says so."""

    act: bool
    """The target's replicas may be set."""
    ready: Truth
    reason: Reason
    message: str


def gpus_of(pool: ServingPool, workload: Workload) -> int:
    """GPUs that a replica occupies: as the pool says, or else as the Deployment asks for; 0 where neither tells."""
    return pool.spec.targets[0].gpus_per_replica or workload.gpus


def check(seen: Collected, unschedulable: int, drift: str | None) -> Conduct:  # noqa: PLR0911, one a rule
    """What may be done with a pool in Auto mode, see `in_mode` for the others.

    `unschedulable` replicas have waited for a node for too long; `drift` tells who else sets the target's replicas.
    """
    pool, workload, owner = seen.pool, seen.workload, seen.owner
    name = f"Deployment {workload.key[1]}"
    if owner != pool.key:
        message = f"ServingPool '{owner[1]}' is older and scales Deployment '{workload.key[1]}'; delete one of the two."
        return Conduct(False, Truth.FALSE, Reason.AMBIGUOUS_OWNER, message)
    for other in seen.autoscalers:
        reason = Reason.OWNED_BY_KEDA if other.kind == "ScaledObject" else Reason.OWNED_BY_HPA
        message = f"{other.kind} '{other.key[1]}' scales Deployment '{workload.key[1]}'; delete it first."
        return Conduct(False, Truth.FALSE, reason, message)
    if workload.replicas == 0 and pool.spec.targets[0].min > 0:
        message = f"{name} was set to 0 replicas by hand, which pauses scaling; set it to {pool.spec.targets[0].min}"
        return Conduct(False, Truth.FALSE, Reason.SCALING_DISABLED, message)
    if drift is not None:
        return Conduct(True, Truth.FALSE, Reason.REPLICAS_CONTESTED, f"{name}: {drift}")
    waiting = sum(replica.unschedulable for replica in seen.observation.starting)
    if waiting:
        message = f"no node has room for {waiting} of {workload.replicas} replicas of {name}"
        if unschedulable:
            return Conduct(True, Truth.FALSE, Reason.UNSCHEDULABLE, message)
        # A cluster autoscaler brings nodes because pods are pending: that is the normal course of a scale-up.
        return Conduct(True, Truth.TRUE, Reason.WAITING_FOR_NODE, f"{message} yet")
    if seen.observation.rollout:
        message = f"{name} is amid a rollout: it may grow, and is not shrunk until the rollout ends"
        return Conduct(True, Truth.TRUE, Reason.ROLLOUT_IN_PROGRESS, message)
    return Conduct(True, Truth.TRUE, Reason.SUCCEEDED_GET_SCALE, f"{name} can be scaled")


NOT_APPLIED = {
    Mode.RECOMMEND: (Reason.RECOMMENDING, "Recommend mode: computes a replica count and does not apply it."),
    Mode.PAUSED: (Reason.PAUSED, "Paused mode: observes and does not scale."),
}


def in_mode(mode: Mode, auto: Conduct) -> Conduct:
    """What may be done in this mode, `auto` being what may be done in Auto.

    The other modes apply nothing, and say what would stop Auto: nobody should have to switch to find out.
    """
    if mode not in NOT_APPLIED:
        return auto
    reason, message = NOT_APPLIED[mode]
    if auto.ready is Truth.FALSE:
        message += f" Auto would be {'limited' if auto.act else 'blocked'} ({auto.reason}): {auto.message}"
    return Conduct(False, Truth.TRUE, reason, message)


def owners(pools: Mapping[Key, Raw]) -> dict[Key, Key]:
    """For each pool, the one that owns its target: the oldest that names it, unless its mode is Recommend.

    `pools` are all that exist, as the API server stores them. An owner with an invalid spec, an unknown backend or mode
    Paused stays the owner: otherwise a younger pool with other limits would scale the Deployment meanwhile.
    The younger one is refused, not both: otherwise anyone who may create a pool could stop one that serves.
    A pool in mode Recommend owns nothing, and is told who would own its target if it were in Auto.
    """
    oldest: dict[Key, Key] = {}
    found: dict[Key, Key] = {}
    for key, raw in sorted(pools.items(), key=lambda each: (each[1]["metadata"]["creationTimestamp"], each[0])):
        for target in _named(key, raw):
            found.setdefault(key, oldest.get(target, key))
            if raw["spec"].get("mode") != Mode.RECOMMEND:
                oldest.setdefault(target, key)
    return found


def _named(key: Key, pool: Raw) -> Iterator[Key]:
    """The Deployments that a pool names, even where the rest of its spec cannot be read."""
    spec = pool.get("spec")
    targets = spec.get("targets") if isinstance(spec, dict) else None
    for target in targets if isinstance(targets, list) else ():
        if isinstance(target, dict) and target.get("kind", "Deployment") == "Deployment":
            yield key[0], str(target.get("name"))
