"""The replicas of a target, and their samples: of a kind whose replica is a group of pods, the sums over its pods.

Of a group some pods serve, such as the leader of a LeaderWorkerSet's group, and others do not. Which do is what their
samples show: as many in each group as in the one with the most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from servingpool.adapters.cluster import kinds
from servingpool.adapters.cluster.objects import Pod, TargetKey, Workload
from servingpool.adapters.prometheus import FleetReading, Missing, Selection
from servingpool.decision.observation import Histogram, Replica, ReplicaMetrics, Unknown

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
    """None where nothing was read."""


def replicas(
    groups: Sequence[tuple[Pod, ...]], size: int, reading: tuple[FleetReading, str, str] | None, now: float
) -> Replicas:
    """Those of these groups of pods, `size` pods each at least.

    `reading` is what was read, and the namespace and model to select; None where it failed.
    """
    whole: list[tuple[Pod, ...]] = []
    loading: list[tuple[Pod, ...]] = []
    for pods in groups:
        serves = len(pods) >= size and all(pod.ready_since is not None for pod in pods)
        (whole if serves else loading).append(pods)
    if reading is None:
        starting = tuple(_starting(pods, now) for pods in loading)
        return Replicas(tuple(_ready(pods, pods[0].name, now) for pods in whole), starting, None)
    found, namespace, model = reading
    selection = found.select(namespace, [pod.name for pods in whole for pod in pods], model)
    # It is no earlier than the last scrape. By our clock, set back by ten minutes, replicas that had been Ready for
    # five had just turned Ready, and what they had served counted for nothing.
    now = max((now, *(sample.scraped_at for sample in selection.samples)))
    starting = tuple(_starting(pods, now) for pods in loading)
    if all(len(pods) == 1 for pods in whole):
        return Replicas(tuple(_ready(pods, pods[0].name, now) for pods in whole), starting, selection)
    return _together(whole, starting, selection, now)


def numbered(found: Replicas, target: TargetKey) -> Replicas:
    """The same with their ordinals, where the kind removes the highest first."""
    if target.sort not in kinds.ORDINAL:
        return found

    def number(replica: Replica) -> Replica:
        # Of a group, the first pod is the one that is named so.
        first = replica.name.partition("+")[0]
        return replace(replica, ordinal=kinds.ordinal(target.sort, target.name, first))

    return replace(found, ready=tuple(map(number, found.ready)), starting=tuple(map(number, found.starting)))


def of_all(names: Sequence[str], targets: Sequence[Replicas]) -> Replicas:
    """Those of all targets of a pool, each replica with the name of its target."""
    selections = [one.selection for one in targets if one.selection is not None]
    selection = selected_of(selections) if len(selections) == len(targets) else None
    named = list(zip(names, targets, strict=True))
    return Replicas(
        tuple(replace(each, target=name) for name, one in named for each in one.ready),
        tuple(replace(each, target=name) for name, one in named for each in one.starting),
        selection,
    )


def selected_of(selections: Sequence[Selection]) -> Selection | None:
    """These selections as one; None if there are none."""
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
    """One replica's sample: the sums over its pods. Unknown where it is of one."""
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
    load_time = since - min(pod.created_at for pod in pods)
    ready_for = max(0.0, now - since)
    return Replica(name, age=ready_for + load_time, ready_for=ready_for)
