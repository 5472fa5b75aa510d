"""The counterfactual: the history's requests on engines like the history's, with the decision core in charge.

The core is the operator's own. It sees scrapes of the simulated fleet as it would see Prometheus, orders replicas, and
gets them a cold start later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from servingpool.decision.pool import Pool, Slo
from servingpool.recording.format import Floats
from servingpool_backtest.arrivals import Arrivals
from servingpool_simulation.changes import Change, Watched
from servingpool_simulation.fleet import ColdStart, Fleet, Phase
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Ours, Policy
from servingpool_simulation.run import SimulationOptions, answers
from servingpool_simulation.score import outcomes
from servingpool_simulation.scrape import ScrapeOptions, Scraper

SEGMENT = 6 * 3600.0
"""Seconds simulated at once: memory holds their requests alone."""
TAIL = SimulationOptions().tail
"""Seconds after the last request of a segment, for requests to finish in."""
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class World:
    """What both replays have in common."""

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

    def end(self, fleet: Fleet, slo: Slo, begin: float, warm_up: float) -> None:
        """Lets a fleet serve the rest of its segment, and adds the segment's requests. `begin`: its Unix time."""
        duration = fleet.trace.duration
        fleet.advance(duration)
        fleet.advance(duration + TAIL)
        truth = outcomes(fleet.requests, slo, warm_up, duration)
        self.requests += len(truth.met)
        self.met += int(truth.met.sum())
        self.replica_seconds += fleet.paid_for(warm_up, duration)
        self._arrival.append(begin + truth.arrival)
        self._met.append(truth.met.astype(np.float32))
        self._ttft.append(truth.ttft.astype(np.float32))
        self._tpot.append(truth.tpot.astype(np.float32))


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


def replay(world: World, arrivals: Arrivals, policy: Policy | None = None) -> Replayed:
    """Runs a policy, or the core, from begin to end."""
    policy = Ours() if policy is None else policy
    replayed, replicas = Replayed(), world.initial
    for begin, end, warm_up in _segments(world):
        trace, watched, interval = arrivals.trace("history", begin, end), Watched(policy), world.scrape_interval
        fleet = Fleet(world.profile, trace, world.cold_start, seed=world.seed)
        fleet.start_ready(replicas)
        scrapes = ScrapeOptions(interval=interval, fresh_for=max(60.0, 4 * interval), epoch=begin)
        scraper = Scraper(fleet, world.pool.slo, scrapes, policy.every_bucket)
        for answer in answers(fleet, scraper, world.pool, watched, policy.every, warm_up):
            if answer is not None:
                fleet.scale(answer.replicas)
                replayed.at.append(begin + fleet.now)
                replayed.requested.append(fleet.requested)
                replayed.ready.append(len(fleet.of(Phase.READY)))
        replayed.changes += [(begin + warm_up + change.at, change) for change in watched.changes]
        replayed.end(fleet, world.pool.slo, begin, warm_up)
        replicas = fleet.requested
    return replayed


def replay_as_it_was(world: World, arrivals: Arrivals, fleet: AsItWas) -> Replayed:
    """Runs the history's own fleet. Nobody looks at it or decides, so it stops where it changes alone."""
    replayed = Replayed()
    for begin, end, warm_up in _segments(world):
        # The history's replicas served when they were counted.
        served = Fleet(world.profile, arrivals.trace("history", begin, end), ColdStart(0.0, 0.0), seed=world.seed)
        served.start_ready(fleet.number(begin))
        for at, replicas in fleet.changes(begin, end):
            served.advance(at - begin)
            served.scale(replicas)
        replayed.end(served, world.pool.slo, begin, warm_up)
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
