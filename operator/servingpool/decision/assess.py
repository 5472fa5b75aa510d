"""The raw need: what is known of demand, curve and cold start, put on the scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servingpool.decision import capacity
from servingpool.decision.backlog import backlog
from servingpool.decision.belief import KNEE_SHARE, horizon, posterior, told
from servingpool.decision.demand import idle, usual
from servingpool.decision.forecast import Outlook
from servingpool.decision.learn import Lesson
from servingpool.decision.memory import Memory
from servingpool.decision.miss_curve import Curve
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool.decision.price import DEAREST, price
from servingpool.decision.unknown import Unknown

STARTS = 2.0
"""Cold starts for which a fleet stays at what was worth keeping: a replica that goes and comes back within two
has cost more than it saved."""
NOBODY = Outlook(np.zeros(1), np.zeros((1, 2)), np.array([[1.0, 0.0]]))
"""What may come to an idle pool; the fleet that was found is believed in no more."""
RARE = 0.05
"""Share of what may come that the sentence on a decision leaves out."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The raw need and what it rests on."""

    need: float
    """Replicas."""
    curve: Curve
    outlook: Outlook
    """With the queue in it."""
    level: float
    """Work that comes now, in replicas kept busy."""
    backlog: float
    """Replicas kept busy by the queues, see there."""
    allowance: float
    """Share of misses the fleet is sized for."""
    allowed: float
    """Share of misses that the SLO allows."""
    told: bool
    """Enough requests were seen to speak of misses as rare as those allowed, and not the prior alone."""
    price: float
    """Of a miss, in replicas for the work that keeps one busy."""
    kept: float
    """Replicas that are worth keeping, where they are there: no fewer than needed."""
    today: bool
    """The present load needs more than what is to come."""
    idle: bool
    """No request came in the last 20 minutes, so nothing is kept for one that may come."""

    @property
    def holdable(self) -> bool:
        """Whether the SLO is believed to hold at any fleet size."""
        return self.curve.floor <= self.allowed

    @property
    def expected(self) -> float:
        """Work at the horizon in replicas kept busy, without the queue."""
        return float(self.outlook.expected[0]) - self.backlog

    @property
    def proportionate(self) -> float:
        """Replicas that serve what is expected, or what comes now, and the queue, if the knee is where physics says."""
        return (max(self.expected, self.level) + self.backlog) / (KNEE_SHARE * self.curve.limit)

    @property
    def possible(self) -> float:
        """Work that one in twenty of what may come exceeds."""
        samples, weights = self.outlook.samples[0], self.outlook.weights[0]
        order = np.argsort(samples)
        place = int(np.searchsorted(np.cumsum(weights[order]), 1.0 - RARE))
        return float(samples[order[min(place, len(order) - 1)]]) - self.backlog


def kept_for(memory: Memory, pool: Pool) -> float:
    """Seconds for which a fleet stays at what was worth keeping."""
    return max(pool.behavior.scale_down_window, STARTS * horizon(memory, pool))


def assess(observation: Observation, pool: Pool, lesson: Lesson) -> Assessment | Unknown:
    """What the pool needs; Unknown with the reason where it cannot be told."""
    if isinstance(observation.metrics, Unknown):
        return observation.metrics
    memory = lesson.memory
    if not observation.ready and observation.requested > 0:
        return Unknown("no replica is ready")
    if memory.coverage == 0.0:
        lacking = memory.lacking
        return Unknown(f"pages lack {lacking}" if lacking else "no ready replica has a fresh sample")
    if lesson.step is None:
        return Unknown("no request was decoded yet, so the engine's speed is not known")
    if lesson.demand is None:
        return Unknown("too few scrapes to take a rate")
    level, most = lesson.demand.level, 4 * pool.max_replicas
    profile = memory.profile
    curve = posterior(memory, pool, lesson.step)
    allowed = 1.0 - pool.slo.attainment
    allowance = profile.budget.allowance(allowed=allowed, floor=curve.floor, ratio=profile.calibration.ratio)
    worth = memory.price
    if worth is None:
        dearest = DEAREST / allowed
        worth = price(profile.forecast, curve, allowance, dearest=dearest, most=most, held=kept_for(memory, pool))
    waiting = backlog(
        memory.queues,
        observation.gateway_queue,
        work=lesson.demand.work_per_request,
        horizon=horizon(memory, pool),
        load=level / max(1, observation.requested),
        stuck=memory.stuck,
    )
    ahead = profile.forecast.outlook(level=level, usual=usual(memory.ledger), carried=curve.load_for(allowance))
    nobody = idle(memory.ledger)
    if nobody:
        ahead = NOBODY
    ahead = ahead._replace(expected=ahead.expected + waiting, samples=ahead.samples + waiting)
    # The fleet that was found speaks for what to keep, never for buying more.
    (believed, sticking), (unbelieved, _) = capacity.needs(
        ahead.with_and_without_belief(), curve, allowance, (worth, capacity.STICK * worth), most
    ).tolist()
    then = max(unbelieved, min(believed, float(profile.forecast.found)))
    # What is ordered now serves a cold start later, but what is removed now is missing now.
    today = 0.0
    if then < observation.requested:
        now = Outlook(np.array([level]), np.array([[level]]), np.ones((1, 1)))
        today = min(capacity.need(now, curve, allowance, worth, most), float(observation.requested))
    need = max(then, today)
    kept = max(need, min(float(observation.requested), sticking))
    return Assessment(
        need=need,
        curve=curve,
        outlook=ahead,
        level=level,
        backlog=waiting,
        allowance=allowance,
        allowed=allowed,
        told=told(memory, allowed),
        price=worth,
        kept=kept,
        today=today > then,
        idle=nobody,
    )
