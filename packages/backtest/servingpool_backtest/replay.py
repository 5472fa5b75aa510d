"""The counterfactual: the history's requests on engines like the history's, with the decision core in charge.

The core is the operator's own. It sees scrapes of the simulated fleet as it would see Prometheus, orders replicas, and
gets them a cold start later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from servingpool.decision.pool import Pool
from servingpool.recording.format import Floats
from servingpool_backtest.arrivals import Arrivals
from servingpool_simulation.changes import Change, Watched
from servingpool_simulation.fleet import ColdStart, Fleet
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Ours, Policy
from servingpool_simulation.run import Series, SimulationOptions, simulate
from servingpool_simulation.score import Outcomes, outcomes
from servingpool_simulation.scrape import ScrapeOptions

SEGMENT = 6 * 3600.0
"""Seconds simulated at once: memory holds their requests alone."""
TAIL = SimulationOptions().tail
"""Seconds after the last request of a segment, for requests to finish in."""
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class World:
    """What both replays have in common."""

    arrivals: Arrivals
    profile: EngineProfile
    pool: Pool
    cold_start: ColdStart
    scrape_interval: float
    begin: float
    """Unix seconds."""
    end: float
    warm_up: float
    """Seconds at the begin in which the fleet is the history's and nothing is scored."""
    initial: int
    """Replicas at the begin."""
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Requests by their arrival."""

    requests: Floats
    late: Floats
    """Those that missed a bound."""
    ttft: Floats
    """Mean seconds; NaN without a request, as in `tpot`."""
    tpot: Floats


@dataclass(slots=True, eq=False)
class Replayed:
    """One fleet's run over the scored time. Lists have a place per decision; times are Unix seconds."""

    at: list[float] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    changes: list[tuple[float, Change]] = field(default_factory=list)
    """(Unix seconds, change)"""
    requests: int = 0
    met: int = 0
    replica_seconds: float = 0.0
    _arrival: list[Floats] = field(default_factory=list)
    _met: list[Floats] = field(default_factory=list)
    _ttft: list[Floats] = field(default_factory=list)
    _tpot: list[Floats] = field(default_factory=list)

    @property
    def attainment(self) -> float | None:
        """Share of the requests that met every bound; None without any."""
        return self.met / self.requests if self.requests else None

    @property
    def mean_ttft(self) -> float | None:
        """Seconds; None without a first token."""
        every = np.concatenate(self._ttft) if self._ttft else np.zeros(0)
        return float(np.nanmean(every)) if np.any(~np.isnan(every)) else None

    def quantiles(self) -> dict[str, dict[str, float | None]]:
        """TTFT and TPOT in seconds, by percentile."""
        found: dict[str, dict[str, float | None]] = {}
        for name, parts in (("ttft", self._ttft), ("tpot", self._tpot)):
            every = np.concatenate(parts) if parts else np.zeros(0)
            every = every[every > 0.0]  # NaN too is not
            found[name] = {f"p{q * 100:g}": float(np.quantile(every, q)) if len(every) else None for q in QUANTILES}
        return found

    def by_bin(self, at: Floats, width: float) -> Bins:
        """In bins that begin `at` these Unix times."""
        edges = np.append(at, at[-1] + width)
        arrival, met, ttft, tpot = (
            np.concatenate(parts) if parts else np.zeros(0)
            for parts in (self._arrival, self._met, self._ttft, self._tpot)
        )
        requests = np.histogram(arrival, edges)[0].astype(np.float64)
        late = np.histogram(arrival, edges, weights=1.0 - met)[0]
        means = []
        for values in (ttft, tpot):
            known = values > 0.0
            count = np.histogram(arrival[known], edges)[0]
            total = np.histogram(arrival[known], edges, weights=values[known].astype(np.float64))[0]
            means.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
        return Bins(requests, late, *means)

    def add(self, truth: Outcomes, origin: float, replica_seconds: float) -> None:
        """One segment's requests. `origin`: Unix time when its trace begins."""
        self.requests += len(truth.met)
        self.met += int(truth.met.sum())
        self.replica_seconds += replica_seconds
        self._arrival.append(origin + truth.arrival)
        self._met.append(truth.met.astype(np.float32))
        self._ttft.append(truth.ttft.astype(np.float32))
        self._tpot.append(truth.tpot.astype(np.float32))

    def note(self, series: Series, begin: float, changes: list[Change]) -> None:
        """One segment's decisions. `begin`: Unix time of the first."""
        first = bisect_left(series.time, 0.0)
        self.at += [begin + at for at in series.time[first:]]
        self.requested += series.requested[first:]
        self.ready += series.ready[first:]
        self.changes += [(begin + change.at, change) for change in changes]


@dataclass(frozen=True, slots=True, eq=False)
class AsItWas:
    """The history's own fleet: at each time as many replicas as it had."""

    at: Floats
    """Unix seconds, ascending."""
    serving: Floats

    def number(self, now: float) -> int:
        """How many served at a Unix time, 1 or more."""
        place = min(max(0, int(np.searchsorted(self.at, now, side="right")) - 1), len(self.at) - 1)
        return max(1, round(float(self.serving[place])))

    def changes(self, begin: float, end: float) -> list[tuple[float, int]]:
        """(Unix seconds, replicas from then on) within (begin, end)."""
        numbers = np.maximum(1, np.rint(self.serving)).astype(np.int64)
        changed = np.flatnonzero(np.diff(numbers)) + 1
        changed = changed[(self.at[changed] > begin) & (self.at[changed] < end)]
        return list(zip(self.at[changed].tolist(), numbers[changed].tolist(), strict=True))


def replay(world: World, policy: Policy | None = None, progress: Callable[[float], None] = lambda _: None) -> Replayed:
    """Runs a policy, or the core, from begin to end. `progress` hears the share that is done, 0 to 1."""
    policy = Ours() if policy is None else policy
    replayed, replicas = Replayed(), world.initial
    for begin, end, warm_up in _segments(world):
        watched = Watched(policy)
        interval = world.scrape_interval
        options = SimulationOptions(
            cold_start=world.cold_start,
            scrape=ScrapeOptions(interval=interval, fresh_for=max(60.0, 4 * interval), epoch=begin),
            initial_replicas=replicas,
            seed=world.seed,
            history=warm_up,
        )
        trace = world.arrivals.trace("history", begin, end)
        result = simulate(trace, world.profile, world.pool, watched, options)
        replayed.add(result.outcomes, begin, result.score.replica_hours * 3600.0)
        replayed.note(result.series, begin + warm_up, watched.changes)
        replicas = replayed.requested[-1]
        progress((end - world.begin) / (world.end - world.begin))
    return replayed


def replay_as_it_was(world: World, fleet: AsItWas) -> Replayed:
    """Runs the history's own fleet. Nobody looks at it or decides, so it stops where it changes alone."""
    replayed = Replayed()
    for begin, end, warm_up in _segments(world):
        trace = world.arrivals.trace("history", begin, end)
        # The history's replicas served when they were counted.
        served = Fleet(world.profile, trace, ColdStart(0.0, 0.0), seed=world.seed)
        served.start_ready(fleet.number(begin))
        for at, replicas in fleet.changes(begin, end):
            served.advance(at - begin)
            served.scale(replicas)
        served.advance(trace.duration)
        served.advance(trace.duration + TAIL)
        truth = outcomes(served.requests, world.pool.slo, warm_up, trace.duration)
        replayed.add(truth, begin, served.paid_for(warm_up, trace.duration))
    return replayed


def _segments(world: World) -> Iterator[tuple[float, float, float]]:
    """(begin, end, seconds of warm-up in it): Unix times."""
    begin = world.begin
    while begin < world.end:
        warm_up = world.warm_up if begin == world.begin else 0.0
        # A short rest is no segment of its own.
        rest = world.end - begin
        end = world.end if rest < SEGMENT + warm_up + 0.5 * SEGMENT else begin + warm_up + SEGMENT
        yield begin, end, warm_up
        begin = end
