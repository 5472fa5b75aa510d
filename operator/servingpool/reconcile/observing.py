"""From cache and reading to the core's Observation, live and from history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import Pod, Workload
from servingpool.adapters.prometheus import FleetReading, PodPages, ReadRequest, Selection
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Mode
from servingpool.decision.observation import Observation, Replica
from servingpool.decision.pool import Behavior, Pool, Slo
from servingpool.decision.unknown import Unknown

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
        in_charge=in_charge and spec.mode is Mode.AUTO,
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
    pool: ServingPool, workload: Workload, cache: ClusterCache, reading: FleetReading | Unknown, now: float
) -> tuple[Observation, Selection | None]:
    """One look at a pool, and which pages it used; no selection where the reading failed."""
    ready: list[Replica] = []
    starting: list[Replica] = []
    for pod in cache.pods(workload):
        (ready if pod.ready_since is not None else starting).append(_replica(pod, now))
    selection = None
    if not isinstance(reading, Unknown):
        selection = reading.select(pool.metadata.namespace, [replica.name for replica in ready], pool.spec.model)
    observation = Observation(
        requested=workload.replicas,
        ready=tuple(ready),
        starting=tuple(starting),
        metrics=reading if isinstance(reading, Unknown) else selection.pages if selection is not None else (),
        rollout=cache.rolling_out(workload),
    )
    return observation, selection


def past(
    pool: ServingPool, history: Sequence[tuple[float, PodPages]], *, shared: bool
) -> Iterator[tuple[float, Observation]]:
    """The pool as Prometheus remembers it, oldest first.

    Pods of the past are no longer in the cluster, so they are told by namespace and model. Where another pool shares
    both (`shared`), nothing can be told apart and there is no history.
    """
    if shared:
        return
    namespace, model = pool.metadata.namespace, pool.spec.model
    for at, pages in history:
        found = tuple(models[model] for (where, _), models in pages.items() if where == namespace and model in models)
        if found:
            ready = tuple(Replica(page.replica, age=LONG_READY, ready_for=LONG_READY) for page in found)
            yield at, Observation(requested=len(ready), ready=ready, metrics=found)


def _replica(pod: Pod, now: float) -> Replica:
    return Replica(
        name=pod.name,
        age=max(0.0, now - pod.created_at),
        ready_for=None if pod.ready_since is None else max(0.0, now - pod.ready_since),
        unschedulable=pod.unschedulable,
    )
