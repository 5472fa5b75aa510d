"""What Prometheus and the cluster would show of a fleet: all that a policy gets to see.

Each replica is scraped at its own phase, some scrapes are lost, and what is shown is the last one that
came through. No latency of a single request, nothing of the future and no coefficient passes here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from servingpool.decision.observation import (
    NO_GATEWAY,
    NOT_EXPOSED,
    GatewayMetrics,
    Histogram,
    Observation,
    Replica,
    ReplicaMetrics,
    Unknown,
)
from servingpool.decision.pool import Slo
from servingpool_simulation import page
from servingpool_simulation.conduct import Mean, Sum
from servingpool_simulation.fleet import Fleet, Phase, SimulatedReplica
from servingpool_simulation.tables import Floats

EPOCH = 1_700_000_000.0
"""Unix time of virtual second 0 where nothing else is said: what a policy sees is Unix time, as in the operator."""

_BLOCK = 512
"""Scrapes whose fate is drawn at once."""


@dataclass(frozen=True, slots=True)
class ScrapeOptions:
    """How the fleet is watched."""

    interval: float = 5.0
    """Seconds between two scrapes of a replica."""
    lost_share: float = 0.0
    """Share of scrapes that fail, 0 to 1, each on its own."""
    fresh_for: float = 60.0
    """Seconds after which a replica's last scrape is no longer shown."""
    gateway: bool = False
    """A gateway's queue and arrivals are shown too."""
    arrivals: bool = False
    """A gateway that holds no queue shows its arrivals."""
    absent_until_used: bool = False
    """A histogram is absent from a replica's page until its first observation, a token counter until the first token.

    Client libraries that create a labelled series when it is first used do so; vLLM's stand at 0 from the start.
    """
    epoch: float = EPOCH
    """Unix time of virtual second 0."""

    def __post_init__(self) -> None:
        if self.interval <= 0 or not 0 <= self.lost_share <= 1:
            raise ValueError(f"need interval > 0 s and lost_share 0 to 1, got {self.interval} s and {self.lost_share}")


def bracket(bounds: Sequence[float], limit: float | None) -> tuple[int, ...]:
    """Which buckets the operator asks for: both around the SLO bound, and those nearest to four multiples of it."""
    if limit is None:
        return ()
    above = int(np.searchsorted(bounds, limit, side="right"))
    near = [int(np.argmin(np.abs(np.log(np.divide(bounds, limit * factor))))) for factor in (0.25, 0.5, 2.0, 4.0)]
    return tuple(sorted({above - 1, above, *near}.intersection(range(len(bounds)))))


def without_unused(metrics: ReplicaMetrics) -> ReplicaMetrics:
    """The page without the series that a client library creates when they are first used."""
    empty = [name for name in _HISTOGRAMS if (shown := getattr(metrics, name)) != NOT_EXPOSED and not shown.count]
    tokens = () if metrics.generation_tokens else _TOKEN_COUNTERS
    unused: dict[str, Any] = dict.fromkeys((*empty, *tokens), NOT_EXPOSED)
    return replace(metrics, **unused)


def _sum(pages: Floats, figure: Sum) -> list[float]:
    if len(figure.plus) == 1 and not figure.minus:
        alone: list[float] = pages[:, figure.plus[0]].tolist()
        return alone
    total: list[float] = (pages[:, figure.plus].sum(axis=1) - pages[:, figure.minus].sum(axis=1)).tolist()
    return total


_COUNTERS = (
    *("running", "waiting", "generation_tokens", "prompt_tokens", "cached_prompt_tokens"),
    *("admission_rejections", "begun", "prefill_seconds"),
)
_HISTOGRAMS = ("time_to_first_token", "inter_token_latency", "time_per_output_token", "queue_time")
_TOKEN_COUNTERS = ("generation_tokens", "prompt_tokens", "cached_prompt_tokens")


@dataclass(slots=True)
class Scraper:
    """Watches one fleet. Call `arm` before the fleet advances to the next look, then `observe` there."""

    fleet: Fleet
    slo: Slo
    options: ScrapeOptions = ScrapeOptions()
    every_bucket: bool = False
    """Show all buckets of the latency histograms, not only those around the SLO's bounds."""
    _scraped_at: dict[int, float] = field(default_factory=dict, init=False)
    """Last scrape that came through, by the replica's ordinal."""
    _phases: dict[int, float] = field(default_factory=dict, init=False)
    _fates: dict[tuple[int, int], list[bool]] = field(default_factory=dict, init=False)
    _buckets: dict[str, tuple[int, tuple[int, ...], tuple[float, ...]]] = field(default_factory=dict, init=False)
    """(histogram, which of its buckets, their bounds), by the figure."""

    def __post_init__(self) -> None:
        conduct, bounds = self.fleet.profile.conduct, self.fleet.state.bounds
        for name, limit in (
            ("time_to_first_token", self.slo.time_to_first_token),
            ("inter_token_latency", self.slo.time_per_output_token),
            ("time_per_output_token", self.slo.time_per_output_token),
            ("queue_time", self.slo.time_to_first_token),
        ):
            which = getattr(conduct, name)
            if not isinstance(which, int):
                continue
            finite = bounds[which][np.isfinite(bounds[which])]
            indices = tuple(range(len(finite))) if self.every_bucket else bracket(finite.tolist(), limit)
            self._buckets[name] = (which, indices, tuple(finite[list(indices)].tolist()))

    def arm(self, until: float) -> None:
        """Tells each replica when its last good scrape up to `until` (virtual seconds) will be."""
        for replica in self.fleet.of(Phase.LOADING, Phase.READY):
            if replica.ready_at > until:
                continue
            at = self._last_scrape(replica, until)
            if at is not None:
                self._scraped_at[replica.ordinal] = at
                self.fleet.state.engines[replica.row].scrape_at = at

    def observe(self) -> Observation:
        """The fleet as a policy sees it now. Call it after the fleet advanced to where `arm` looked."""
        fleet, now = self.fleet, self.fleet.now
        ready = fleet.of(Phase.READY)
        return Observation(
            requested=fleet.requested,
            ready=tuple(Replica(r.name, now - r.created_at, now - r.ready_at) for r in ready),
            starting=tuple(Replica(r.name, now - r.created_at) for r in fleet.of(Phase.LOADING)),
            metrics=self._metrics(ready, now),
            gateway=self._gateway(now),
        )

    def _last_scrape(self, replica: SimulatedReplica, until: float) -> float | None:
        """The last scrape in (now, until] that is not lost; None when there is none."""
        interval = self.options.interval
        phase = self._phase(replica.ordinal) * interval
        earliest = max(self.fleet.now, replica.ready_at)
        turn = math.floor((until - phase) / interval)
        while phase + turn * interval > earliest:
            if not self._lost(replica.ordinal, turn):
                return phase + turn * interval
            turn -= 1
        return None

    def _phase(self, ordinal: int) -> float:
        """When in the interval a replica is scraped, 0 to 1: Prometheus spreads its targets by a hash."""
        if ordinal not in self._phases:
            self._phases[ordinal] = float(np.random.default_rng((self.fleet.seed, 1, ordinal)).random())
        return self._phases[ordinal]

    def _lost(self, ordinal: int, turn: int) -> bool:
        """The fate of a scrape depends on nothing but the seed, the replica and its turn."""
        if self.options.lost_share == 0:
            return False
        key = (ordinal, turn // _BLOCK)
        if key not in self._fates:
            random = np.random.default_rng((self.fleet.seed, 2, *key))
            self._fates[key] = (random.random(_BLOCK) < self.options.lost_share).tolist()
        return self._fates[key][turn % _BLOCK]

    def _metrics(self, ready: list[SimulatedReplica], now: float) -> tuple[ReplicaMetrics, ...] | Unknown:
        fresh = [r for r in ready if now - self._scraped_at.get(r.ordinal, -math.inf) <= self.options.fresh_for]
        if not fresh:
            reason = "no replica is ready" if not ready else f"no good scrape in {self.options.fresh_for:g} s"
            return Unknown(reason)
        pages = self.fleet.state.scraped[[replica.row for replica in fresh]]
        columns = self._figures(pages)
        shown = (
            ReplicaMetrics(
                replica=replica.name,
                scraped_at=self.options.epoch + self._scraped_at[replica.ordinal],
                ttft_from_admission=self.fleet.profile.conduct.excludes_queue,
                **dict(zip(columns, figures, strict=True)),
            )
            for replica, figures in zip(fresh, zip(*columns.values(), strict=True), strict=True)
        )
        return tuple(map(without_unused, shown) if self.options.absent_until_used else shown)

    def _figures(self, pages: Floats) -> dict[str, Sequence[Any]]:
        """What the engine exposes, by its name in ReplicaMetrics: a value for each page."""
        conduct = self.fleet.profile.conduct
        columns: dict[str, Sequence[Any]] = {"kv_cache_usage": pages[:, page.KV_USAGE].tolist()}
        for name in _COUNTERS:
            figure = getattr(conduct, name)
            if figure is not None:
                columns[name] = _sum(pages, figure)
        for name in _HISTOGRAMS:
            figure = getattr(conduct, name)
            if isinstance(figure, Mean):
                pairs = zip(_sum(pages, figure.total), _sum(pages, figure.count), strict=True)
                columns[name] = [Histogram((), (), total, count) for total, count in pairs]
            elif name in self._buckets:
                columns[name] = self._histograms(pages, *self._buckets[name])
        return columns

    @staticmethod
    def _histograms(pages: Floats, which: int, indices: tuple[int, ...], bounds: tuple[float, ...]) -> list[Histogram]:
        start = page.FIRST_HISTOGRAM + which * page.WIDTH
        counts = np.cumsum(pages[:, start : start + page.SUM], axis=1)
        return [
            Histogram(bounds, tuple(cumulative), total, count)
            for cumulative, total, count in zip(
                counts[:, indices].tolist(), pages[:, start + page.SUM].tolist(), counts[:, -1].tolist(), strict=True
            )
        ]

    def _gateway(self, now: float) -> GatewayMetrics:
        if not self.options.gateway and not self.options.arrivals:
            return NO_GATEWAY
        # The gateway's own scrape is as old as a scrape can be just before the next one.
        at = max(0.0, now - self.options.interval)
        arrivals = int(np.searchsorted(self.fleet.trace.arrival, at, side="right"))
        held = float(max(0, arrivals - self.fleet.served)) if self.options.gateway else NOT_EXPOSED
        return GatewayMetrics(at, queue=held, arrivals=float(arrivals), at_zero=float(arrivals))
