"""From cache and reading to the core's Observation, live and from history."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.names import pods_of
from servingpool.adapters.cluster.objects import Pod, Workload
from servingpool.adapters.prometheus import (
    FleetReading,
    PodKey,
    PodPages,
    ReadRequest,
    Selection,
    with_own_buckets,
)
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import Observation, Reading, Replica, ReplicaMetrics, Unknown
from servingpool.decision.pool import Behavior, Pool, Slo
from servingpool.reconcile.conduct import target_of

LONG_READY = 1e6
"""Seconds. History shows when a page was there, not when its pod was made: far enough back that no cold start
and no fresh engine is read into it."""


def core_pool(pool: ServingPool, *, in_charge: bool) -> Pool:
    """The spec in the core's own units."""
    spec = pool.spec
    return Pool(
        slo=Slo(
            time_to_first_token=spec.slo.time_to_first_token,
            time_per_output_token=spec.slo.time_per_output_token,
            attainment=spec.slo.attainment_share,
        ),
        min_replicas=spec.targets[0].min,
        max_replicas=spec.targets[0].max,
        in_charge=in_charge,
        behavior=Behavior(
            scale_down_window=spec.behavior.scale_down_window,
            calibration=spec.behavior.calibration,
            cold_start=spec.behavior.cold_start,
        ),
    )


def requests_for(pools: Iterable[ServingPool]) -> dict[tuple[str, tuple[tuple[str, str], ...]], ReadRequest]:
    """One request for all pools of a backend that share engine and labels, by that pair."""
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], ReadRequest] = {}
    for pool in pools:
        share = share_of(pool)
        before = merged.get(share, ReadRequest(engine=share[0], match_labels=share[1]))
        ttft, tpot = pool.spec.slo.time_to_first_token, pool.spec.slo.time_per_output_token
        merged[share] = ReadRequest(
            engine=share[0],
            ttft_bounds=before.ttft_bounds | ({ttft} if ttft is not None else set()),
            tpot_bounds=before.tpot_bounds | ({tpot} if tpot is not None else set()),
            match_labels=share[1],
        )
    return merged


def share_of(pool: ServingPool) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What pools must have in common to be read together: engine and extra labels."""
    return pool.spec.engine.value, tuple(sorted(pool.spec.metrics.match_labels.items()))


def observe(
    pool: ServingPool,
    workload: Workload,
    cache: ClusterCache,
    reading: FleetReading | Unknown,
    gateway_queue: Reading,
    now: float,
) -> tuple[Observation, Selection | None]:
    """One look at a pool, and which pages it used; no selection where the reading failed."""
    ready: list[Replica] = []
    starting: list[Replica] = []
    for pod in cache.pods(workload):
        (ready if pod.ready_since is not None else starting).append(_replica(pod, now))
    selection = None
    metrics: tuple[ReplicaMetrics, ...] | Unknown
    if isinstance(reading, Unknown):
        metrics = reading
    elif workload.replicas and not ready and not starting:
        metrics = Unknown(f"of {workload.replicas} replicas no pod is to be seen")
    else:
        selection = reading.select(pool.metadata.namespace, [replica.name for replica in ready], pool.spec.model)
        metrics = _own(pool, selection.pages)
    observation = Observation(
        requested=workload.replicas,
        ready=tuple(ready),
        starting=tuple(starting),
        metrics=metrics,
        gateway_queue=gateway_queue,
        rollout=cache.rolling_out(workload),
    )
    return observation, selection


def apart(history: Sequence[tuple[float, PodPages]]) -> dict[tuple[str, str], list[tuple[float, PodPages]]]:
    """The history of each namespace and model by itself: else every pool looks through the pages of all."""
    found: defaultdict[tuple[str, str], list[tuple[float, PodPages]]] = defaultdict(list)
    for at, pages in history:
        looks: defaultdict[tuple[str, str], dict[PodKey, Mapping[str, ReplicaMetrics]]] = defaultdict(dict)
        for pod, models in pages.items():
            for model in models:
                looks[pod[0], model][pod] = models
        for owner, look in looks.items():
            found[owner].append((at, look))
    return found


def past(pool: ServingPool, history: Sequence[tuple[float, PodPages]]) -> Iterator[tuple[float, Observation]]:
    """The pool as Prometheus remembers it, oldest first.

    Pods of the past are no longer in the cluster, so they are told by namespace, model and name.
    """
    (namespace, target), model = target_of(pool), pool.spec.model
    own = re.compile(pods_of(target)).fullmatch
    for at, pages in history:
        found = tuple(
            models[model]
            for (where, pod), models in pages.items()
            if where == namespace and model in models and own(pod)
        )
        if found:
            ready = tuple(Replica(page.replica, age=LONG_READY, ready_for=LONG_READY) for page in found)
            yield at, Observation(requested=len(ready), ready=ready, metrics=_own(pool, found))


def _own(pool: ServingPool, pages: Iterable[ReplicaMetrics]) -> tuple[ReplicaMetrics, ...]:
    """The pages with this pool's buckets only: they were read for all pools together."""
    slo = pool.spec.slo
    return tuple(with_own_buckets(page, slo.time_to_first_token, slo.time_per_output_token) for page in pages)


def _replica(pod: Pod, now: float) -> Replica:
    if pod.ready_since is None:
        return Replica(pod.name, age=max(0.0, now - pod.created_at), unschedulable=pod.unschedulable)
    # Between two times of the API server's clock, which ours may be behind: else a cold start would read as short.
    load_time = pod.ready_since - pod.created_at
    ready_for = max(0.0, now - pod.ready_since)
    return Replica(pod.name, age=ready_for + load_time, ready_for=ready_for)
