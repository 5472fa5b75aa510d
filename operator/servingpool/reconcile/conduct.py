"""What the cluster allows for a pool: whether its target may be scaled, and if not, why.

Each rule is what users of HPA and KEDA expect, and each has its own reason in the Ready condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import Key, Raw, Workload, key_of
from servingpool.api.conditions import Reason, Truth
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Mode
from servingpool.decision.observation import Observation


@dataclass(frozen=True, slots=True)
class Conduct:
    """What may be done, and the Ready condition that says so."""

    act: bool
    """The target's replicas may be set."""
    ready: Truth
    reason: Reason
    message: str


def target_of(pool: ServingPool) -> Key:
    """Namespace and name of the Deployment that the pool scales: always in its own namespace, as with HPA."""
    return pool.metadata.namespace, pool.spec.targets[0].name


def gpus_of(pool: ServingPool, workload: Workload) -> int:
    """GPUs that a replica occupies: as the pool says, or else as the Deployment asks for; 0 where neither tells."""
    return pool.spec.targets[0].gpus_per_replica or workload.gpus


def judge(  # noqa: PLR0911, one a rule
    pool: ServingPool,
    workload: Workload,
    cache: ClusterCache,
    owner: Key | None,
    observation: Observation,
    stuck: int,
    contested: str | None,
) -> Conduct:
    """What may be done with a pool.

    `owner` is the pool that owns its target, see `owners`; `stuck` are the replicas for which there has been no node
    for too long; `contested` is what to tell of somebody else who sets their number.
    """
    name = f"Deployment {workload.key[1]}"
    if pool.spec.mode is Mode.PAUSED:
        return Conduct(False, Truth.TRUE, Reason.PAUSED, "mode is Paused: observed, not scaled")
    if pool.spec.mode is Mode.RECOMMEND:
        message = "mode is Recommend: decides and explains, touches nothing"
        return Conduct(False, Truth.TRUE, Reason.RECOMMENDING, message)
    if owner is not None and owner != pool.key:
        message = f"{name} already belongs to ServingPool {owner[1]}, which is older; delete one of the two"
        return Conduct(False, Truth.FALSE, Reason.AMBIGUOUS_OWNER, message)
    for other in cache.autoscalers(workload.key):
        reason = Reason.OWNED_BY_KEDA if other.kind == "ScaledObject" else Reason.OWNED_BY_HPA
        message = f"{name} is scaled by {other.kind} {other.key[1]}; delete it, or set mode to Recommend"
        return Conduct(False, Truth.FALSE, reason, message)
    if workload.replicas == 0 and pool.spec.targets[0].min > 0:
        message = f"{name} was set to 0 replicas by hand, which pauses scaling; set it to {pool.spec.targets[0].min}"
        return Conduct(False, Truth.FALSE, Reason.SCALING_DISABLED, message)
    if contested is not None:
        return Conduct(True, Truth.FALSE, Reason.REPLICAS_CONTESTED, f"{name}: {contested}")
    waiting = sum(replica.unschedulable for replica in observation.starting)
    if waiting:
        message = f"no node has room for {waiting} of {workload.replicas} replicas of {name}"
        if stuck:
            return Conduct(True, Truth.FALSE, Reason.UNSCHEDULABLE, message)
        # A cluster autoscaler brings nodes because pods are pending: that is the normal course of a scale-up.
        return Conduct(True, Truth.TRUE, Reason.WAITING_FOR_NODE, f"{message} yet")
    if cache.rolling_out(workload):
        message = f"{name} is amid a rollout: it may grow, and is not shrunk until the rollout ends"
        return Conduct(True, Truth.TRUE, Reason.ROLLOUT_IN_PROGRESS, message)
    return Conduct(True, Truth.TRUE, Reason.SUCCEEDED_GET_SCALE, f"{name} can be scaled")


def owners(pools: Iterable[Raw]) -> dict[Key, Key]:
    """Which pool owns which Deployment: the oldest that names it, unless its mode is Recommend.

    `pools` are all that exist, as the API server stores them. An owner with an invalid spec, an unknown backend or mode
    Paused stays the owner: otherwise a younger pool with other limits would scale the Deployment meanwhile.
    The younger one is refused, not both: otherwise anyone who may create a pool could stop one that serves.
    """
    found: dict[Key, Key] = {}
    for raw in sorted(pools, key=lambda raw: (raw["metadata"]["creationTimestamp"], key_of(raw))):
        for target in _claims(raw):
            found.setdefault(target, key_of(raw))
    return found


def _claims(raw: Raw) -> Iterator[Key]:
    """The Deployments that a pool names, even where the rest of its spec cannot be read."""
    spec = raw.get("spec")
    targets = spec.get("targets") if isinstance(spec, dict) and spec.get("mode") != Mode.RECOMMEND else None
    for target in targets if isinstance(targets, list) else ():
        if isinstance(target, dict) and target.get("kind", "Deployment") == "Deployment":
            yield key_of(raw)[0], str(target.get("name"))
