"""The pods of a pool: what the API server says of each, and what its engine counted in the last two minutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

from servingpool.adapters.cluster.kinds import base_of, group_of, path_of, plural_of
from servingpool.adapters.cluster.names import pods_of_any
from servingpool.adapters.cluster.objects import Pod
from servingpool.adapters.cluster.objects import pod as read
from servingpool.adapters.cluster.pools import PROBED, Pools
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.samples import ReadRequest, sample_of
from servingpool.api.spec import Spec
from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown
from servingpool.decision.observe.latency import LatencyCount

SPAN, STEP = 120.0, 30.0
"""Seconds that are looked back on, and between two looks."""


class Load(NamedTuple):
    """What an engine has and counted; None where it is not known."""

    running: float | None = None
    waiting: float | None = None
    tokens: float | None = None
    """Output tokens per second."""
    late: float | None = None
    """Percent of first tokens that came after the bound."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A pod."""

    pod: Pod
    state: str
    why: str
    """Why it is not Ready, in the words of the scheduler or of the kubelet; empty where it is."""
    load: Load


def listed(cluster: Pools, namespace: str, spec: Spec) -> list[Mapping[str, Any]]:
    """The pods of all targets, as the API server has them. ClusterError."""
    found = []
    for target in spec.targets:
        resources = cluster.listed(base_of(target.api_version), {}, PROBED)["resources"]
        path = path_of(target.api_version, plural_of(resources, target.kind) or "", namespace, target.name)
        if selector := cluster.listed(f"{path}/scale", {}, PROBED)["status"].get("selector"):  # else all would answer
            found += cluster.listed(path_of("v1", "pods", namespace), {"labelSelector": selector}, PROBED)["items"]
    return found


def events(cluster: Pools, namespace: str, name: str) -> list[dict[str, Any]]:
    """The pool's last events, the newest first. ClusterError."""
    of = {"fieldSelector": f"involvedObject.kind=ServingPool,involvedObject.name={name}"}
    found = cluster.listed(path_of("v1", "events", namespace), of, PROBED)["items"]
    last = [{**one, "at": one.get("lastTimestamp") or one.get("eventTime") or ""} for one in found]
    return sorted(last, key=lambda one: str(one["at"]), reverse=True)[:20]


def shown(raws: Iterable[Mapping[str, Any]], loads: Mapping[str, Load]) -> list[Shown]:
    """The pods that are not over, those that do not serve first."""
    found = [Shown(pod, *_state(pod, raw), loads.get(pod.name, Load())) for raw in raws if not (pod := read(raw)).ended]
    return sorted(found, key=lambda one: (one.state == "Ready", -(one.load.late or 0.0), one.pod.name))


def _state(pod: Pod, raw: Mapping[str, Any]) -> tuple[str, str]:
    if pod.going:
        return "Ending", "It is being deleted, and finishes its requests."
    if pod.ready_since is not None:
        return "Ready", ""
    if pod.unschedulable or pod.gated or not pod.placed:
        return "Pending", pod.unschedulable or ("A scheduling gate holds it." if pod.gated else "")
    states = [one.get("state") or {} for one in raw["status"].get("containerStatuses") or ()]
    said = [one["waiting"] for one in states if "waiting" in one]
    waits = f"{said[0].get('reason')}. {said[0].get('message') or ''}" if said else ""
    return "Starting", waits or "Its engine loads, or its readiness probe fails."


async def loads(config: BackendConfig, namespace: str, spec: Spec, now: float) -> dict[str, Load]:
    """Of each pod, by name; empty where Prometheus does not tell."""
    request = ReadRequest(
        engine=spec.engine,
        ttft_bounds=frozenset(filter(None, (spec.slo.time_to_first_token,))),
        match_labels=tuple(sorted(spec.metrics.match_labels.items())),
        pods=pods_of_any((one.name, (group_of(one.api_version), one.kind)) for one in spec.targets),
    )
    found = defaultdict[str, list[ReplicaMetrics]](list)
    async with aclosing(PrometheusBackend(config)) as backend:
        looks = await backend.history(request, start=now - SPAN, end=now, step=STEP, namespaces=[namespace])
    for _, samples in () if isinstance(looks, Unknown) else looks:
        for (_, pod), models in samples.items():
            if (sample := sample_of(models, spec.model)) is not None:
                found[pod].append(sample)
    return {pod: load(each, spec.slo.time_to_first_token) for pod, each in found.items()}


def load(samples: Sequence[ReplicaMetrics], bound: float | None) -> Load:
    """Gauges of the last sample, and what was counted since the first. `bound` of TTFT, in seconds."""
    first, last = samples[0], samples[-1]
    apart, tokens = last.scraped_at - first.scraped_at, float(last.generation_tokens) - float(first.generation_tokens)
    before, after, late = first.time_to_first_token, last.time_to_first_token, None
    if bound and isinstance(before, Histogram) and isinstance(after, Histogram) and before.bounds == after.bounds:
        counts, bucket = after.around(bound)
        count = LatencyCount.split(*(now - then for now, then in zip(counts, before.around(bound)[0], strict=True)))
        late = 100.0 * count.misses(count, bucket, bound).share if count.total > 0.0 else None
    running, waiting = (None if isinstance(one, Unknown) else one for one in (last.running, last.waiting))
    return Load(running, waiting, tokens / apart if apart > 0.0 and tokens >= 0.0 else None, late)
