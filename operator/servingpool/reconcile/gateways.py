"""Which gateway a pool is behind, and what that gateway says of it, all its pods together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from servingpool.adapters.cluster.names import pods_of
from servingpool.adapters.prometheus import (
    BackendConfig,
    FleetReading,
    GatewayFigure,
    GatewayProfile,
    PodKey,
    ReadRequest,
    sample_of,
    with_own_buckets,
)
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Gateway, MeasuredAt
from servingpool.decision.observation import (
    NO_GATEWAY,
    NOT_EXPOSED,
    GatewayMetrics,
    Histogram,
    Reading,
    ReplicaMetrics,
    Unknown,
)
from servingpool.decision.samples import RESTARTED

KEPT = 3600.0
"""Seconds for which a pod that is not seen any more is remembered."""
NO_CHOICE = GatewayMetrics(time_to_first_token=Unknown("no gateway is configured: set spec.metrics.gateway"))
UNEQUAL = Unknown("the gateway's pods have different buckets, as in a rollout")

GatewayShare = tuple[str, tuple[tuple[str, str], ...]]
"""Gateway and extra labels: what pools of a backend that are read together share."""


@dataclass(frozen=True, slots=True)
class OwnGateway:
    """The gateway in front of one pool."""

    name: str
    namespace: str
    """Of the gateway's pods."""
    workload: str | None
    """None: all gateways of that name in the namespace."""

    def pods(self, samples: Iterable[PodKey]) -> list[PodKey]:
        """Those of these pods that are the gateway's, in order."""
        name = self.workload
        own = re.compile(".*" if name is None else rf"{pods_of(name)}|{re.escape(name)}-[0-9]+").fullmatch
        return sorted((where, pod) for where, pod in samples if where == self.namespace and own(pod))

    @property
    def ambiguous(self) -> str:
        """What to do where it does not name the model, and no workload is given."""
        return f"{self.name} does not name the model in its metrics: set spec.metrics.gateway.workload"

    @property
    def unseen(self) -> str:
        """That none of its pods has a series."""
        workload = "" if self.workload is None else f" of workload '{self.workload}'"
        return f"Prometheus has no series of a gateway {self.name}{workload} in namespace {self.namespace}"

    def without(self, model: str) -> str:
        """That no series of its pods is of this model."""
        return f"gateway {self.name} exports no series of model '{model}'"


def gateway_of(pool: ServingPool, backend: BackendConfig) -> OwnGateway | None:
    """The pool's own gateway, or else its backend's; None where there is none."""
    return gateway_in(pool.metadata.namespace, pool.spec.metrics.gateway, backend)


def gateway_in(namespace: str, own: Gateway | None, backend: BackendConfig) -> OwnGateway | None:
    """The same for any pool of the namespace."""
    shared = backend.gateway
    if own is not None:
        return OwnGateway(own.name, namespace, own.workload)
    if shared is not None:
        return OwnGateway(shared.name, shared.namespace or namespace, shared.workload)
    return None


def gateway_requests(pools: Iterable[ServingPool], backend: BackendConfig) -> dict[GatewayShare, ReadRequest]:
    """One request for all pools of a backend that share gateway and labels, by that pair."""
    merged: dict[GatewayShare, ReadRequest] = {}
    for pool in pools:
        share = gateway_share(pool, backend)
        if share is None:
            continue
        bound = _bound(pool)
        before = merged.get(share, ReadRequest(engine=share[0], gateway=True, match_labels=share[1]))
        bounds = before.ttft_bounds | ({bound} if bound is not None else set())
        merged[share] = replace(before, ttft_bounds=bounds)
    return merged


def gateway_share(pool: ServingPool, backend: BackendConfig) -> GatewayShare | None:
    """What it is read together by; None where it has no gateway."""
    own = gateway_of(pool, backend)
    return None if own is None else (own.name, tuple(sorted(pool.spec.metrics.match_labels.items())))


@dataclass(slots=True)
class GatewayTotals:
    """What one pool's gateway has counted since the first reading, over its pods.

    A pod counts from its first sample on, and from zero after a restart. One that is not seen for a while adds what it
    has counted meanwhile, where the sum of all pods' counters would fall and rise by all that it ever counted.
    """

    arrivals: float = 0.0
    first_tokens: Histogram | None = None
    """None before the first sample."""
    last: dict[PodKey, ReplicaMetrics] = field(default_factory=dict)

    def read(
        self, pool: ServingPool, own: OwnGateway, profile: GatewayProfile, reading: FleetReading | Unknown
    ) -> GatewayMetrics:
        """What the gateway says now. Unknown is what it ought to say and does not."""
        if isinstance(reading, Unknown):
            return _unknown(profile, reading)
        if profile.model_label is None and own.workload is None:
            return _unknown(profile, Unknown(own.ambiguous))
        samples = {pod: _own(pool, reading.samples[pod]) for pod in own.pods(reading.samples)}
        mine = {pod: each for pod, each in samples.items() if each is not None}
        if not mine:
            return _unknown(profile, Unknown(own.without(pool.spec.model) if samples else own.unseen))
        for pod, now in mine.items():
            before = self.last.get(pod)
            self.last[pod] = now if before is None else self._add(before, now)
        newest = max(each.scraped_at for each in mine.values())
        self.last = {pod: each for pod, each in self.last.items() if each.scraped_at > newest - KEPT}
        return GatewayMetrics(
            scraped_at=newest,
            queue=_sum(each.waiting for each in mine.values()),
            arrivals=_known([each.begun for each in mine.values()], self.arrivals),
            time_to_first_token=self._first_tokens([each.time_to_first_token for each in mine.values()]),
        )

    def _add(self, before: ReplicaMetrics, now: ReplicaMetrics) -> ReplicaMetrics:
        """Count what came between two samples of a pod. Which one the next is compared with."""
        counters = zip(_counters(before), _counters(now), strict=True)
        pairs = [(old, new) for old, new in counters if not isinstance(old, Unknown) and not isinstance(new, Unknown)]
        fell = any(new < old for old, new in pairs)
        if fell and any(new > RESTARTED * old for old, new in pairs):
            return before  # damaged: a restarted one has counted less
        begun = 0.0 if fell or before.begun is NOT_EXPOSED else before.begun  # it begins with its first request
        if not isinstance(now.begun, Unknown) and not isinstance(begun, Unknown):
            self.arrivals += now.begun - begun
        ttft, last, total = now.time_to_first_token, before.time_to_first_token, self.first_tokens
        if not isinstance(ttft, Histogram) or total is None or total.bounds != ttft.bounds:
            return now
        if fell or last is NOT_EXPOSED:
            last = _empty(ttft.bounds)
        if isinstance(last, Histogram) and last.bounds == ttft.bounds:
            self.first_tokens = _plus(total, ttft, last)
        return now

    def _first_tokens(self, each: list[Histogram | Unknown]) -> Histogram | Unknown:
        shown = [one for one in each if isinstance(one, Histogram)]
        if not shown:
            return each[0]
        if len({one.bounds for one in shown}) > 1:
            return UNEQUAL
        if self.first_tokens is None or self.first_tokens.bounds != shown[0].bounds:
            self.first_tokens = _empty(shown[0].bounds)
        return self.first_tokens


def _own(pool: ServingPool, models: Mapping[str, ReplicaMetrics]) -> ReplicaMetrics | None:
    found = sample_of(models, pool.spec.model)
    return None if found is None else with_own_buckets(found, _bound(pool), None)


def _bound(pool: ServingPool) -> float | None:
    """Seconds; None where the SLO is not judged at the gateway."""
    slo = pool.spec.slo
    return slo.time_to_first_token if slo.measured_at is MeasuredAt.GATEWAY else None


def _unknown(profile: GatewayProfile, why: Unknown) -> GatewayMetrics:
    """Of what the gateway exposes nothing is known."""

    def of(figure: GatewayFigure) -> Unknown:
        return why if figure in profile.figures else NOT_EXPOSED

    return replace(
        NO_GATEWAY,
        queue=of(GatewayFigure.QUEUE),
        arrivals=of(GatewayFigure.ARRIVALS),
        time_to_first_token=of(GatewayFigure.TIME_TO_FIRST_TOKEN),
    )


def _counters(sample: ReplicaMetrics) -> tuple[Reading, Reading]:
    ttft = sample.time_to_first_token
    return sample.begun, ttft.count if isinstance(ttft, Histogram) else ttft


def _empty(bounds: tuple[float, ...]) -> Histogram:
    return Histogram(bounds, (0.0,) * len(bounds), 0.0, 0.0)


def _plus(total: Histogram, now: Histogram, before: Histogram) -> Histogram:
    counts = (each + new - old for each, new, old in zip(total.counts, now.counts, before.counts, strict=True))
    seconds, count = now.total - before.total, now.count - before.count
    return Histogram(total.bounds, tuple(counts), total.total + seconds, total.count + count)


def _sum(readings: Iterable[Reading]) -> Reading:
    """A pod without the gauge holds nothing: not all have begun to queue."""
    figures = list(readings)
    broken = [one for one in figures if isinstance(one, Unknown) and one is not NOT_EXPOSED]
    known = [one for one in figures if not isinstance(one, Unknown)]
    return broken[0] if broken else sum(known) if known else NOT_EXPOSED


def _known(readings: list[Reading], total: float) -> Reading:
    return total if any(not isinstance(one, Unknown) for one in readings) else readings[0]
