"""The raw need of a pool, with what it was weighed from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.learn.forecast import Outlook
from servingpool.decision.learn.ledger import Due
from servingpool.decision.learn.miss_curve import Curve
from servingpool.decision.pool import Tariff

Array = NDArray[np.float64]


class Candidate(NamedTuple):
    """A fleet size that was weighed for the horizon."""

    replicas: float
    misses: float
    """Expected misses, in the work of replicas kept busy."""


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
        now = np.minimum(self.level * self.curve.cost(self.level / np.maximum(replicas, 0.5)), self.level)
        now[0] = self.level
        return tuple(np.minimum.accumulate(np.maximum(np.minimum(ahead, self.expected), now)).tolist())


BURST = 0.05
"""Share of the possible outcomes that exceed `Plan.burst`."""


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
    course: Course
    """Misses at each fleet size, for the budget that a pool shares."""

    @property
    def feasible(self) -> bool:
        """Whether the SLO is believed to hold at some fleet size."""
        return self.curve.floor <= self.allowed

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Fleets around the cheapest one for the forecast; none without demand."""
        place = int(self.course.fleets.searchsorted(self.for_forecast))
        near = slice(max(0, place - 2), place + 3 if self.for_forecast > 0.0 else 0)
        return tuple(map(Candidate, self.course.fleets[near].tolist(), self.course.misses[near].tolist()))

    @property
    def expected(self) -> float:
        """Work at the horizon in replicas kept busy, without the queue."""
        return float(self.outlook.expected[0]) - self.backlog

    @property
    def burst(self) -> float:
        """Work that 1 in 20 of the possible outcomes exceeds, without the queue."""
        return self.outlook.exceeded_by(BURST) - self.backlog


class Wanted(NamedTuple):
    """Replicas that are wanted for another reason than latency: at 0 replicas, for deadlines or for a rate."""

    replicas: float
    """For deadlines those that stand, where there is work for them, and those that a deadline asks for."""
    why: str = ""
    course: Course | None = None
    """Misses at each fleet size; None where nothing is known of the usual demand, or none came."""
    due: Due | None = None
    """The deadline that leaves least time to spare, with all work due by then; None where nothing is queued."""
    finishes_at: float | None = None
    """Unix time in seconds at which these replicas have done that work; None where there are none, or none can tell."""
    at_risk: Due | None = None
    """The first deadline whose replicas cannot be had, with what is kept free: a cold start before it is too late."""
    waits_until: float = math.inf
    """Unix time in seconds until which no replica is added, unless more work comes; infinite where nothing waits."""
    may_wait: float = 0.0
    """Replicas that could be ordered a cold start later without losing a deadline, with a cold start to spare."""
    may_be_late: float = 0.0
    """The same without it: with fewer than the others a deadline is at risk, for a cold start later is too late."""
    had: float = 0.0
    """Replicas when it had all that it wanted."""
    waits_for: Tariff | None = None
    """The cheaper hours that work waits for, with the ratio to the price of now; None where none does."""

    @property
    def lends(self) -> float:
        """Replicas that others may have for now; none once loans have made it ask for more than it had."""
        return self.may_wait if self.replicas <= self.had else 0.0
