"""What a pool scales: the keys of its targets, and what the cluster shows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servingpool.adapters.cluster.kinds import group_of
from servingpool.adapters.cluster.objects import Autoscaler, Key, TargetKey, Workload
from servingpool.api.serving_pool import ServingPool
from servingpool.api.target import Target

Owners = Mapping[Key, Mapping[TargetKey, Key]]
"""Of each pool, which pool owns each of its targets, see `preconditions.owners`."""


@dataclass(frozen=True, slots=True)
class SeenTarget:
    """One target of a pool, as it is now."""

    name: str
    """As decisions call it."""
    spec: Target
    workload: Workload
    owner: Key
    """The pool that owns it."""
    autoscalers: Sequence[Autoscaler]
    """Others that scale it."""
    seen: int
    """Its replicas that are ready or starting."""
    strangers: tuple[str, ...] = ()
    """Pods that count as its, though another controller has them: names, each with that controller."""

    @property
    def gpus(self) -> int:
        """GPUs that a replica occupies: as the pool says, or else as its pods ask for; 0 where neither tells."""
        return self.spec.gpus_per_replica or self.workload.gpus

    @property
    def ungrouped(self) -> bool:
        """Whether a replica is several pods, and nothing tells which.

        Twice as many as there are replicas, or more: a rollout may add some, and a number may be late.
        """
        most = max(self.workload.replicas, self.workload.standing)
        return self.workload.selector is not None and 0 < 2 * most <= self.seen


def keys_of(pool: ServingPool) -> tuple[TargetKey, ...]:
    """What the pool scales, in the order of the spec: always in its own namespace, as with HPA."""
    namespace = pool.metadata.namespace
    return tuple(TargetKey(namespace, one.name, one.kind, group_of(one.api_version)) for one in pool.spec.targets)


def target_of(pool: ServingPool) -> TargetKey:
    """What a pool of one target scales."""
    return keys_of(pool)[0]


def owns(pool: Key, owned: Owners) -> bool:
    """Whether a pool owns all its targets."""
    return all(owner == pool for owner in owned.get(pool, {}).values())
