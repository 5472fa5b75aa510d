"""The memory of a pool between two decisions, whole and in its lasting part."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from servingpool.decision.engine import NO_DEMAND, Rates, StepTime
from servingpool.decision.learn.error_budget import Calibration, ErrorBudget
from servingpool.decision.learn.forecast import Busy, Forecast, WorkForecast
from servingpool.decision.learn.kinds import ColdStart, Kind, Kinds, Shortage, kind_of
from servingpool.decision.learn.ledger import Ledger
from servingpool.decision.learn.miss_curve import Curve, MissCurve
from servingpool.decision.learn.queue_in_ttft import QueueInTtft
from servingpool.decision.observation import Observation, Reading, Replica, Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.counters import NOTHING_COUNTED, CounterDelta
from servingpool.decision.observe.gauges import GatewayGauge
from servingpool.decision.observe.latency import Tail
from servingpool.decision.observe.queueing import Look
from servingpool.decision.observe.window import Demand, SampleWindow
from servingpool.decision.params import DAY, DEFAULT, HOUR
from servingpool.decision.pool import Pool
from servingpool.decision.words import clock, shown
from servingpool.decision.zero import NEVER_ZERO, GatewayDemand, Vanished

BIN = DEFAULT.recent_window
"""Seconds: width of the bins of past loads and of the score."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The part of the memory that is learned slowly and outlives a restart, kept in the status (about 9 KiB)."""

    at: float = 0.0
    """Unix time in seconds of the last observation in the profile."""
    queue_in_ttft: QueueInTtft = field(default_factory=QueueInTtft)
    curve: MissCurve = field(default_factory=MissCurve)
    forecast: Forecast = field(default_factory=Forecast)
    budget: ErrorBudget = field(default_factory=ErrorBudget)
    calibration: Calibration = field(default_factory=Calibration)
    learned: float = 0.0
    """Seconds of observation that the profile rests on."""
    slo: tuple[float | None, float | None, float] | None = None
    """The SLO that curve and budget speak of: TTFT and TPOT in seconds, attainment."""
    at_gateway: bool = False
    """Whether the SLO's TTFT is the client's."""
    busy: Busy = field(default_factory=Busy)
    vanished: Vanished | None = None
    """The gateway's series that was gone at 0 replicas; None where none was."""
    kinds: Kinds = ()
    """Engines of each target."""
    reference: str = ""
    """Name of the target in whose replicas capacity is counted."""
    ledger: Ledger = field(default_factory=Ledger)
    """The backlog of a pool whose work has deadlines."""

    engine: Kind = field(init=False, compare=False, repr=False)
    """Engines of the reference; follows from the two."""

    def __post_init__(self) -> None:
        """Found once: a decision asks for it twenty times."""
        object.__setattr__(self, "engine", kind_of(self.kinds, self.reference))

    @property
    def cold_start(self) -> ColdStart:
        """The last starts of all targets."""
        if len(self.kinds) == 1:
            return self.kinds[0].cold_start
        return ColdStart(tuple([seconds for kind in self.kinds for seconds in kind.cold_start.seconds]))


class Scored(NamedTuple):
    """Requests of five minutes, and late requests among them."""

    begin: float
    """Unix time in seconds."""
    requests: float
    late: float


class Step(NamedTuple):
    """A larger fleet, and what it did."""

    before: float
    """Replicas."""
    after: float
    late: float
    """Share late before."""
    work: float
    """Counted work, in replicas kept busy."""
    then: float | None = None
    """Share late after, where that is no fair part of what was to be saved; None while it is on trial."""


class Trial(NamedTuple):
    """What may be ordered, and what more replicas did."""

    free: float = math.inf
    """Replicas that are ordered at once."""
    replicas: float = 0.0
    """Replicas on trial, or proven."""
    ready_at: float | None = None
    """Unix time in seconds since which all that may be ordered serve; None where some do not."""
    step: Step | None = None
    """The step that is on trial, or that did not help."""
    pause: float = 0.0
    until: float = 0.0
    """Unix time in seconds before which no step is tried."""
    hopeless: str | None = None
    """Why no fleet size helps; None where some may."""

    @property
    def most(self) -> float:
        """Replicas that may be ordered."""
        return max(self.free, self.replicas)

    @property
    def failed(self) -> str | None:
        """Why more replicas do not help, as a sentence; None where they may."""
        if self.hopeless is not None or self.step is None or self.step.then is None:
            return self.hopeless
        before, after, late, _, then = self.step
        moved = f"from {shown(before)} to {shown(after)} replicas late requests went from {late:.0%} to {then:.0%}"
        return f"{moved}: more replicas did not help; tried again at {clock(self.until)}"

    @property
    def why(self) -> str:
        """Why no more are ordered, as a sentence."""
        return self.failed or "counted work asks for no more, and others come in steps while requests are late"


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a pool, a value: `decide` returns a new one and leaves the old as it was. It can be pickled."""

    profile: Profile = field(default_factory=Profile)
    since: float | None = None
    """Unix time in seconds since which the pool is observed without a hole; None where nothing was observed yet."""
    covered_at: float | None = None
    """Unix time in seconds of the last observation that told how much traffic came, even none."""
    window: SampleWindow = field(default_factory=SampleWindow)
    last: CounterDelta = NOTHING_COUNTED
    """The increases up to the last observation, and what it showed."""
    looks: tuple[Look, ...] = ()
    """Looks at the queues, while the need is not known."""
    gateway_gauge: GatewayGauge | None = None
    """The gateway's queue gauge, believed or not; None where there is no gateway."""
    ttft_inferred: bool = False
    """`Observation.ttft_inferred` at the last observation."""
    demand: GatewayDemand | None = None
    """Demand at the gateway; None where the pool never goes to zero."""
    damaged: str | None = None
    """Why samples, or their gauges, were left out at the last observation, with the replicas' names."""
    queue_unknown: str | None = None
    """Why the queue was not known at the last observation."""
    interval: float = 15.0
    """Seconds between scrapes, as seen."""
    lag: float = DAY
    """Seconds from the newest sample to the decision, the least of late: by how much the clocks differ, about."""
    ttft_tail: Tail = field(default_factory=Tail)
    tpot_tail: Tail = field(default_factory=Tail)
    score: tuple[Scored, ...] = ()
    """Requests and late requests of the last hour, oldest first."""
    recommendations: tuple[tuple[float, float], ...] = ()
    """(time, replicas worth keeping) of recent decisions, for the scale-down window."""
    penalty: float | None = None
    """Penalty of a miss, in replicas for the work that keeps a replica busy; None where it is to be found."""
    penalty_until: float = 0.0
    """Unix time in seconds up to which the penalty is kept."""
    shortages: tuple[Shortage, ...] = ()
    """Shortage of each target."""
    most_served: Rates = NO_DEMAND
    """Highest rates of what was served, fading within two hours."""
    trial: Trial | None = None
    """What may be ordered beyond counted work; None before the first need."""
    predicted_by: Curve | None = field(default=None, compare=False, repr=False)
    """The miss curve of the last decision. It follows from all the rest."""

    @property
    def at(self) -> float | None:
        """Unix time in seconds of the last observation; None before the first."""
        return float(self.window.rows[-1, Column.AT]) if len(self.window.rows) else None

    def step_time(self, pool: Pool) -> StepTime | None:
        """Step time as known; None before the first."""
        window, params = self.window, pool.params
        (prompt, steps), tokens = window.lengths(self.interval, params), window.tokens_a_step(params)
        return self.profile.engine.step_time(params, tokens=tokens, prompt=prompt, steps=steps)

    def calm_since(self, pool: Pool) -> float | None:
        """Unix time in seconds, in the last 20 minutes, since which the last curve holds the SLO; None if unknown."""
        step, curve = self.step_time(pool), self.predicted_by
        return None if step is None or curve is None else self.window.calm_since(curve.load_for(pool.slo.allowed), step)

    def calibrated(self, pool: Pool) -> bool:
        """Whether the pool was observed for long enough, kept history included, and its step time is known."""
        return self.profile.learned >= pool.params.calibration and self.profile.engine.fit.known

    def horizon(self, pool: Pool) -> float:
        """Seconds until all requested capacity serves: the cold starts, and an interval to see it.

        Where replicas start one after another, what is ordered takes as many cold starts, an hour of them at most. Not
        where one of them never becomes Ready, so that no further one comes.
        """
        cold, starts = self.profile.cold_start.expected(pool.params.cold_start), pool.starts
        if starts > 1 and self.shortages and all(one.refused(self.at or 0.0, pool.params) for one in self.shortages):
            starts = 1
        return min(starts * cold, max(cold, HOUR)) + self.interval

    def start(self, pool: Pool) -> float:
        """Seconds from an order to the capacity of the first replica."""
        return self.profile.cold_start.expected(pool.params.cold_start) + self.interval

    @property
    def highest_recommendation(self) -> float:
        """Most replicas that were recommended within the scale-down window."""
        return max([entry[1] for entry in self.recommendations], default=0.0)

    def scale_down_window(self, pool: Pool) -> float:
        """Seconds for which a fleet stays at the recommended size: two cold starts at least.

        A replica that goes and comes back sooner has cost more than it saved.
        """
        return max(pool.params.scale_down_window, pool.params.scale_down_starts * self.horizon(pool))

    def absent(self, observation: Observation) -> list[Replica]:
        """The replicas that served and are not Ready now: they crashed, or their node is away."""
        return [one for one in observation.starting if one.name in self.last.samples]

    def idle_for(self, now: float) -> Reading:
        """Seconds since the last request, at the gateway or the engines, of a pool that may go to zero."""
        return NEVER_ZERO if self.demand is None else self.demand.idle_for(now)

    def idle_after(self, pool: Pool) -> float:
        """Seconds without a request after which a pool with min 0 goes to zero: the scale-down window at least."""
        return max(pool.idle_after or 0.0, self.scale_down_window(pool))

    def idle(self, pool: Pool, now: float) -> bool:
        """Whether it is certain that no request came for so long that the last replica may go."""
        if pool.idle_after is None or self.profile.vanished is not None:
            return False
        without = self.idle_for(now)
        return not isinstance(without, Unknown) and without >= self.idle_after(pool)

    def unused(self, pool: Pool, now: float) -> bool:
        """Whether no replica is kept for possible demand: the last may go, or came back without a request."""
        return self.idle(pool, now) or (self.demand is not None and self.demand.rested)

    def score_of_last_hour(self, now: float) -> tuple[Scored, ...]:
        """The bins of the score that began in the last hour."""
        return tuple([entry for entry in self.score if entry.begin > now - HOUR])

    def without_forecasts(self) -> Memory:
        """The memory after a hole, without the pending forecasts: demand after the hole must not settle them."""
        forecast = replace(self.profile.forecast, pending=())
        return replace(self, profile=replace(self.profile, forecast=forecast), penalty=None)

    def interrupted(self) -> Memory:
        """The memory after a break: learned figures are kept, windows begin anew."""
        profile, window = self.without_forecasts().profile, SampleWindow(buckets=self.window.buckets)
        return Memory(profile, window=window, interval=self.interval, shortages=self.shortages, lag=self.lag)


class UpdateResult(NamedTuple):
    """The memory after an observation, with step time and demand."""

    memory: Memory
    step: StepTime | None
    demand: Demand | None
    """Demand; None where the step time or the arrivals are not known yet."""
    forecast: WorkForecast | None
    """The forecast in work by that step time."""

    @classmethod
    def of(cls, memory: Memory, step: StepTime | None, demand: Demand | None, pool: Pool) -> Self:
        """The result with the forecast in work by this step time."""
        return cls(memory, step, demand, None if step is None else memory.profile.forecast.in_work(step, pool.params))
