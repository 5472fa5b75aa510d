"""What the gateways say of the pools behind them, each gateway's pods together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from servingpool.adapters.cluster.objects import Key
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
from servingpool.api.spec import MeasuredAt
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
from servingpool.reconcile.gateways import (
    GatewayShare,
    OwnGateway,
    bound_of,
    gateway_of,
    gateway_requests,
    gateway_share,
)

KEPT = 3600.0
"""Seconds for which a pod that is not seen any more is remembered."""
NO_CHOICE = GatewayMetrics(time_to_first_token=Unknown("no gateway is configured: set spec.metrics.gateway"))
UNEQUAL = Unknown("the gateway's pods have different buckets, as in a rollout")


class GatewayReader:
    """The gateways that one backend knows of, and what they said last."""

    def __init__(self, backend: BackendConfig, profiles: Mapping[str, GatewayProfile]) -> None:
        self._backend, self._profiles = backend, profiles
        self._totals: dict[tuple[Key, OwnGateway], GatewayTotals] = {}
        self._latest: dict[Key, GatewayMetrics] = {}

    def requests(self, pools: Sequence[ServingPool]) -> dict[GatewayShare, ReadRequest]:
        """What to ask for."""
        return gateway_requests((pool for pool in pools if self._known(pool) is not None), self._backend)

    def hear(self, pools: Sequence[ServingPool], readings: Mapping[GatewayShare, FleetReading | Unknown]) -> None:
        """Take each pool's part of the answers."""
        before, self._totals, self._latest = self._totals, {}, {}
        for pool in pools:
            own, share = self._known(pool), gateway_share(pool, self._backend)
            if own is not None and share is not None:
                counted = self._totals[pool.key, own] = before.get((pool.key, own), GatewayTotals())
                self._latest[pool.key] = counted.read(pool, own, self._profiles[own.name], readings[share])

    def of(self, pool: ServingPool) -> GatewayMetrics:
        """What the pool's gateway said last."""
        measured = pool.spec.slo.measured_at is MeasuredAt.GATEWAY
        return self._latest.get(pool.key, NO_CHOICE if measured else NO_GATEWAY)

    def _known(self, pool: ServingPool) -> OwnGateway | None:
        own = gateway_of(pool, self._backend)
        return own if own is not None and own.name in self._profiles else None


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
    doubted: dict[PodKey, float] = field(default_factory=dict)
    """Pods whose last sample was not used, and when that was scraped, in Unix time in seconds."""

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
            self.last[pod] = now if before is None else self._add(pod, before, now)
        newest = max(each.scraped_at for each in mine.values())
        self.last = {pod: each for pod, each in self.last.items() if each.scraped_at > newest - KEPT}
        self.doubted = {pod: at for pod, at in self.doubted.items() if pod in self.last}
        return GatewayMetrics(
            scraped_at=newest,
            queue=_sum(each.waiting for each in mine.values()),
            arrivals=_known([each.begun for each in mine.values()], self.arrivals),
            time_to_first_token=self._first_tokens([each.time_to_first_token for each in mine.values()]),
        )

    def _add(self, pod: PodKey, before: ReplicaMetrics, now: ReplicaMetrics) -> ReplicaMetrics:
        """Count what came between two samples of a pod. Which one the next is compared with."""
        counters = zip(_counters(before), _counters(now), strict=True)
        pairs = [(old, new) for old, new in counters if not isinstance(old, Unknown) and not isinstance(new, Unknown)]
        fell = any(new < old for old, new in pairs)
        odd = fell and any(new > RESTARTED * old for old, new in pairs)
        if odd and now.scraped_at <= self.doubted.setdefault(pod, now.scraped_at):
            return before  # damaged, unless the next scrape is as low: one that restarted has mostly counted less
        self.doubted.pop(pod, None)
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
    return None if found is None else with_own_buckets(found, bound_of(pool), None)


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
