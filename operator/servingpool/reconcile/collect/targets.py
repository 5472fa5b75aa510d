"""The targets of a pool, its stages, and the replicas of each with their samples.

Of a kind whose replica is a group of pods, the samples of a replica are the sums over its pods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from servingpool.adapters.cluster import kinds
from servingpool.adapters.cluster.kinds import group_of
from servingpool.adapters.cluster.objects import Autoscaler, Key, Pod, TargetKey, Workload
from servingpool.adapters.prometheus.diagnosis import Missing
from servingpool.adapters.prometheus.samples import FleetReading, Selection
from servingpool.api.role import Role
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Spec
from servingpool.api.target import Target
from servingpool.decision.observation import Histogram, Replica, ReplicaMetrics, Unknown
from servingpool.decision.pool import Slo
from servingpool.decision.roles import Ratio, decode_slo, prefill_slo

Owners = Mapping[Key, Mapping[TargetKey, Key]]
"""Owner of each target, by pool and target: see `preconditions.owners`."""


@dataclass(frozen=True, slots=True)
class SeenTarget:
    """A target of a pool, as it is now."""

    name: str
    """Name of the target in decisions."""
    spec: Target
    workload: Workload
    owner: Key
    """The pool that owns it."""
    autoscalers: Sequence[Autoscaler]
    """Others that scale it."""
    seen: int
    """Replicas of the target that have a pod, ready or starting."""
    strangers: tuple[str, ...] = ()
    """Pods that count as its, though another controller has them: names, each with that controller."""
    scheduler: str = ""
    """The scheduler's words on the first of its pods that no node takes; empty where none waits for one."""

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
    """Keys of the objects that the pool scales, in the order of the spec: always in its own namespace, as with HPA."""
    namespace = pool.metadata.namespace
    return tuple(TargetKey(namespace, one.name, one.kind, group_of(one.api_version)) for one in pool.spec.targets)


def target_of(pool: ServingPool) -> TargetKey:
    """Key of the object that a pool of one target scales."""
    return keys_of(pool)[0]


def owns(pool: Key, owned: Owners) -> bool:
    """Whether a pool owns all its targets."""
    return all(owner == pool for owner in owned.get(pool, {}).values())


def stages_of(pool: ServingPool) -> tuple[ServingPool, ...]:
    """The pool as its only stage; with roles, a pool of the prefill targets and a pool of the decode targets."""
    if not pool.spec.has_roles:
        return (pool,)
    slo = slo_of(pool.spec)
    return tuple(
        _stage(pool, role, part) for role, part in ((Role.PREFILL, prefill_slo(slo)), (Role.DECODE, decode_slo(slo)))
    )


def role_of(pool: ServingPool) -> str:
    """The role of a stage; empty for all targets of a pool."""
    return role.value if (role := pool.spec.targets[0].role) else ""


def of_role(role: str, said: str) -> str:
    """The message, with the role's name before it. It has that already where a target is called like its role."""
    return said if not role or said.startswith(f"{role}: ") else f"{role}: {said}"


def ratio_of(pool: ServingPool) -> Ratio:
    """The bounds on prefill replicas for each decode replica."""
    given = pool.spec.prefill_per_decode
    return Ratio() if given is None else Ratio(given.min or 0.0, given.max or math.inf)


def slo_of(spec: Spec) -> Slo:
    """The client's SLO, in the core's own units."""
    return Slo(spec.slo.time_to_first_token, spec.slo.time_per_output_token, spec.slo.attainment_share)


def _stage(pool: ServingPool, role: Role, slo: Slo) -> ServingPool:
    spec, own = pool.spec, pool.spec.slo
    bounds = {"time_to_first_token": slo.time_to_first_token, "time_per_output_token": slo.time_per_output_token}
    part = own.model_copy(update={**bounds, "attainment": 100.0 * slo.attainment})
    targets = tuple(one for one in spec.targets if one.role is role)
    return pool.model_copy(update={"spec": spec.model_copy(update={"asked_slo": part, "targets": targets})})


MOST_ABSENT = 64
"""Numbers without a pod that are told of."""
OTHER_BUCKETS = Unknown("the pods of one replica have different histogram buckets")
_WHAT = {"replica", "scraped_at", "ttft_from_admission"}
"""Fields of a sample that are no figures."""


def told_by_name(workload: Workload, groups: Sequence[tuple[Pod, ...]]) -> bool:
    """Whether the names of the pods of the past tell the replicas of the past: each that served was one."""
    return workload.key.sort in kinds.ORDINAL or all(len(pods) == 1 for pods in groups)


@dataclass(frozen=True, slots=True)
class Replicas:
    """A target's replicas, and the samples of those that are ready."""

    ready: tuple[Replica, ...]
    starting: tuple[Replica, ...]
    selection: Selection | None
    """Selection of the samples; None where nothing was read."""


def replicas(
    groups: Sequence[tuple[Pod, ...]], size: int, reading: tuple[FleetReading, str, str] | None, now: float
) -> Replicas:
    """Replicas of these groups of pods, `size` pods each at least.

    `reading` is what was read, and the namespace and model to select; None where it failed.
    """
    whole: list[tuple[Pod, ...]] = []
    loading: list[tuple[Pod, ...]] = []
    for pods in groups:
        serves = len(pods) >= size and all(pod.ready_since is not None for pod in pods)
        (whole if serves else loading).append(pods)
    selection = None
    if reading is not None:
        found, namespace, model = reading
        selection = found.select(namespace, [pod.name for pods in whole for pod in pods], model)
        # It is no earlier than the last scrape. By our clock, set back by ten minutes, replicas that had been Ready
        # for five had just turned Ready, and what they had served counted for nothing.
        now = max((now, *(sample.scraped_at for sample in selection.samples)))
    starting = tuple(_starting(pods, now) for pods in loading)
    if selection is None or all(len(pods) == 1 for pods in whole):
        return Replicas(tuple(_ready(pods, pods[0].name, now) for pods in whole), starting, selection)
    return _together(whole, starting, selection, now)


def numbered(found: Replicas, target: Workload, absent: dict[TargetKey, dict[int, float]], now: float) -> Replicas:
    """The replicas with their ordinals, where the kind removes the highest first.

    A number below these that no pod has, as where its node is lost, is a replica that starts, and in the end does not
    come. `absent`: since when numbers have no pod (Unix time in seconds), kept here from look to look.
    """
    key = target.key
    if key.sort not in kinds.ORDINAL:
        return found
    ready, starting = (
        # Of a group, the first pod is the one that is named so.
        [replace(one, ordinal=kinds.ordinal(key.sort, key.name, one.name.partition("+")[0])) for one in those]
        for those in (found.ready, found.starting)
    )
    known = {one.ordinal for one in (*ready, *starting) if one.ordinal is not None}
    end = min(max(known, default=0), target.first + min(target.replicas, len(known) + MOST_ABSENT))
    before = absent.get(key, {})
    absent[key] = since = {each: before.get(each, now) for each in range(target.first, end) if each not in known}
    gone = [Replica(f"{key.name}-{each}", age=max(0.0, now - at), ordinal=each) for each, at in since.items()]
    return replace(found, ready=tuple(ready), starting=(*starting, *gone))


def of_all(names: Sequence[str], targets: Sequence[Replicas]) -> Replicas:
    """Replicas of all targets of a pool, each with the name of its target."""
    selections = [one.selection for one in targets if one.selection is not None]
    selection = selected_of(selections) if len(selections) == len(targets) else None
    return Replicas(
        tuple(replace(each, target=name) for name, one in zip(names, targets, strict=True) for each in one.ready),
        tuple(replace(each, target=name) for name, one in zip(names, targets, strict=True) for each in one.starting),
        selection,
    )


def selected_of(selections: Sequence[Selection]) -> Selection | None:
    """The selections as one; None if there are none."""
    if len(selections) < 2:
        return selections[0] if selections else None
    return Selection(
        tuple(sample for one in selections for sample in one.samples),
        {pod: missing for one in selections for pod, missing in one.missing.items()},
        tuple(sorted(pod for one in selections for pod in one.doubled)),
        tuple(sorted(pod for one in selections for pod in one.native)),
        {pod: why for one in selections for pod, why in one.unreadable.items()},
    )


def _together(
    groups: Sequence[tuple[Pod, ...]], starting: tuple[Replica, ...], selection: Selection, now: float
) -> Replicas:
    by_pod = {sample.replica: sample for sample in selection.samples}
    told = [[by_pod[pod.name] for pod in pods if pod.name in by_pod] for pods in groups]
    most = max(map(len, told), default=0)
    ready: list[Replica] = []
    samples: list[ReplicaMetrics] = []
    missing: dict[str, Missing] = {}
    for pods, own in zip(groups, told, strict=True):
        # A name of the pods that serve: with another one, counters of other pods would look like a reset.
        name = "+".join(sample.replica for sample in own) or pods[0].name
        ready.append(_ready(pods, name, now))
        if own and len(own) == most:
            samples.append(summed(name, own))
        else:
            silent = [pod.name for pod in pods if pod.name not in by_pod]
            missing.update((each, selection.missing[each]) for each in silent[: max(1, most - len(own))])
    return Replicas(tuple(ready), starting, replace(selection, samples=tuple(samples), missing=missing))


def summed(name: str, samples: Sequence[ReplicaMetrics]) -> ReplicaMetrics:
    """Sample of a replica: the sums over its pods. A figure that a pod lacks is Unknown."""
    if len(samples) == 1:
        return replace(samples[0], replica=name) if samples[0].replica != name else samples[0]
    figures: Mapping[str, Any] = {
        one.name: _sum([getattr(sample, one.name) for sample in samples])
        for one in fields(ReplicaMetrics)
        if one.name not in _WHAT
    }
    return ReplicaMetrics(
        replica=name,
        scraped_at=min(sample.scraped_at for sample in samples),
        ttft_from_admission=all(sample.ttft_from_admission for sample in samples),
        **figures,
    )


def _sum(figures: Sequence[Any]) -> Any:
    unknown = next((each for each in figures if isinstance(each, Unknown)), None)
    if unknown is not None:
        return unknown
    first = figures[0]
    if not isinstance(first, Histogram):
        return sum(figures)
    if any(each.bounds != first.bounds for each in figures):
        return OTHER_BUCKETS
    return Histogram(
        first.bounds,
        tuple(map(sum, zip(*(each.counts for each in figures), strict=True))),
        sum(each.total for each in figures),
        sum(each.count for each in figures),
    )


def _starting(pods: tuple[Pod, ...], now: float) -> Replica:
    age = max(0.0, now - min(pod.created_at for pod in pods))
    unschedulable, gated = any(pod.unschedulable for pod in pods), any(pod.gated for pod in pods)
    return Replica(pods[0].name, age=age, unschedulable=unschedulable, gated=gated)


def _ready(pods: tuple[Pod, ...], name: str, now: float) -> Replica:
    # Between two times of the API server's clock, which ours may be behind: else a cold start would read as short.
    since = max(pod.ready_since or 0.0 for pod in pods)
    ready_for = max(0.0, now - since)
    return Replica(name, age=ready_for + since - min(pod.created_at for pod in pods), ready_for=ready_for)
