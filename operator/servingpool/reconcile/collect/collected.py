"""The first step of a tick: each pool as Prometheus and the cluster show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import Key, TargetKey, Workload
from servingpool.adapters.gateways.own_gateway import OwnGateway
from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.gateways import GatewayProfile
from servingpool.adapters.prometheus.samples import FleetReading, Selection, with_own_buckets
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import GatewayMetrics, Observation, Ordered, ReplicaMetrics, Unknown
from servingpool.decision.roles import of_decode, of_prefill
from servingpool.reconcile.collect.readings import Readings
from servingpool.reconcile.collect.targets import (
    SeenTarget,
    keys_of,
    numbered,
    of_all,
    replicas,
    role_of,
    selected_of,
    stages_of,
)


@dataclass(frozen=True, slots=True)
class SeenStage:
    """Observation of targets that are sized together: all of a pool's, or those of prefill or decode."""

    pool: ServingPool
    """The pool with these targets alone, and their part of the SLO."""
    targets: tuple[SeenTarget, ...]
    """Targets in the order of the spec."""
    observation: Observation
    selection: Selection | None
    """The samples that `observation` uses; None if the reading failed."""

    @property
    def role(self) -> str:
        """`prefill` or `decode`; empty for all targets of a pool."""
        return role_of(self.pool)


@dataclass(frozen=True, slots=True)
class Collected:
    """Observation of a pool: everything that is known of it in Prometheus and the cluster."""

    pool: ServingPool
    at: float
    """Unix time in seconds."""
    stages: tuple[SeenStage, ...]
    """The stages: one, or prefill and decode."""
    observation: Observation
    """Observation of all stages together; `selection` likewise."""
    selection: Selection | None
    gateway: tuple[OwnGateway, GatewayProfile] | None = None
    """Gateway in front of the pool."""
    ours: bool = False
    """Whether the requested replicas are the operator's last order."""
    left_out: tuple[Sequence[str], int] = ((), 0)
    """Objects of the pool's namespace that are not read, or in part, each with the reason: some, and how many."""

    @property
    def targets(self) -> tuple[SeenTarget, ...]:
        """Targets that the pool scales, in the order of the spec, stage by stage."""
        return tuple(target for stage in self.stages for target in stage.targets)


def collect(
    pool: ServingPool, owned: Mapping[TargetKey, Key], cache: ClusterCache, readings: Readings, now: float
) -> Collected | None:
    """A pool as it is now; None if one of its targets does not exist. `owned`: the pool that owns each target."""
    workloads = {key: found for key in keys_of(pool) if (found := cache.workload(key)) is not None}
    if len(workloads) < len(pool.spec.targets):
        return None
    pods: set[PodKey] = set()
    if pool.spec.goes_to_zero:
        groups = (group for workload in workloads.values() for group in cache.replicas(workload))
        pods = {(pool.metadata.namespace, pod.name) for group in groups for pod in group}
    gateway = readings.gateway(pool, pods)
    parts = [_stage(part, workloads, owned, cache, readings, gateway, now) for part in stages_of(pool)]
    selection = selected_of([one.selection for one in parts if one.selection is not None])
    stages = tuple(_completed(one, readings, now) for one in _apart(parts))
    observation = stages[0].observation if len(stages) == 1 else _together(*parts)
    left_out = cache.left_out.around(pool.metadata.namespace)
    return Collected(pool, now, stages, observation, selection, readings.gateway_profile(pool), left_out=left_out)


def _apart(stages: Sequence[SeenStage]) -> Sequence[SeenStage]:
    """The observation of each stage."""
    if len(stages) == 1:
        return stages
    prefill, decode = stages
    return (
        replace(prefill, observation=of_prefill(prefill.observation)),
        replace(decode, observation=of_decode(decode.observation)),
    )


def _together(prefill: SeenStage, decode: SeenStage) -> Observation:
    """The observation of both stages."""
    first, second = prefill.observation, decode.observation
    metrics: tuple[ReplicaMetrics, ...] | Unknown
    if isinstance(first.metrics, Unknown):
        metrics = first.metrics
    else:
        metrics = second.metrics if isinstance(second.metrics, Unknown) else (*first.metrics, *second.metrics)
    return replace(
        first,
        requested=first.requested + second.requested,
        ready=first.ready + second.ready,
        starting=first.starting + second.starting,
        metrics=metrics,
        rollout=first.rollout or second.rollout,
        targets=first.targets + second.targets,
    )


def _completed(stage: SeenStage, readings: Readings, now: float) -> SeenStage:
    """The stage with a whole observation, as decisions take it."""
    limit = min(target.workload.batch_limit for target in stage.targets)
    return replace(stage, observation=readings.completed(stage.pool, stage.observation, limit, now))


def _stage(
    pool: ServingPool,
    found: Mapping[TargetKey, Workload],
    owned: Mapping[TargetKey, Key],
    cache: ClusterCache,
    readings: Readings,
    gateway: GatewayMetrics,
    now: float,
) -> SeenStage:
    """`pool` has the targets of this stage only."""
    workloads = [found[key] for key in keys_of(pool)]
    metered = readings.metered(pool)
    observation, selection = observe(pool, workloads, cache, readings.of(pool), gateway, now, metered=metered)
    if selection is not None and selection.missing:
        readings.ask_why(pool, selection)
    targets = tuple(
        SeenTarget(
            name,
            spec,
            workload,
            owned.get(workload.key, pool.key),
            cache.autoscalers(workload.key),
            sum(one.target == name for one in (*observation.ready, *observation.starting))
            - len(cache.absent.get(workload.key, ())),
            tuple(f"Pod {pod.name} of {pod.owner}" for pod in cache.strangers(workload)),
            next((pod.unschedulable for pod in cache.pods(workload) if pod.unschedulable), ""),
        )
        for name, spec, workload in zip(pool.spec.target_names, pool.spec.targets, workloads, strict=True)
    )
    backlog, left = readings.backlog(pool)
    return SeenStage(pool, targets, replace(observation, backlog=backlog, time_left=left), selection)


def observe(
    pool: ServingPool,
    workloads: Sequence[Workload],
    cache: ClusterCache,
    reading: FleetReading | Unknown,
    gateway: GatewayMetrics,
    now: float,
    *,
    metered: bool = False,
) -> tuple[Observation, Selection | None]:
    """The core's observation of a pool, and which samples it uses; no selection if the reading failed.

    `workloads`: its targets, in the order of the spec. `metered`: the engines export nothing, and no pod is missed.
    """
    namespace, model, names = pool.metadata.namespace, pool.spec.model, pool.spec.target_names
    found = None if isinstance(reading, Unknown) else (reading, namespace, model)
    each = [replicas(cache.replicas(one), one.size, found, now) for one in workloads]
    seen = of_all(names, [numbered(those, one, cache.absent, now) for those, one in zip(each, workloads, strict=True)])
    selection, requested = seen.selection, sum(workload.replicas for workload in workloads)
    metrics: tuple[ReplicaMetrics, ...] | Unknown
    if isinstance(reading, Unknown):
        metrics = reading
    elif selection is None or (requested and not seen.ready and not seen.starting):
        metrics, selection = Unknown(f"none of {requested} requested replicas has a pod yet"), None
    elif metered:
        metrics = gateway.arrivals if isinstance(gateway.arrivals, Unknown) else ()
        selection = None if isinstance(metrics, Unknown) else Selection((), {})
    else:
        metrics = own_samples(pool, selection.samples)
    observation = Observation(
        requested=requested,
        ready=seen.ready,
        starting=seen.starting,
        metrics=metrics,
        gateway=gateway,
        metered=metered,
        rollout=any(cache.rolling_out(workload) for workload in workloads),
        targets=tuple(
            Ordered(name, workload.replicas, workload.in_turn) for name, workload in zip(names, workloads, strict=True)
        ),
    )
    return observation, selection


def own_samples(pool: ServingPool, samples: Iterable[ReplicaMetrics]) -> tuple[ReplicaMetrics, ...]:
    """The samples with this pool's buckets only: they were read for all pools together."""
    slo = pool.spec.slo
    return tuple(with_own_buckets(sample, slo.time_to_first_token, slo.time_per_output_token) for sample in samples)
