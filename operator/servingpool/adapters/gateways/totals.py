"""Totals of the gateways on the pools behind them, each gateway's pods together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add

from servingpool.adapters.cluster.objects import Key
from servingpool.adapters.gateways.completed import NOTHING, Completing, completed
from servingpool.adapters.gateways.own_gateway import (
    OwnGateway,
    bound_of,
    gateway_of,
    gateway_requests,
    gateway_share,
    told_by,
)
from servingpool.adapters.gateways.sample import QUEUE_UNNAMED, UNEQUAL, own_sample, queue_unnamed, summed
from servingpool.adapters.prometheus.asked import Share
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import Cause, PodKey
from servingpool.adapters.prometheus.gateways import GatewayFigure, GatewayProfile
from servingpool.adapters.prometheus.samples import ANY_MODEL, FleetReading, ReadRequest
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.increase import change, rises
from servingpool.decision.observation import (
    NO_GATEWAY,
    NOT_EXPOSED,
    Absent,
    GatewayMetrics,
    Histogram,
    Observation,
    Reading,
    ReplicaMetrics,
    Unknown,
)
from servingpool.decision.observe.confirm import FAR, SLACK

COUNTERS = {"arrivals": "begun", "generation_tokens": "generation_tokens", "prompt_tokens": "prompt_tokens"}
"""Counts of a `GatewayMetrics`, and where a pod's sample holds them."""
UNSERVED = {"unserved": "admission_rejections"}
"""Count of requests that are counted while there is no engine, and where a pod's sample holds it."""
ALL = COUNTERS | UNSERVED
HISTOGRAMS = ("time_to_first_token", "inter_token_latency")
"""Histograms that a `GatewayMetrics` and a pod's sample both have."""
PLAUSIBLE = 100.0
"""Requests/s of a gateway's pod that are no surprise, whatever came before."""
KEPT = 3600.0
"""Seconds for which a pod that is not seen any more is remembered."""
NO_CHOICE = GatewayMetrics(time_to_first_token=Unknown("no gateway is configured: set spec.metrics.gateway"))

OTHERS = Unknown("backends[].gateway.models does not name this pool's namespace for its models")


class GatewayReader:
    """Gateways that a backend knows of, with their last figures."""

    def __init__(
        self, backend: BackendConfig, profiles: Mapping[str, GatewayProfile], metered: Collection[str] = ()
    ) -> None:
        """`metered`: engines that export nothing."""
        self._backend, self._profiles, self._metered = backend, profiles, metered
        self._totals: dict[tuple[Key, OwnGateway], GatewayTotals] = {}
        self._latest: dict[Key, GatewayMetrics] = {}
        self._completing: dict[tuple[Key, str, str, tuple[str, ...]], Completing] = {}
        """State by pool, its uid, its model and its targets: each role apart."""

    def requests(self, pools: Sequence[ServingPool]) -> dict[Share, ReadRequest]:
        """Queries on the gateways. Of pools that may go to zero also why a pod of their gateway disappeared."""
        known = [pool for pool in pools if self._known(pool) is not None]
        found = gateway_requests(known, self._backend, self._metered)
        for pool in known:
            own, share = self._known(pool), gateway_share(pool, self._backend)
            totals = None if own is None else self._totals.get((pool.key, own))
            if pool.spec.goes_to_zero and totals is not None and totals.unseen and share is not None:
                request = found[share]
                found[share] = replace(request, explain=request.explain | totals.unseen)
        return found

    def hear(self, pools: Sequence[ServingPool], readings: Callable[[Share, str], FleetReading | Unknown]) -> None:
        """Take each pool's part of the answers: `readings` of a share and the gateway's namespace."""
        before, self._totals, self._latest = self._totals, {}, {}
        present = {pool.key for pool in pools}
        self._completing = {key: one for key, one in self._completing.items() if key[0] in present}
        for pool in pools:
            own, share = self._known(pool), gateway_share(pool, self._backend)
            if own is not None and share is not None:
                profile, metered = self._profiles[own.name], pool.spec.engine in self._metered
                if not told_by(pool, self._backend):
                    self._latest[pool.key] = _unknown(profile, OTHERS)
                    continue
                counted = self._totals[pool.key, own] = before.get((pool.key, own), GatewayTotals())
                heard = readings(share, own.namespace)
                self._latest[pool.key] = counted.read(pool, own, profile, heard, metered=metered)

    def of(self, pool: ServingPool, replicas: Collection[PodKey] = ()) -> GatewayMetrics:
        """Last figures of the pool's gateway. A gateway that is one of `replicas` goes with them, and tells nothing."""
        measured = bound_of(pool, metered=pool.spec.engine in self._metered) is not None
        told, own = self._latest.get(pool.key, NO_CHOICE if measured else NO_GATEWAY), self._known(pool)
        totals = None if own is None else self._totals.get((pool.key, own))
        inside = () if totals is None else sorted(totals.pods.intersection(replicas))
        if not inside:
            return told
        return replace(told, at_zero=Unknown(f"gateway pod {inside[0][1]} is a replica of the pool, and goes with it"))

    def completed(self, pool: ServingPool, observation: Observation, limit: float, now: float) -> Observation:
        """The observation with the gateway's figures in place of the engines'; see `completed`."""
        key = pool.key, pool.metadata.uid, pool.spec.model, pool.spec.target_names
        alone = not observation.metered and isinstance(observation.gateway.arrivals, Unknown)
        if alone and key not in self._completing:
            return observation
        before = self._completing.get(key, NOTHING)
        observation, after = completed(observation, limit, before, now)
        if after != before:
            self._completing[key] = after
        return observation

    def profile(self, pool: ServingPool) -> tuple[OwnGateway, GatewayProfile] | None:
        """The pool's gateway, with its profile; None where it has none."""
        own = self._known(pool)
        return None if own is None else (own, self._profiles[own.name])

    def _known(self, pool: ServingPool) -> OwnGateway | None:
        own = gateway_of(pool, self._backend)
        return own if own is not None and own.name in self._profiles else None


@dataclass(slots=True)
class GatewayTotals:
    """Counts of a pool's gateway since the first reading, over its pods.

    A pod counts from its first sample on, and from zero after a restart. One that is not seen for a while adds what it
    has counted meanwhile, where the sum of all pods' counters would fall and rise by all that it ever counted.
    """

    counts: dict[str, float] = field(default_factory=dict)
    """Counts by the names in COUNTERS, of counters that ever existed."""
    histograms: dict[str, Histogram] = field(default_factory=dict)
    """Histograms by name, of histograms that ever existed."""
    last: dict[PodKey, ReplicaMetrics] = field(default_factory=dict)
    pods: frozenset[PodKey] = frozenset()
    """The gateway's in the last reading."""
    unseen: frozenset[PodKey] = frozenset()
    """Pods in `last` that the last reading did not have."""
    visible: int = 0
    """Pods in the last reading that had any."""
    newcomers: float = 0.0
    """Counts, of figures shown at zero, that pods which replaced others had before their first sample was read."""
    doubted: dict[PodKey, ReplicaMetrics] = field(default_factory=dict)
    """Samples that were not used, of pods of which the last one was not."""
    rates: dict[PodKey, float] = field(default_factory=dict)
    """Requests/s of each pod between its last two samples."""
    queued: frozenset[PodKey] = frozenset()
    """Pods that ever had a queue's series: they hold requests, where such a series comes with the first one held."""

    def read(
        self,
        pool: ServingPool,
        own: OwnGateway,
        profile: GatewayProfile,
        reading: FleetReading | Unknown,
        *,
        metered: bool = False,
    ) -> GatewayMetrics:
        """Figures of the gateway now. Unknown are figures that it ought to tell and does not."""
        if isinstance(reading, Unknown):
            return _unknown(profile, reading)
        if profile.model_label is None and own.workload is None:
            return _unknown(profile, Unknown(own.ambiguous))
        for pod in own.pods(pod for pod, missing in reading.causes.items() if missing.cause is Cause.AMBIGUOUS):
            return _unknown(profile, Unknown(f"gateway pod {pod[1]}: {reading.causes[pod].reason}"))
        pods = own.pods(reading.samples)
        told = self._read(pool, own, profile, {pod: reading.samples[pod] for pod in pods}, metered=metered)
        if not pool.spec.goes_to_zero:
            return told
        self.unseen = frozenset(self.last.keys() - set(pods))
        self.pods = frozenset(pods)
        return replace(told, at_zero=self._at_zero(own, profile, reading, told, pods))

    def _read(
        self,
        pool: ServingPool,
        own: OwnGateway,
        profile: GatewayProfile,
        pods: Mapping[PodKey, Mapping[str, ReplicaMetrics]],
        *,
        metered: bool,
    ) -> GatewayMetrics:
        read = {pod: own_sample(pool, profile, models, metered=metered) for pod, models in pods.items()}
        mine = {pod: found for pod, found in read.items() if found is not None}
        comes = any(one.with_traffic for one in profile.figures.get(GatewayFigure.QUEUE, ()))
        if not mine:
            lacking = _unknown(profile, Unknown(own.without(pool.spec.model) if pods else own.unseen))
            # It has restarted, runs its queue, and no request has come since.
            return replace(lacking, queue=0.0) if self.last and _alive(pods) and comes else lacking
        replacing = bool(self.last) and len(mine) <= self.visible
        for pod, now in mine.items():
            before = self.last.get(pod)
            if before is None and replacing:
                self.newcomers += _shown(profile, {name: getattr(now, of) for name, of in ALL.items()})
            if before is None or not (metered and now.begun is NOT_EXPOSED) or before.begun is NOT_EXPOSED:
                self.last[pod] = now if before is None else self._add(pod, profile, before, now)
        self.visible, newest = len(mine), max(each.scraped_at for each in mine.values())
        self.last = {pod: each for pod, each in self.last.items() if each.scraped_at > newest - KEPT}
        self.doubted = {pod: one for pod, one in self.doubted.items() if pod in self.last}
        self.rates = {pod: rate for pod, rate in self.rates.items() if pod in self.last}
        samples, told = list(mine.values()), dict[str, Reading | Histogram]({**self.counts, **self.histograms})
        if not metered or any(one.begun is not NOT_EXPOSED for one in samples):
            told = {name: self._count(name, [getattr(one, of) for one in samples]) for name, of in COUNTERS.items()}
            told |= {name: self._histogram(name, [getattr(one, name) for one in samples]) for name in HISTOGRAMS}
        elif not told or any(self.last[pod].begun is not NOT_EXPOSED for pod in mine):
            # Either it never served the model, or its series have gone. One that was started since has none so far.
            return _unknown(profile, Unknown(own.without(pool.spec.model)))
        queue, flight = summed(each.waiting for each in samples), summed(each.running for each in samples)
        self.queued |= {pod for pod, one in mine.items() if not isinstance(one.waiting, Unknown)}
        queue = 0.0 if queue is NOT_EXPOSED and comes else queue
        return GatewayMetrics(newest, queue=queue, in_flight=flight, **told)  # type: ignore[arg-type]

    def _at_zero(
        self,
        own: OwnGateway,
        profile: GatewayProfile,
        reading: FleetReading,
        told: GatewayMetrics,
        pods: Sequence[PodKey],
    ) -> Reading:
        """Requests, or tries of them, that it counts while there is no engine too; see `GatewayMetrics`.

        Many gateways create a counter with its first event. One that is scraped, and had the model's series before,
        has counted nothing since its start.
        """
        hidden = self._hidden(own, profile, reading)
        if hidden is not None:
            return hidden
        if not pods:
            return Absent(own.unseen)
        shows = () if profile.at_zero is None else profile.at_zero.shows
        counted = any(one is not GatewayFigure.QUEUE for one in shows)
        if not counted and any(queue_unnamed(reading.samples[pod]) for pod in pods):
            return QUEUE_UNNAMED
        if counted and (self.last or profile.model_label is None):
            return self.newcomers + _shown(profile, self.counts)
        held = self.queued.intersection(pods) or _alive({pod: reading.samples[pod] for pod in pods})
        if GatewayFigure.QUEUE in shows and not isinstance(told.queue, Unknown) and held:
            return self.newcomers + self.counts.get("arrivals", 0.0)
        series = " or ".join(shows)
        return Absent(f"gateway {own.name} exports no series of {series} of this model")

    def _hidden(self, own: OwnGateway, profile: GatewayProfile, reading: FleetReading) -> Unknown | None:
        """Why requests may come that are not seen, whatever the series say."""
        if profile.at_zero is None or not profile.at_zero.shows:
            return Unknown(f"gateway {own.name} is not known to show requests while there is no replica")
        for pod in sorted(self.unseen):
            cause = reading.causes.get(pod)
            if cause is not None and cause.cause is Cause.SCRAPE_FAILED:
                return Unknown(f"gateway pod {pod[1]}: {cause.reason}")
        for pod in own.pods(reading.stale):
            return Unknown(f"gateway pod {pod[1]} has no fresh scrape")
        return None

    def _add(self, pod: PodKey, profile: GatewayProfile, before: ReplicaMetrics, now: ReplicaMetrics) -> ReplicaMetrics:
        """Add the increase between two samples of a pod. Returns the sample to compare the next one with."""
        restarted, damaged = change(_counters(profile, before), _counters(profile, now))
        jumped = not (restarted or damaged) and self._jumped(pod, before, now)
        # Unless the next scrape says so too: a gateway restarts within a second, and may count little.
        if (damaged or jumped) and now.scraped_at <= self.doubted.setdefault(pod, now).scraped_at:
            return before
        doubted, base = self.doubted.pop(pod, None), before
        if doubted is not None and (damaged or (jumped and not self._jumped(pod, doubted, now))):
            base = doubted  # it jumped, or fell, once and stays there
        # It restarted if it shows few. Else another of its processes answers, with all that that one ever counted.
        nothing = replace(now, begun=0.0, admission_rejections=0.0, time_to_first_token=_empty(()))
        few = FAR * self.rates.get(pod, 0.0) * (now.scraped_at - before.scraped_at) + SLACK
        restarted |= damaged and _most(nothing, now) <= few
        if now.scraped_at > base.scraped_at:
            self.rates[pod] = 0.0 if restarted else _most(base, now) / (now.scraped_at - base.scraped_at)
        for name, source in ALL.items():
            new, old = getattr(now, source), getattr(base, source)
            # It begins with its first request. Held requests whose clients gave up lower it, and did come.
            old = 0.0 if restarted or old is NOT_EXPOSED else old
            if not isinstance(new, Unknown) and not isinstance(old, Unknown):
                self.counts[name] = self.counts.get(name, 0.0) + rises((old,), (new,))[0]
        for name in HISTOGRAMS:
            self._add_histogram(name, getattr(base, name), getattr(now, name), restarted=restarted)
        if restarted:
            return now
        missing = (name for name in (*ALL.values(), *HISTOGRAMS) if isinstance(getattr(now, name), Unknown))
        return replace(now, **{name: getattr(before, name) for name in missing})

    def _jumped(self, pod: PodKey, before: ReplicaMetrics, now: ReplicaMetrics) -> bool:
        """Whether it has counted far more requests than it did before, and than come anywhere in that time."""
        seconds = max(0.0, now.scraped_at - before.scraped_at)
        return _most(before, now) > (FAR * self.rates.get(pod, 0.0) + PLAUSIBLE) * max(seconds, 1.0)

    def _add_histogram(
        self, name: str, before: Histogram | Unknown, now: Histogram | Unknown, *, restarted: bool
    ) -> None:
        if isinstance(now, Unknown):
            return
        if restarted or before is NOT_EXPOSED:
            before = _empty(now.bounds)
        total = self.histograms.get(name, _empty(now.bounds))
        if isinstance(before, Histogram) and total.bounds == now.bounds == before.bounds:
            seconds, count, *counts = map(add, _flat(total), rises(_flat(before), _flat(now)))
            self.histograms[name] = Histogram(total.bounds, tuple(counts), seconds, count)

    def _count(self, name: str, readings: list[Reading]) -> Reading:
        known = any(not isinstance(one, Unknown) for one in readings)
        return self.counts.setdefault(name, 0.0) if known else readings[0]

    def _histogram(self, name: str, each: list[Histogram | Unknown]) -> Histogram | Unknown:
        shown = [one for one in each if isinstance(one, Histogram)]
        if not shown:
            return each[0]
        if len({one.bounds for one in shown}) > 1:
            return UNEQUAL
        total = self.histograms.get(name)
        if total is None or total.bounds != shown[0].bounds:
            total = self.histograms[name] = _empty(shown[0].bounds)
        return total


def _shown(profile: GatewayProfile, counts: Mapping[str, Reading]) -> float:
    """Sum of the counters that tell of requests while there is no engine; arrivals where only a queue does."""
    shows = () if profile.at_zero is None else profile.at_zero.shows
    names = [one.value for one in shows if one is not GatewayFigure.QUEUE] or ["arrivals"]
    found = (counts.get(name, 0.0) for name in names)
    return sum(one for one in found if not isinstance(one, Unknown))


def _unknown(profile: GatewayProfile, why: Unknown) -> GatewayMetrics:
    """Of what the gateway exposes nothing is known."""
    fields = (one for one in GatewayFigure if one not in {GatewayFigure.UNSERVED, GatewayFigure.ALIVE})
    told = {one.field: why if one in profile.figures else NOT_EXPOSED for one in fields}
    return replace(NO_GATEWAY, **told, at_zero=why)  # type: ignore[arg-type]


def _counters(profile: GatewayProfile, sample: ReplicaMetrics) -> list[float]:
    """What only a restart lowers, NaN where the pod does not tell it: arrivals without those held, who may give up."""
    if profile.held_have_arrived and not isinstance(sample.begun, Unknown) and not isinstance(sample.waiting, Unknown):
        sample = replace(sample, begun=max(0.0, sample.begun - sample.waiting))
    counts = (_observations(getattr(sample, name)) for name in HISTOGRAMS)
    return [float(one) for one in (*(getattr(sample, source) for source in ALL.values()), *counts)]


def _most(before: ReplicaMetrics, now: ReplicaMetrics) -> float:
    """Requests between two samples, by the figure that says most; 0 where all fell."""
    counted = ((one.begun, one.admission_rejections, _observations(one.time_to_first_token)) for one in (before, now))
    return max(0.0, *(float(new) - float(old) for old, new in zip(*counted, strict=True)))  # NaN is no maximum


def _observations(histogram: Histogram | Unknown) -> Reading:
    return histogram.count if isinstance(histogram, Histogram) else histogram


def _empty(bounds: tuple[float, ...]) -> Histogram:
    return Histogram(bounds, (0.0,) * len(bounds), 0.0, 0.0)


def _flat(histogram: Histogram) -> tuple[float, ...]:
    return histogram.total, histogram.count, *histogram.counts


def _alive(pods: Mapping[PodKey, Mapping[str, ReplicaMetrics]]) -> bool:
    """Whether some pod has a series that is there without requests too: GatewayFigure.ALIVE."""
    return any(ANY_MODEL in one and one[ANY_MODEL].cached_prompt_tokens is not NOT_EXPOSED for one in pods.values())
