"""Whether the cluster allows a pool's target to be scaled, and if not, why.

Each rule is what users of HPA and KEDA expect, and each has its own reason in the Ready condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from servingpool.adapters.cluster import kinds
from servingpool.adapters.cluster.objects import Key, Parent, Raw, TargetKey
from servingpool.adapters.cluster.scale import Fault, Unscalable
from servingpool.api.conditions import Reason, Truth
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Mode
from servingpool.api.target import Target
from servingpool.reconcile.collect.collected import Collected
from servingpool.reconcile.collect.targets import SeenTarget


@dataclass(frozen=True, slots=True)
class ScalePermission:
    """Permission to scale, with the reason of the Ready condition."""

    act: bool
    """The target's replicas may be set."""
    reason: Reason
    message: str


def check(seen: Collected, unschedulable: int, drift: str | None) -> ScalePermission:  # noqa: PLR0911, one a rule
    """Permission to scale a pool in Auto mode, see `in_mode` for others. A pool is blocked if any target is.

    `unschedulable` replicas have waited for a node for too long; `drift` tells who else sets the targets' replicas.
    """
    pool, requested = seen.pool, seen.observation.requested
    if pool.metadata.deletion_timestamp is not None:
        return ScalePermission(False, *Reason.POOL_ENDING.said())
    if (ending := next((target.workload.key for target in seen.targets if target.workload.ending), None)) is not None:
        return ScalePermission(False, *Reason.TARGET_ENDING.said(target=ending))
    elsewhere = next((found for target in seen.targets if (found := _not_ours(pool, target)) is not None), None)
    if elsewhere is not None:
        return elsewhere
    if requested == 0 and not pool.spec.goes_to_zero and not seen.ours:
        first = next(one for one in seen.targets if one.spec.min > 0)  # to scale one is enough
        return ScalePermission(False, *Reason.SCALING_DISABLED.said(target=first.workload.key, min=first.spec.min))
    if drift is not None:
        return ScalePermission(True, Reason.REPLICAS_CONTESTED, drift)
    if (incomplete := _of_missing(seen, unschedulable)) is not None:
        return incomplete
    if seen.observation.rollout:
        return ScalePermission(True, *Reason.ROLLOUT_IN_PROGRESS.said())
    message = Reason.SUCCEEDED_GET_SCALE.message(target=" and ".join(str(one.workload.key) for one in seen.targets))
    if in_turn := {target.name: str(target.workload.key) for target in seen.targets if target.workload.in_turn}:
        message += f" Pods of {' and '.join(in_turn.values())} start one by one: "
        message += "recreate it with podManagementPolicy: Parallel."
    short = {one.name for one in seen.targets if one.name in in_turn and one.seen < one.workload.replicas}
    blocking = [(one.ordinal or 0, one.name) for one in seen.observation.starting if one.target in short]
    if blocking:
        message += f" Further pods wait for {min(blocking)[1]}, which is not Ready."
    return ScalePermission(True, Reason.SUCCEEDED_GET_SCALE, message)


def _of_missing(seen: Collected, unschedulable: int) -> ScalePermission | None:
    """Sentence on replicas that have no node, wait for a gate, or have no pod; None where all is well."""
    requested = seen.observation.requested
    if waiting := sum(replica.unschedulable for replica in seen.observation.starting):
        pods = f"{waiting} of {requested} pods {'is' if waiting == 1 else 'are'}"
        words = next((one.scheduler for one in seen.targets if one.scheduler), "no reason is given").rstrip(".")
        if unschedulable and not seen.pool.spec.several:  # else another target stands in, or the other role waits
            return ScalePermission(True, *Reason.UNSCHEDULABLE.said(pods=pods, scheduler=words))
        # A cluster autoscaler brings nodes because pods are pending: that is the normal course of a scale-up.
        return ScalePermission(True, *Reason.WAITING_FOR_NODE.said(pods=pods, scheduler=words))
    if gated := sum(replica.gated for replica in seen.observation.starting):
        return ScalePermission(True, *Reason.SCHEDULING_GATED.said(gated=gated, replicas=requested))
    missing = requested - sum(one.seen for one in seen.targets)
    refusal = next((one.workload.refusal for one in seen.targets if one.workload.refusal), "")
    if missing > 0 and refusal:
        return ScalePermission(True, *Reason.FAILED_CREATE.said(missing=missing, replicas=requested, error=refusal))
    return None


def _not_ours(pool: ServingPool, target: SeenTarget) -> ScalePermission | None:
    """Why a target is not this pool's to scale; None where it is."""
    workload, owner = target.workload, target.owner
    if owner != pool.key:
        return ScalePermission(False, *Reason.AMBIGUOUS_OWNER.said(owner=owner[1], target=workload.key))
    for other in target.autoscalers:
        keda = other.kind == "ScaledObject"
        owned = (Reason.OWNED_BY_KEDA if keda else Reason.OWNED_BY_HPA).said(name=other.key[1], target=workload.key)
        return ScalePermission(False, *owned)
    if workload.parent is not None:
        remedy = _remedy(workload.parent)
        owned = Reason.OWNED_BY_PARENT.said(parent=workload.parent, target=workload.key, remedy=remedy)
        return ScalePermission(False, *owned)
    if target.ungrouped:
        apart = Reason.PODS_NOT_GROUPED.said(target=workload.key, pods=target.seen, replicas=workload.standing)
        return ScalePermission(False, *apart)
    return None


def _remedy(parent: Parent) -> str:
    adapter = kinds.ADAPTERS.get(parent.sort)
    if parent.sort == kinds.KSERVE:
        setting = f"{kinds.KSERVE_CLASS}: {kinds.KSERVE_EXTERNAL}"
        return f"Set annotation {setting} on it: then it leaves replicas to others."
    if adapter is not None:
        return f"Name its {adapter} in spec.targets[] instead."
    if parent.sort in kinds.SCALABLE_PARENTS:
        return "Name it in spec.targets[] instead."
    return (
        "Set the replicas there, or name it in spec.targets[] if it has a scale subresource. If it leaves replicas to "
        f"others, say so with annotation {kinds.PARENT_SETS}: '{kinds.FALSE}' on the target."
    )


NOT_APPLIED = {Mode.RECOMMEND: Reason.RECOMMENDING.said(), Mode.PAUSED: Reason.PAUSED.said()}


def in_mode(mode: Mode, auto: ScalePermission) -> ScalePermission:
    """Permission to scale in this mode, given the permission in Auto.

    The other modes apply nothing, and say what would stop Auto: nobody should have to switch to find out.
    """
    if mode not in NOT_APPLIED:
        return auto
    reason, message = NOT_APPLIED[mode]
    if auto.reason.status is Truth.FALSE:
        message = f"{message} Auto would be {'limited' if auto.act else 'blocked'} ({auto.reason}): {auto.message}"
    return ScalePermission(False, reason, message)


def no_target(target: Target, namespace: str, fault: Unscalable) -> tuple[Reason, str]:
    """Why a target of a pool in this namespace cannot be scaled at all, as a reason and its message."""
    name, kind = f"{target.kind} {target.name}", f"{target.kind} of {target.api_version}"
    match fault.fault:
        case Fault.UNKNOWN_KIND:
            return Reason.UNKNOWN_KIND.said(kind=kind)
        case Fault.NO_SCALE:
            return Reason.NO_SCALE_SUBRESOURCE.said(kind=kind)
        case Fault.FORBIDDEN:
            return Reason.FORBIDDEN_GET_SCALE.said(target=name, kind=kind)
        case Fault.NO_SELECTOR:
            return Reason.INVALID_SELECTOR.said(target=name)
        case Fault.FAILED:
            return Reason.FAILED_GET_SCALE.said(target=name, error=fault.detail or fault.fault.value)
    return Reason.TARGET_NOT_FOUND.said(target=name, namespace=namespace)


def owners(pools: Mapping[Key, Raw]) -> dict[Key, dict[TargetKey, Key]]:
    """Owner of each target, for each pool: the oldest pool that names the target, unless its mode is Recommend.

    `pools` are all that exist, as the API server stores them. An owner with an invalid spec, an unknown backend or mode
    Paused stays the owner: otherwise a younger pool with other limits would scale the target meanwhile.
    The younger one is refused, not both: otherwise anyone who may create a pool could stop one that serves.
    A pool in mode Recommend owns nothing, and is told who would own its target if it were in Auto.
    """
    oldest: dict[TargetKey, Key] = {}
    found: dict[Key, dict[TargetKey, Key]] = {}
    # As text: what one object has there must not end the tick of all.
    ages = {key: str(raw["metadata"].get("creationTimestamp")) for key, raw in pools.items()}
    for key in sorted(pools, key=lambda each: (ages[each], each)):
        raw = pools[key]
        own = found[key] = {}
        for target in named(key, raw):
            own[target] = oldest.get(target, key)
            if raw["spec"].get("mode") != Mode.RECOMMEND:
                oldest.setdefault(target, key)
    return found


def named(key: Key, pool: Raw) -> Iterator[TargetKey]:
    """The targets that a pool names, even where the rest of its spec cannot be read."""
    for target in raw_targets(pool):
        kind, group = target.get("kind", "Deployment"), kinds.group_of(str(target.get("apiVersion", "apps/v1")))
        yield TargetKey(key[0], str(target.get("name")), str(kind), group)


def raw_targets(pool: Raw) -> list[Raw]:
    """The targets of a pool as the API server has them: whatever a person has written there."""
    spec = pool.get("spec")
    targets = spec.get("targets") if isinstance(spec, dict) else None
    return [one for one in targets if isinstance(one, dict)] if isinstance(targets, list) else []
