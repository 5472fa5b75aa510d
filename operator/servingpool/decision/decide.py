"""The decision: how many replicas a pool should have, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from servingpool.decision import capacity, explain, figures, limits
from servingpool.decision.decision import Decision, Verdict
from servingpool.decision.forecast import Outlook
from servingpool.decision.learn import Lesson, horizon, observe, posterior, settled, study
from servingpool.decision.ledger import WORK
from servingpool.decision.limits import Limited
from servingpool.decision.memory import Memory
from servingpool.decision.miss_curve import Curve
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool.decision.unknown import Reading, Unknown

ROUNDING = 0.05
"""Replicas of raw need that are forgiven when rounding up: the search's own resolution."""
RECENT = 600.0
STUCK_AFTER = 300.0
"""Seconds that a replica may wait for a node before ordering more is pointless: nodes come in 2 to 4 minutes."""


class Outcome(NamedTuple):
    """What `decide` returns."""

    decision: Decision
    memory: Memory


@dataclass(frozen=True, slots=True)
class Assessment:
    """The raw need and what it rests on."""

    need: Reading
    curve: Curve | None = None
    outlook: Outlook | None = None
    backlog: float = 0.0
    """Replicas added to work off the queue within one cold start."""
    allowance: float = 0.0
    """Share of misses the fleet is sized for."""


def decide(observation: Observation, pool: Pool, memory: Memory, now: float) -> Outcome:
    """Decide on one pool.

    Pure: the same arguments give the same outcome, and `memory` is left as it was. `now` is Unix time in
    seconds and must not run backwards; a second call at the same `now` changes nothing.
    """
    lesson = study(observation, pool, memory, now)
    assessment = _assess(observation, pool, lesson)
    memory = _note_need(lesson.memory, pool, assessment.need, now)
    limited = _limit(observation, pool, memory, assessment.need, now)
    measured = figures.measure(memory, pool, lesson, assessment.need)
    if assessment.curve is not None and assessment.outlook is not None:
        measured = replace(
            measured,
            safe_load=assessment.curve.load_for(assessment.allowance),
            forecast=assessment.outlook.expected,
        )
    decision = Decision(
        at=now,
        replicas=limited.replicas,
        verdict=_verdict(limited.replicas, observation.requested),
        need=assessment.need,
        limits=limited.applied,
        reason=explain.reason(observation, assessment.need, assessment.backlog, limited, measured),
        figures=measured,
        calibrating=not settled(memory, pool),
        warnings=_warnings(pool, lesson, assessment),
    )
    return Outcome(decision, memory)


def _assess(observation: Observation, pool: Pool, lesson: Lesson) -> Assessment:
    if isinstance(observation.metrics, Unknown):
        return Assessment(observation.metrics)
    memory = lesson.memory
    if not observation.ready and observation.requested > 0:
        return Assessment(Unknown("no replica is ready"))
    if memory.coverage == 0.0:
        lacking = memory.lacking
        return Assessment(Unknown(f"pages lack {lacking}" if lacking else "no ready replica has a fresh sample"))
    if lesson.step is None:
        return Assessment(Unknown("no request was decoded yet, so the engine's speed is not known"))
    if lesson.demand is None:
        return Assessment(Unknown("too few scrapes to take a rate"))
    level = lesson.demand.level
    ahead = horizon(memory, pool)
    curve = posterior(memory, pool, lesson.step)
    allowance = memory.profile.budget.allowance(allowed=1.0 - pool.slo.attainment, floor=curve.floor)
    outlook = memory.profile.forecast.outlook(
        level=level,
        trend=figures.trend(memory),
        horizon=ahead,
        recent_maximum=memory.ledger.last(RECENT).highest(WORK) or level,
    )
    # What is ordered now comes a cold start later anyway, so the queue is spread over that time: dividing by
    # the TTFT bound would order a fleet that arrives when the queue is long gone.
    backlog = lesson.demand.queued * lesson.demand.work_per_request / ahead
    needed = capacity.need(outlook, curve, allowance, most=4 * pool.max_replicas)
    return Assessment(needed + backlog, curve, outlook, backlog, allowance)


def _note_need(memory: Memory, pool: Pool, need: Reading, now: float) -> Memory:
    kept = tuple(entry for entry in memory.needs if now - pool.behavior.scale_down_window < entry[0] < now)
    return replace(memory, needs=kept if isinstance(need, Unknown) else (*kept, (now, need)))


def _limit(observation: Observation, pool: Pool, memory: Memory, need: Reading, now: float) -> Limited:
    requested = observation.requested
    if isinstance(need, Unknown):
        return _bounded(Limited(requested), pool)
    answer = Limited(_whole(need))
    if memory.coverage < 1.0:
        answer = answer.at_least(
            requested,
            limits.PARTIAL,
            f"only {memory.coverage:.0%} of the ready replicas could be read, so nothing is removed",
        )
    standing = len(observation.ready) + len(observation.starting)
    if standing < requested:
        answer = answer.at_least(
            requested,
            limits.REPLICAS_MISSING,
            f"only {standing} of {requested} replicas exist so far",
        )
    if observation.rollout:
        answer = answer.at_least(
            requested, limits.ROLLOUT, "a rollout is under way, so nothing is removed until it ends"
        )
    if not settled(memory, pool):
        answer = answer.at_least(
            requested,
            limits.CALIBRATING,
            f"seen for {memory.profile.learned:.0f} s of {pool.behavior.calibration:.0f} s, nothing is removed before",
        )
    fill_time = max(figures.fill_time(memory), pool.behavior.scale_down_window)
    if memory.since is None or now - memory.since < fill_time:
        answer = answer.at_least(
            requested,
            limits.WINDOW_FILLING,
            f"rates over half-filled windows read low; nothing is removed in the first {fill_time:.0f} s",
        )
    highest = max((entry[1] for entry in memory.needs), default=0.0)
    answer = answer.at_least(
        min(requested, _whole(highest)),
        limits.SCALE_DOWN_WINDOW,
        f"{highest:.1f} replicas were needed within the last {pool.behavior.scale_down_window:.0f} s",
    )
    # A cluster autoscaler brings a node because pods are pending: being unschedulable for minutes is its normal case.
    patience = max(STUCK_AFTER, horizon(memory, pool))
    stuck = sum(replica.unschedulable and replica.age > patience for replica in observation.starting)
    if stuck:
        answer = answer.at_most(
            max(requested, pool.min_replicas),
            limits.UNSCHEDULABLE,
            f"no node has room for {stuck} of the replicas; ordering more would not help",
        )
    if not memory.profile.fit.known:
        most = max(2 * requested, requested + 2)
        answer = answer.at_most(most, limits.LEARNING_STEP, f"at most {most} while the engine's speed is being learned")
    return _bounded(answer, pool)


def _bounded(answer: Limited, pool: Pool) -> Limited:
    answer = answer.at_least(pool.min_replicas, limits.MINIMUM, f"min is {pool.min_replicas}")
    return answer.at_most(pool.max_replicas, limits.MAXIMUM, f"max is {pool.max_replicas}")


def _whole(need: float) -> int:
    return max(0, math.ceil(need - ROUNDING))


def _verdict(replicas: int, requested: int) -> Verdict:
    if replicas == requested:
        return Verdict.HOLD
    return Verdict.SCALE_UP if replicas > requested else Verdict.SCALE_DOWN


def _warnings(pool: Pool, lesson: Lesson, assessment: Assessment) -> tuple[str, ...]:
    found = []
    bound, step = pool.slo.time_per_output_token, lesson.step
    if bound is not None and step is not None and lesson.memory.profile.fit.known and step.base >= bound:
        found.append(
            f"time per output token {bound * 1000:.0f} ms cannot be held at any fleet size: "
            f"a step without load takes {step.base * 1000:.0f} ms on this engine"
        )
    elif assessment.curve is not None and assessment.curve.floor > 1.0 - pool.slo.attainment:
        found.append(
            f"about {assessment.curve.floor:.0%} of requests miss the SLO at any fleet size, more than the "
            f"{1.0 - pool.slo.attainment:.1%} allowed: relax the bound or use faster replicas"
        )
    return tuple(found)


__all__ = ["Outcome", "decide", "observe"]
