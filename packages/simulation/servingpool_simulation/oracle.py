"""The oracle: a course of the fleet that knows every arrival and the hardware, and still pays cold starts.

Nobody can have it: it is what a policy is measured against. It is found by search and run through the same
simulation as every policy, so it is an upper bound on the least GPU-hours that hold the SLO, not a proof of them:
the true optimum may be lower still, and a policy that comes below it has found a better course.

Four stages, all deterministic. A dynamic program plans the course for the offered load, given the load that a
replica can carry and what a request within the SLO is worth. A search over both finds the cheapest plan that
attains the target in the simulation. Plans are made anew with what each run shows of the load. Then stretches of the
best one are lowered, raised and shifted, one after the other, kept while the target is attained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.pool import Pool
from servingpool_simulation.fleet import Fleet
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.offered import base_step, offered_load
from servingpool_simulation.planning import Price, plan
from servingpool_simulation.policies import TICK, Schedule
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.score import outcomes
from servingpool_simulation.tables import Floats, Ints
from servingpool_simulation.traces import Trace


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a search simulates, in requests: half a minute for an hour of 5 requests/s, minutes for a day of 50."""

    requests: int = 24_000_000
    most_runs: int = 600
    """However short the trace."""

    def runs(self, trace: Trace) -> int:
        """Runs of this trace that can be afforded, at least 8."""
        return max(8, min(self.most_runs, self.requests // costs(trace)))


TICK_COSTS = 75
"""Requests that can be simulated in the time that a decision takes."""


def costs(trace: Trace) -> int:
    """What one run costs, in requests."""
    return len(trace) + round(TICK_COSTS * trace.duration / TICK)


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """A schedule and what the simulation said to it."""

    replicas: Ints
    replica_seconds: float
    misses: int
    missed: NDArray[np.bool_] = field(repr=False)
    """Of each request."""


def oracle(
    trace: Trace, profile: EngineProfile, pool: Pool, options: SimulationOptions, effort: Effort = Effort()
) -> Result | None:
    """The cheapest course found that attains the target, as a run like any other; None where none attains.

    Options as for every policy, without history: it would have nothing to learn from it.
    """
    alone = replace(options, history=0.0, decide_every=None)
    search = _Search(trace, profile, pool, alone, effort.runs(trace))
    bound, base = pool.slo.time_per_output_token, base_step(profile)
    knee = KNEE_WITHOUT_BOUND if bound is None else max(0.1, 1 - base / bound)
    plans = len(STEEPNESSES) * (len(KNEES) + len(DEAR)) * TRIES
    if search.runs >= 2 * plans:
        search.compare_plans(knee, search.work_of_a_request)
    else:
        stretches = effort.requests // (3 * plans * costs(trace.between(0.0, STRETCH)))
        part = _sampled(trace, max(1, min(stretches, MOST_STRETCHES)))
        sample = _Search(part, profile, pool, alone, min(plans, effort.requests // (3 * costs(part))))
        sample.compare_plans(knee, search.work_of_a_request)
        search.seek_knee(sample.price, search.runs // 2)
    if search.best is None:
        return None
    search.calibrate(min(CALIBRATIONS, search.runs))
    search.improve(search.best)
    return simulate(trace, profile, pool, Schedule(tuple(search.best.replicas.tolist())), alone)


KNEES = (0.9, 0.7, 1.0, 0.55, 0.8, 0.4, 1.15)
"""Of the load at which TPOT reaches its bound without queueing; the likely ones first."""
STEEPNESSES = (24.0, 8.0)
DEAR = (8.0, 60.0)
"""Prices of a miss at which the knee is sought, in times the work of a request."""
TRIES = 7
"""Runs to find the price, or the knee, at which the target is just attained."""
CALIBRATIONS = 40
RAISED_ABOVE = 0.05
"""Share of a bin's requests that miss."""
KNEE_STEPS = 8.0
"""Steps along a line of prices in one of the logarithm of the knee."""
FIRST_STEP, FURTHEST = 0.7, 2.5
"""Along a line of prices: where nothing is known of the slope, and at most."""
FIRST_PRICE = 8.0
"""Of a miss, in times the work of a request."""
KNEE_WITHOUT_BOUND = 0.8
"""Load that a replica is taken to carry where TPOT does not matter."""
STRETCH, MOST_STRETCHES = 1440.0, 6
"""Seconds and number of the pieces of a long trace on which plans are compared."""


@dataclass(slots=True)
class _Search:
    trace: Trace
    profile: EngineProfile
    pool: Pool
    options: SimulationOptions
    runs: int
    """Runs left."""
    best: Tried | None = None
    """The cheapest that attains."""
    price: Price = field(default=Price(0.5, 1.0))
    """Of the plan that it came from."""
    _load: Floats = field(init=False, repr=False)
    _ticks: Ints = field(init=False, repr=False)
    """Of each request's arrival."""
    _requests: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._load = offered_load(self.trace, self.profile, self.pool.slo, TICK)
        self._ticks = np.minimum((self.trace.arrival / TICK).astype(np.int64), len(self._load) - 1)
        self._requests = np.bincount(self._ticks, minlength=len(self._load)).astype(np.float64)

    def compare_plans(self, physical: float, work: float) -> None:
        """Plans over what a replica carries and what a miss costs, one of them fixed and the other sought."""
        miss = FIRST_PRICE * work
        for steepness in STEEPNESSES:
            for dear in DEAR:
                if self.runs >= TRIES:
                    self.seek_knee(Price(physical, dear * work, steepness), TRIES)
            for knee in KNEES:
                if self.runs >= TRIES:
                    miss = self.seek_price(Price(knee * physical, miss, steepness), TRIES)

    def seek_price(self, price: Price, runs: int) -> float:
        """Looks for the price of a miss at which the plan for it just attains. Returns it, or the last one tried."""
        return math.exp(self._seek(lambda at: replace(price, miss=math.exp(at)), math.log(price.miss), runs))

    def seek_knee(self, price: Price, runs: int) -> None:
        """Looks for the knee instead. Where the load is even, no price makes a plan miss a few: it gives up hours."""
        self._seek(lambda at: replace(price, knee=price.knee * math.exp(-at / KNEE_STEPS)), 0.0, runs)

    def _seek(self, price: Callable[[float], Price], at: float, runs: int) -> float:
        """Along a line of prices on which misses fall. Returns the last place that attains, or the last tried."""
        points: list[tuple[float, float]] = []  # (place, log of misses over those allowed)
        for _ in range(runs):
            before = self.best
            tried = self.attempt(self._planned(price(at)))
            if self.best is not before:
                self.price = price(at)
            points.append((at, math.log((tried.misses + 1) / (self.allowed + 1))))
            at = next_place(points)
        return min((place for place, over in points if over <= 0), default=at)

    def calibrate(self, runs: int) -> None:
        """Plans again and again, each time with what the last run showed of the load that its replicas carried.

        The load of a bin whose requests missed is taken for higher than it was thought, any other for a little lower:
        all of the trace moves at once, where small changes try one place after the other. The price of a miss follows
        the misses in all.
        """
        known = self._load.copy()
        log = math.log(min(self.price.miss, self._budget_price()))
        for _ in range(runs):
            tried = self.attempt(self._planned(replace(self.price, miss=math.exp(log))))
            over = (tried.misses - self.allowed) / max(self.allowed, 1)
            log += min(max(0.7 * over, -0.3), 0.3)
            misses = np.bincount(self._ticks, weights=tried.missed, minlength=len(known)).astype(np.float64)
            share = _smoothed(misses) / np.maximum(_smoothed(self._requests), 1e-9)
            raised = np.where(share > RAISED_ABOVE, 0.05 * np.minimum(share / 0.3, 1.0), -0.01)
            self._load = np.clip(self._load * np.exp(raised), known / 3, known * 3)

    def improve(self, start: Tried) -> None:
        """Small changes, each kept where the target is still attained and it saves replicas, or misses for little.

        A miss has a tenth of the price that the whole budget of them has: of two courses that cost the same, the one
        with more misses to spare goes on.
        """
        random = np.random.default_rng(0)
        at, miss = start, 0.1 * self._budget_price()
        while self.runs > 0:
            tried = self.attempt(self._changed(at.replicas, random))
            saved = at.replica_seconds - tried.replica_seconds + miss * (at.misses - tried.misses)
            if tried.misses <= self.allowed and saved >= 0:
                at = tried

    def attempt(self, replicas: Ints) -> Tried:
        """One run, without anybody watching: being scraped changes nothing."""
        self.runs -= 1
        options, trace = self.options, self.trace
        fleet = Fleet(self.profile, trace, options.cold_start, options.routing, options.seed, options.upgrades)
        initial = options.initial_replicas
        fleet.start_ready(max(1, self.pool.min_replicas) if initial is None else initial)
        for tick, size in enumerate(replicas.tolist()):
            fleet.advance(tick * TICK)
            fleet.scale(size)
        fleet.advance(trace.duration)
        fleet.advance(trace.duration + options.tail)
        met = outcomes(fleet.requests, self.pool.slo, 0.0, trace.duration).met
        tried = Tried(replicas, fleet.paid_for(0.0, trace.duration), int((~met).sum()), ~met)
        if tried.misses <= self.allowed and (self.best is None or tried.replica_seconds < self.best.replica_seconds):
            self.best = tried
        return tried

    def _budget_price(self) -> float:
        """Of a miss, if all that are allowed were worth the whole of the best course."""
        assert self.best is not None
        return self.best.replica_seconds / max(self.allowed, 1)

    @property
    def work_of_a_request(self) -> float:
        """Replica-seconds, on average."""
        return float(self._load.sum()) * TICK / max(len(self.trace), 1)

    @property
    def allowed(self) -> int:
        """Misses that the target allows."""
        return int(np.floor(len(self.trace) * (1 - self.pool.slo.attainment) + 1e-9))

    def _planned(self, price: Price) -> Ints:
        start = self.options.cold_start
        # Later than the mean start costs misses, earlier than the slowest costs replicas: in between.
        lead = int(np.ceil(start.mean * (1 + start.jitter / 2) / TICK))
        found = plan(self._load, self._requests, price, every=TICK, lead=lead, most=self.pool.max_replicas)
        return np.maximum(found, self.pool.min_replicas)

    def _changed(self, replicas: Ints, random: np.random.Generator) -> Ints:
        """One edge shifted, or one stretch a replica lower or higher."""
        changed = replicas.copy()
        edges = np.flatnonzero(np.diff(replicas)) + 1
        bounds = np.concatenate(([0], edges, [len(replicas)]))
        kind = random.random()
        if kind < 0.5 and len(edges):
            edge = int(random.choice(edges))
            span = int(random.choice((1, 1, 2, 3, 5, 8)))
            if random.random() < 0.5:
                changed[edge : edge + span] = replicas[edge - 1]
            else:
                changed[max(0, edge - span) : edge] = replicas[edge]
        else:
            if kind < 0.75:
                which = int(random.integers(len(bounds) - 1))
                begin, end = int(bounds[which]), int(bounds[which + 1])
            else:
                begin = int(random.integers(len(replicas)))
                end = begin + int(random.integers(1, 24))
            changed[begin:end] += -1 if random.random() < 0.6 else 1
        return np.clip(changed, self.pool.min_replicas, self.pool.max_replicas)


def next_place(points: Sequence[tuple[float, float]]) -> float:
    """Where a line through the best known points crosses 0: (place, log of misses over those allowed) each.

    Between a place that misses and one that attains where both are known, never close to either; else a step out, by
    the slope of the last two points.
    """
    low = max(((at, over) for at, over in points if over > 0), default=None)  # misses fall with the place
    high = min(((at, over) for at, over in points if over <= 0), default=None)
    if low and high and low[0] < high[0]:
        share = low[1] / (low[1] - high[1])
        return low[0] + (high[0] - low[0]) * min(max(share, 0.15), 0.85)
    at, over = points[-1]
    if len(points) > 1 and points[-2][0] != at:
        slope = (over - points[-2][1]) / (at - points[-2][0])
        if slope < 0:
            return at + min(max(-1.2 * over / slope, -FURTHEST), FURTHEST)
    return at + (FIRST_STEP if over > 0 else -FIRST_STEP)


def _sampled(trace: Trace, stretches: int) -> Trace:
    """Pieces of a long trace, evenly over it, one after the other."""
    begins = (np.arange(stretches) + 0.5) * trace.duration / stretches - STRETCH / 2
    return reduce(Trace.then, [trace.between(begin, begin + STRETCH) for begin in np.maximum(begins, 0.0).tolist()])


def _smoothed(values: Floats) -> Floats:
    """By a bell of a bin's width."""
    bell = np.exp(-0.5 * np.arange(-3, 4) ** 2.0)
    return np.convolve(values, bell / bell.sum(), "same")
