"""The decision: replicas of each target, and every figure that a person needs to recompute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.catalogue.limits import LimitName
from servingpool.catalogue.template import render
from servingpool.decision.learn.forecast import Outlook
from servingpool.decision.learn.miss_curve import Curve
from servingpool.decision.observation import EPSILON, Reading, Unknown
from servingpool.decision.observe.samples import Standing
from servingpool.decision.pool import Bounds

ENOUGH = 0.999
"""Share of a capacity that serves for it: speeds drift, and a replica is not replaced for a thousandth."""
EQUAL = EPSILON
"""Relative difference of two capacities or prices that are not told apart."""


def share_of(targets: int) -> float:
    """Share of a capacity that suffices for it with so many targets: of one target each replica counts."""
    return ENOUGH if targets > 1 else 1.0 - EQUAL


class Part(NamedTuple):
    """The decision on a target."""

    target: str
    """Name of the target."""
    requested: int
    """`spec.replicas` of the target."""
    replicas: int
    """Desired `spec.replicas` of the target."""
    ready: int
    speed: Reading
    """Capacity of one replica, in replicas of the reference target; Unknown until both targets have served."""
    cold_start: float
    """Seconds from request to Ready: the target's own starts where there were some, else the pool's."""
    stuck: str | None = None
    """Why the target does not deliver its requested replicas, as a sentence; None where it delivers."""
    delivered: int = 0
    """Replicas that are Ready or load on a node."""
    weight: float = 1.0
    """Capacity that one replica counted for: its speed, or a guess by price before the speed was known."""
    absent: bool = False
    """Whether replicas that the target does not deliver count for nothing, for it is not the only target."""
    base: int = 0
    """Replicas that always stay."""

    @property
    def useful(self) -> int:
        """Replicas that serve or will serve: without an absent target's replicas that never come."""
        return min(self.replicas, self.delivered) if self.absent else self.replicas


Array = NDArray[np.float64]


class Course(NamedTuple):
    """Misses at each fleet size, of the demand at the horizon and of the demand now."""

    fleets: Array
    """Ascending, from 1."""
    misses: Array
    """Expected misses at the horizon, in the work of replicas kept busy."""
    expected: float
    """Work at the horizon: without replicas, all of it misses."""
    level: float
    """Work that arrives now."""
    curve: Curve

    def beyond(self, least: int) -> tuple[float, ...]:
        """Misses with 0, 1, ... `least` replicas and more: at the horizon or now, whichever are more.

        What goes now is missing now, and what is ordered serves at the horizon. To where even the highest demand is
        served: a pool far from that would seem to have no use for its next replica.
        """
        replicas = np.arange(max(float(least), self.fleets[-1]) + 1.0)
        ahead = np.interp(replicas, np.append(0.0, self.fleets), np.append(self.expected, self.misses))
        load = self.level / np.maximum(replicas, 0.5)
        now = np.minimum(self.level * self.curve.cost(load), self.level)
        now[0] = self.level
        return tuple(np.minimum.accumulate(np.maximum(np.minimum(ahead, self.expected), now)).tolist())


FAST_BURN = 2.0
"""Multiple of the allowed misses, over the last 5 minutes, above which the SLO counts as missed now."""
BURST = 0.05
"""Share of the possible outcomes that exceed `Plan.burst`."""


class Verdict(StrEnum):
    """Effect of the decision on the fleet."""

    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    HOLD = "Hold"


@dataclass(frozen=True, slots=True)
class Limit:
    """A step between the raw need and the answer, in the order applied."""

    name: LimitName
    before: float
    """Replicas before the limit, of the reference target where the pool has several; `after` likewise."""
    after: float
    reason: str
    """A sentence with figures and units."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A number of replicas on its way, with the limits that changed it."""

    replicas: float
    """Replicas so far; a whole number where the pool has one target."""
    applied: tuple[Limit, ...] = ()

    def at_least(self, least: float, name: LimitName, /, **given: object) -> Limited:
        """Raise to `least` where it is below. `given` fills in the limit's sentence."""
        return self if self.replicas >= least else self._moved(least, name, given)

    def at_most(self, most: float, name: LimitName, /, **given: object) -> Limited:
        """Cut to `most` where it is above. `given` fills in the limit's sentence."""
        return self if self.replicas <= most else self._moved(most, name, given)

    def _moved(self, to: float, name: LimitName, given: Mapping[str, object]) -> Limited:
        limit = Limit(name=name, before=self.replicas, after=to, reason=render(name.template, given))
        return replace(self, replicas=to, applied=(*self.applied, limit))


@dataclass(frozen=True, slots=True)
class Figures:
    """Measured and estimated figures of a pool; Unknown where a figure could not be told."""

    arrivals: Reading
    """Requests/s over the last half minute, or two scrapes."""
    generation_rate: Reading
    """Output tokens/s, aggregate over the pool."""
    prompt_rate: Reading
    """Prompt tokens/s, aggregate over the pool."""
    queue: Reading
    """Requests waiting in engines and gateway."""
    running: Reading
    """Requests in running batches."""
    time_to_first_token: Reading
    """Seconds at the SLO's percentile over the last 5 minutes, as far as the buckets can tell."""
    time_per_output_token: Reading
    """Seconds at the SLO's percentile over the last 5 minutes."""
    attainment: Reading
    """Share of requests of the last hour that met every bound of the SLO, by the source that is believed."""
    attainment_now: Reading
    """Share of requests of the last 5 minutes that met every bound of the SLO."""
    attainment_minute: Reading
    """The share of the last minute: it shows a recovery first."""
    judged: bool
    """Whether the SLO is judged: False where it is measured at the gateway, and the gateway does not tell."""
    witness: str
    """Source that tells whether a first token was late: a value of `Witness`."""
    longest_wait: float
    """Seconds that the longest-waiting request has waited, by the length of the queues."""
    full_batch: Reading
    """Requests that a replica decodes at a time while requests wait; before that, the limit in its arguments."""
    full_requests: Reading
    """Requests/s that a replica served while requests waited for it."""
    full_tokens: Reading
    """Output tokens/s that a replica yielded while requests waited for it."""
    step_base: Reading
    """Seconds of an engine step with no work in it."""
    step_per_request: Reading
    """Seconds that each decoding request adds to a step."""
    step_per_prefill_token: Reading
    """Seconds that each prefill token adds to a step."""
    work_per_request: Reading
    """Replica-seconds that the usual request costs."""
    load: Reading
    """Offered work over the capacity of the ready replicas; near 1 queues grow."""
    safe_load: Reading
    """The highest load at which the expected misses are still within the allowance; Unknown where none is."""
    miss_floor: Reading
    """Share of requests expected to miss at any fleet size."""
    miss_calibration: Reading
    """Misses observed for each that the curve predicted, 1 to 4."""
    persistence: Reading
    """Part of a jump above the usual demand that lasts for a cold start, 0 to 1."""
    usual_persistence: Reading
    """Part of the usual demand's distance from the hour's mean that lasts for a cold start, 0 to 1."""
    forecast: Reading
    """Expected work at the horizon, in replicas kept fully busy."""
    burst: Reading
    """Work at the horizon that 1 in 20 of the possible outcomes exceeds, in replicas kept fully busy."""
    backlog: Reading
    """Replicas that the queues keep busy at the horizon."""
    horizon: float
    """Seconds: how long a replica ordered now takes to serve."""
    fast_factor: Reading
    """Factor on the planned misses by the misses of the last hour, 0.5 to 1."""
    slow_factor: Reading
    """Factor on the planned misses by the misses of the last day, 0.7 to 1.29."""
    allowance: Reading
    """Share of requests that the fleet is sized to miss."""
    penalty: Reading
    """Penalty of a miss, in replicas for the work that keeps a replica busy."""
    for_forecast: Reading
    """Cheapest fleet for the possible demand at the horizon. The need is the largest of these three."""
    for_initial_fleet: Reading
    """Replicas kept because the initial fleet is evidence of demand."""
    for_present_load: Reading
    """Cheapest fleet for the demand of now, where less is forecast than stands; else 0."""
    recommended: Reading
    """Most replicas that were recommended within the scale-down window."""
    idle_for: Reading
    """Seconds since a request was seen last, at the gateway or the engines, of a pool that may go to zero."""


def slo_met(figures: Figures, attainment: float) -> bool | None:
    """Whether the SLO holds: over the last hour, and roughly now; None where no request was judged."""
    if isinstance(figures.attainment, Unknown):
        return None
    now = figures.attainment_now
    burning = not isinstance(now, Unknown) and 1.0 - now > FAST_BURN * (1.0 - attainment)
    return figures.attainment >= attainment and not burning


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fleet size that was weighed for the horizon."""

    replicas: float
    misses: float
    """Expected misses, in the work of replicas kept busy."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Raw need with its reasons."""

    for_forecast: float
    """Replicas: the cheapest fleet for the possible demand at the horizon."""
    for_initial_fleet: float
    """Replicas that are kept because the initial fleet is evidence of demand."""
    for_present_load: float
    """Replicas: the cheapest fleet for the demand of now, where less is forecast than stands; else 0."""
    need: float
    """Raw need in replicas: the largest of the three above, plus the replicas that serve nothing."""
    recommended: float
    """Replicas that are worth keeping, where they are there: no fewer than needed."""
    curve: Curve
    outlook: Outlook
    """Demand at the horizon, the queue included."""
    level: float
    """Work that arrives now, in replicas kept busy."""
    backlog: float
    """Replicas that the queues keep busy."""
    allowed: float
    """Share of misses that the SLO allows."""
    allowance: float
    """Share of misses that the fleet is sized for."""
    safe_load: float
    """The highest load at which the expected misses are within the allowance."""
    has_evidence: bool
    """Whether enough requests were seen to judge misses as rare as the SLO allows, not by the prior alone."""
    penalty: float
    """Penalty of a miss, in replicas for the work that keeps a replica busy."""
    idle: bool
    """Whether no request came for long, so that nothing is kept for the next request."""
    stuck: int
    """Replicas that hold requests and serve nothing; as many are added."""
    candidates: tuple[Candidate, ...]
    course: Course
    """Misses at each fleet size, for the budget that a pool shares."""

    @property
    def feasible(self) -> bool:
        """Whether the SLO is believed to hold at some fleet size."""
        return self.curve.floor <= self.allowed

    @property
    def expected(self) -> float:
        """Work at the horizon in replicas kept busy, without the queue."""
        return float(self.outlook.expected[0]) - self.backlog

    @property
    def burst(self) -> float:
        """Work that 1 in 20 of the possible outcomes exceeds, without the queue."""
        return self.outlook.exceeded_by(BURST) - self.backlog

    def proportionate(self, load: float) -> float:
        """Replicas that serve the larger of forecast and present demand, and the queue, at this load."""
        return (max(self.expected, self.level) + self.backlog) / load + self.stuck


class BudgetCut(NamedTuple):
    """A cut of a target's replicas by a GPU budget."""

    target: str
    """Name of the target."""
    most: int
    """Replicas that the target may request."""
    budget: str
    """Name of the budget."""
    detail: str
    """Reason why the budget grants no more."""
    left: float
    """Capacity of all targets after this cut, in replicas of the reference."""


class AtZero(NamedTuple):
    """The replicas to request while the pool is at 0 on purpose, and why."""

    replicas: float
    why: str
    course: Course | None = None
    """Misses at each fleet size; None where nothing is known of the usual demand, or none came."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one pool at one time."""

    at: float
    """Unix time in seconds."""
    replicas: int
    """Desired `spec.replicas` of all targets."""
    verdict: Verdict
    need: Reading
    """Raw need in replicas, before any limit."""
    capacity: Reading
    """Needed capacity with every limit applied, in replicas of the reference; Unknown where the need is."""
    limits: tuple[Limit, ...]
    """Every limit that changed the answer, in order."""
    reason: str
    """Why this many replicas, with units, in a sentence that a person at 3 a.m. can act on."""
    figures: Figures
    bounds: Bounds
    """Min and max in force."""
    candidates: tuple[Candidate, ...] = ()
    """Fleet sizes around `figures.for_forecast`, which has the least sum of replicas and misses at their penalty."""
    course: Course | None = field(default=None, compare=False, repr=False)
    """Misses at each fleet size; None where the need is unknown."""
    calibrating: bool = False
    """Still learning: nothing is scaled down but to max."""
    warning: str | None = None
    """Fault that is not fatal, such as an SLO that no fleet size can hold, as a sentence; None without one."""
    parts: tuple[Part, ...] = ()
    """The decision on each target, in the order of the spec; `replicas` is their sum."""
    standing: tuple[Standing, ...] = ()
    """Ready replicas whose gauges are not believed, because nothing in them moves."""

    def within_budgets(
        self, parts: tuple[Part, ...], verdict: Verdict, moved: str, needed: float, cuts: Sequence[BudgetCut]
    ) -> Decision:
        """The decision with these parts, each within its budget of GPUs: the last limit, also below min.

        It is limited where less capacity is left than is `needed`. A cheaper mix that a budget prevents is only in the
        sentence, of which `moved` is the beginning.
        """
        limited = Limited(needed, self.limits)
        told = [f"{moved}: {self.reason.partition(': ')[2]}"]
        for cut in cuts:
            most, detail = f"{cut.most} {cut.target}" if len(parts) > 1 else cut.most, cut.detail
            given = {"budget": cut.budget, "most": most, "detail": detail}
            told.append(render(LimitName.GPU_BUDGET.template, given))
            if cut.left < limited.replicas * share_of(len(parts)):
                limited = limited.at_most(cut.left, LimitName.GPU_BUDGET, budget=cut.budget, most=most, detail=detail)
        return replace(
            self,
            replicas=sum(part.replicas for part in parts),
            parts=parts,
            verdict=verdict,
            capacity=limited.replicas,
            limits=limited.applied,
            reason="; ".join(told),
        )


def verdict_of(replicas: int, requested: int) -> Verdict:
    """Effect of setting so many replicas on a fleet of `requested`."""
    if replicas == requested:
        return Verdict.HOLD
    return Verdict.SCALE_UP if replicas > requested else Verdict.SCALE_DOWN


def move(requested: int, replicas: int) -> str:
    """Effect of setting so many replicas, as the beginning of a sentence."""
    if replicas == requested:
        return f"hold {replicas}"
    return f"scale {'up' if replicas > requested else 'down'} {requested} -> {replicas}"


def moves(parts: Sequence[Part], reference: str) -> str:
    """Effect of the parts, as the beginning of a sentence."""
    if len(parts) == 1:
        return move(parts[0].requested, parts[0].replicas)
    changed = [f"{one.target} {one.requested} -> {one.replicas}" for one in parts if one.replicas != one.requested]
    if changed:
        said = f"scale {'up' if verdict_of_parts(parts) is Verdict.SCALE_UP else 'down'} {', '.join(changed)}"
    else:
        said = f"hold {', '.join(f'{one.replicas} {one.target}' for one in parts)}"
    return f"{said} (counted in replicas of {reference})"


def verdict_of_parts(parts: Sequence[Part]) -> Verdict:
    """Effect of the parts on the fleet: a replacement begins as a scale-up and ends as a scale-down."""
    if any(part.replicas > part.requested for part in parts):
        return Verdict.SCALE_UP
    return Verdict.SCALE_DOWN if any(part.replicas < part.requested for part in parts) else Verdict.HOLD
