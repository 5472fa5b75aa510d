"""The counterfactual: the history's requests on engines like the history's, with the decision core in charge.

The core is the operator's own. It sees scrapes of the simulated fleet as it would see Prometheus, orders replicas, and
gets them a cold start later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from servingpool.backtest.arrivals import Arrivals
from servingpool.backtest.recording import Floats
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool
from servingpool_simulation.changes import Change, Watched
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import TICK, Answer, Ours, Policy, Wrapped
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.scrape import EPOCH, ScrapeOptions

SEGMENT = 6 * 3600.0
"""Seconds simulated at once: memory holds their requests alone."""
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
    """One fleet's run over the scored time. Series have a place per decision; times are Unix seconds."""

    at: list[float] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    ttft: list[float | None] = field(default_factory=list)
    """Seconds at the SLO's percentile over the last minute, as `tpot`."""
    tpot: list[float | None] = field(default_factory=list)
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

    def add(self, result: Result, origin: float, warm_up: float, changes: list[Change]) -> None:
        """One segment's run. `origin`: Unix time when its trace begins; the first `warm_up` seconds do not count."""
        begin = origin + warm_up
        series, truth = result.series, result.outcomes
        scored = [place for place, at in enumerate(series.time) if at >= 0]
        self.at += [begin + series.time[place] for place in scored]
        for name in ("requested", "ready", "ttft", "tpot"):
            column = getattr(series, name)
            getattr(self, name).extend(column[place] for place in scored)
        self.changes += [(begin + change.at, change) for change in changes]
        self.requests += result.score.requests
        self.met += result.score.attained
        self.replica_seconds += result.score.replica_hours * 3600.0
        self._arrival.append(origin + truth.arrival)
        self._met.append(truth.met.astype(np.float32))
        self._ttft.append(truth.ttft.astype(np.float32))
        self._tpot.append(truth.tpot.astype(np.float32))


@dataclass(slots=True)
class AsItWas:
    """The history's own fleet: at each time as many replicas as it had."""

    at: Floats
    """Unix seconds, ascending."""
    serving: Floats
    name: str = "as it was"
    every_bucket: bool = False
    every: float = TICK

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:  # noqa: ARG002, the protocol
        """As many as there were."""
        return Answer(self.number(now))

    def number(self, now: float) -> int:
        """How many served at a Unix time, 1 or more."""
        place = min(max(0, int(np.searchsorted(self.at, now, side="right")) - 1), len(self.at) - 1)
        return max(1, round(float(self.serving[place])))

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """There is nothing to learn."""


@dataclass(slots=True)
class _Shifted(Wrapped):
    """A policy that sees the history's time, not the simulator's."""

    offset: float
    """Seconds from the simulator's time to the history's."""

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        return self.policy.decide(self._moved(observation), pool, now + self.offset)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        self.policy.learn(self._moved(observation), pool, now + self.offset)

    def _moved(self, observation: Observation) -> Observation:
        if isinstance(observation.metrics, Unknown):
            return observation
        metrics = tuple(replace(one, scraped_at=one.scraped_at + self.offset) for one in observation.metrics)
        return replace(observation, metrics=metrics)


def replay(world: World, policy: Policy | None = None, progress: Callable[[float], None] = lambda _: None) -> Replayed:
    """Runs a policy, or the core, from begin to end. `progress` hears the share that is done, 0 to 1."""
    policy = Ours() if policy is None else policy
    # The history's replicas served when they were counted.
    cold_start = ColdStart(0.0, 0.0) if isinstance(policy, AsItWas) else world.cold_start
    replayed, replicas, begin = Replayed(), world.initial, world.begin
    while begin < world.end:
        warm_up = world.warm_up if begin == world.begin else 0.0
        # A short rest is no segment of its own.
        rest = world.end - begin
        end = world.end if rest < SEGMENT + warm_up + 0.5 * SEGMENT else begin + warm_up + SEGMENT
        watched = Watched(_Shifted(policy, begin - EPOCH))
        options = SimulationOptions(
            cold_start=cold_start,
            scrape=ScrapeOptions(interval=world.scrape_interval, fresh_for=max(60.0, 4 * world.scrape_interval)),
            initial_replicas=replicas,
            seed=world.seed,
            history=warm_up,
        )
        trace = world.arrivals.trace("history", begin, end)
        result = simulate(trace, world.profile, world.pool, watched, options)
        replayed.add(result, begin, warm_up, watched.changes)
        replicas, begin = replayed.requested[-1], end
        progress((begin - world.begin) / (world.end - world.begin))
    return replayed
