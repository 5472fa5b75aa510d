"""One policy, one trace, one fleet: what would have happened."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.fleet import ColdStart, Fleet, Phase, Routing
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Answer, Policy, Static
from servingpool_simulation.score import Outcomes, Score, Spending, outcomes, score
from servingpool_simulation.scrape import ScrapeOptions, Scraper
from servingpool_simulation.tables import Floats
from servingpool_simulation.traces import Trace
from servingpool_simulation.upgrade import Upgrade

FORMAT = 1
"""Of the JSON of a Result; rises when a key changes its meaning."""


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The world around the policy. Times are seconds."""

    cold_start: ColdStart = field(default_factory=ColdStart)
    scrape: ScrapeOptions = field(default_factory=ScrapeOptions)
    decide_every: float | None = None
    """Between two decisions, whatever the policy's own pace; None for its own."""
    initial_replicas: int | None = None
    """Ready at the start; None for the pool's minimum, and at least 1."""
    routing: Routing = Routing.LEAST_LOADED
    seed: int = 0
    history: float = 0.0
    """The first seconds of the trace: served by the initial replicas, shown to the policy, not scored."""
    upgrades: tuple[Upgrade, ...] = ()
    """Changes of the engine's profile, for all replicas at once."""
    holds_for: float = math.inf
    """Seconds that the gateway holds a request while no replica is ready; 0 where it refuses it at once."""
    half_speed: tuple[int, ...] = ()
    """Ordinals of the replicas whose every step lasts twice as long."""
    tail: float = 600.0
    """After the last arrival, with the fleet left as it is, for requests to finish in."""
    price: float | None = None
    """Of a GPU-hour."""

    def __post_init__(self) -> None:
        if (self.decide_every is not None and self.decide_every <= 0) or self.history < 0 or self.tail < 0:
            raise ValueError(
                "need decide_every > 0 s, history >= 0 s and tail >= 0 s, "
                f"got {self.decide_every}, {self.history} and {self.tail}"
            )


@dataclass(slots=True)
class Series:
    """The run over time: one place per decision, in each list. Times and latencies are seconds."""

    time: list[float] = field(default_factory=list)
    """Since the start of the scored time, which may be negative during history."""
    requested: list[int] = field(default_factory=list)
    """Replicas after the decision."""
    ready: list[int] = field(default_factory=list)
    loading: list[int] = field(default_factory=list)
    draining: list[int] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    """Requests that have not yet run, in engines and at the front door."""
    in_flight: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    """Requests/s since the last decision."""
    prompt_tokens: list[float] = field(default_factory=list)
    """Tokens/s since the last decision, counted at the first token."""
    output_tokens: list[float] = field(default_factory=list)
    """Tokens/s since the last decision."""
    ttft: list[float | None] = field(default_factory=list)
    """At the SLO's percentile, of the requests with their first token in the last minute; None without any."""
    tpot: list[float | None] = field(default_factory=list)
    """At the SLO's percentile, of the requests that finished in the last minute."""
    attainment: list[float] = field(default_factory=list)
    """Of the scored requests that ended so far."""
    reason: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """One run: its score, its course, and what it ran on."""

    policy: str
    trace: str
    profile: str
    slo: Slo
    score: Score
    series: Series
    outcomes: Outcomes = field(repr=False)
    """Of every scored request; not in the JSON."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Keys: format, policy, trace, profile, slo, score (as Score), series (as Series); None is null."""
        return {
            "format": FORMAT,
            "policy": self.policy,
            "trace": self.trace,
            "profile": self.profile,
            "slo": asdict(self.slo),
            "score": asdict(self.score),
            "series": asdict(self.series),
        }


def simulate(
    trace: Trace, profile: EngineProfile, pool: Pool, policy: Policy, options: SimulationOptions = SimulationOptions()
) -> Result:
    """Runs one policy over one trace, deterministically for a seed.

    The policy sees only what `scrape` shows. Its first decision falls at the start of the scored time.
    Raises ValueError when the history leaves nothing of the trace to score.
    """
    upgrades = tuple(replace(upgrade, at=options.history + upgrade.at) for upgrade in options.upgrades)
    fleet = Fleet(
        profile,
        trace,
        options.cold_start,
        options.routing,
        options.seed,
        upgrades,
        half_speed=options.half_speed,
        holds_for=options.holds_for,
    )
    initial = options.initial_replicas
    fleet.start_ready(max(1, pool.min_replicas) if initial is None else initial)
    return let_serve(fleet, Scraper(fleet, pool.slo, options.scrape, policy.every_bucket), pool, policy, options)


def let_serve(fleet: Fleet, scraper: Scraper, pool: Pool, policy: Policy, options: SimulationOptions) -> Result:
    """Runs the policy on a fleet whose first replicas stand. Raises as `simulate`."""
    trace = fleet.trace
    if options.history >= trace.duration:
        raise ValueError(f"history of {options.history:g} s leaves nothing of a trace of {trace.duration:g} s")
    recorder = _Recorder(fleet, options.history)
    every = policy.every if options.decide_every is None else options.decide_every
    for answer in answers(fleet, scraper, pool, policy, every, options.history):
        if answer is not None:
            recorder.scale(answer)
        recorder.note("" if answer is None else answer.reason)
    fleet.advance(trace.duration)
    fleet.advance(trace.duration + options.tail)
    truth = outcomes(fleet.requests, pool.slo, options.history, trace.duration)
    recorder.fill_in(truth, pool.slo)
    seconds = trace.duration - options.history
    spent = Spending(
        seconds=seconds,
        replica_seconds=fleet.paid_for(options.history, trace.duration),
        peak_replicas=recorder.peak,
        scale_changes=len(recorder.changes),
        flaps=recorder.flaps(within=2 * options.cold_start.mean),
        begin=options.history,
        gpus_per_replica=fleet.gpus_per_replica(options.history, trace.duration),
        price=options.price,
    )
    return Result(policy.name, trace.name, fleet.profile.name, pool.slo, score(truth, spent), recorder.series, truth)


def answers(
    fleet: Fleet, scraper: Scraper, pool: Pool, policy: Policy, every: float, history: float
) -> Iterator[Answer | None]:
    """The policy's answer each `every` seconds; None in the first `history` seconds, in which it learns.

    The caller scales the fleet before it asks for the next one.
    """
    learning, epoch = replace(pool, in_charge=False), scraper.options.epoch
    # Decisions are at multiples of `every` from the start of the scored time.
    for now in np.arange(history % every, fleet.trace.duration, every).tolist():
        scraper.arm(now)
        fleet.advance(now)
        observation = scraper.observe()
        if now < history:
            policy.learn(observation, learning, epoch + now)
            yield None
        else:
            yield policy.decide(observation, pool, epoch + now)


def best_static(
    trace: Trace, profile: EngineProfile, pool: Pool, options: SimulationOptions = SimulationOptions()
) -> Result | None:
    """The smallest fleet without scaling that attains the target, known only in hindsight.

    Searched from 1 to the pool's maximum, taking for granted that a larger fleet attains no less.
    None when not even the maximum attains.
    """

    def run(replicas: int) -> Result:
        return simulate(trace, profile, pool, Static(replicas), replace(options, initial_replicas=replicas))

    def attains(result: Result) -> bool:
        return result.score.attainment >= pool.slo.attainment

    missed, size = 0, 1
    while not attains(best := run(size)):
        missed = size
        if size == pool.max_replicas:
            return None
        size = min(2 * size, pool.max_replicas)
    while size - missed > 1:
        middle = (missed + size) // 2
        result = run(middle)
        if attains(result):
            best, size = result, middle
        else:
            missed = middle
    return best


@dataclass(slots=True)
class _Recorder:
    """Writes down the course of a run."""

    fleet: Fleet
    begin: float
    series: Series = field(default_factory=Series)
    changes: list[tuple[float, int]] = field(default_factory=list)
    """(seconds, replicas more) of each."""
    peak: int = 0
    _totals: Floats = field(default_factory=lambda: np.zeros(3))
    _at: float = 0.0

    def scale(self, answer: Answer) -> None:
        before = self.fleet.requested
        self.fleet.scale(answer.replicas, answer.parts)
        if self.fleet.requested != before:
            self.changes.append((self.fleet.now, self.fleet.requested - before))

    def flaps(self, within: float) -> int:
        """Changes down that were followed by one up within so many seconds."""
        return sum(
            more < 0 < next_more and next_at - at <= within
            for (at, more), (next_at, next_more) in pairwise(self.changes)
        )

    def note(self, reason: str) -> None:
        fleet, series = self.fleet, self.series
        phases = [len(fleet.of(phase)) for phase in (Phase.READY, Phase.LOADING, Phase.DRAINING)]
        totals = np.array((fleet.arrived, *fleet.tokens()))
        span = fleet.now - self._at
        arrivals, prompt, output = ((totals - self._totals) / span).tolist() if span else (0.0, 0.0, 0.0)
        series.time.append(fleet.now - self.begin)
        series.requested.append(fleet.requested)
        series.ready.append(phases[0])
        series.loading.append(phases[1])
        series.draining.append(phases[2])
        series.queue.append(fleet.queued())
        series.in_flight.append(fleet.in_flight())
        series.arrivals.append(arrivals)
        series.prompt_tokens.append(prompt)
        series.output_tokens.append(output)
        series.reason.append(reason)
        if fleet.now >= self.begin:
            self.peak = max(self.peak, fleet.requested)
        self._totals, self._at = totals, fleet.now

    def fill_in(self, truth: Outcomes, slo: Slo) -> None:
        """The columns that only the whole truth gives."""
        at = np.array(self.series.time) + self.begin
        first = truth.arrival + truth.ttft
        self.series.ttft = _quantile_by_minute(at, first, truth.ttft, slo.attainment)
        decoded = np.where(truth.tpot > 0, truth.ended, np.nan)
        self.series.tpot = _quantile_by_minute(at, decoded, truth.tpot, slo.attainment)
        order = np.argsort(truth.ended)
        met = np.concatenate(([0], np.cumsum(truth.met[order])))
        ended = np.searchsorted(truth.ended[order], at, side="right")
        self.series.attainment = np.where(ended > 0, met[ended] / np.maximum(ended, 1), 1.0).tolist()


def _quantile_by_minute(at: Floats, when: Floats, values: Floats, quantile: float) -> list[float | None]:
    """The quantile of the values of the minute before each moment; None where there were none."""
    order = np.argsort(when)  # NaN sorts last, behind every moment
    when, values = when[order], values[order]
    begins, ends = np.searchsorted(when, at - 60.0, side="right"), np.searchsorted(when, at, side="right")
    return [
        _quantile(values[begin:end], quantile) if end > begin else None
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _quantile(values: Floats, quantile: float) -> float:
    """As np.quantile, linear between two values, in a tenth of its time on the few that a minute holds."""
    place = quantile * (len(values) - 1)
    lower = int(place)
    upper = min(lower + 1, len(values) - 1)
    parted = np.partition(values, (lower, upper))
    low, high = float(parted[lower]), float(parted[upper])
    return low + (high - low) * (place - lower)
