"""The decision: how many replicas a pool should have, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from servingpool.decision import explain, figures, limits
from servingpool.decision.assess import Assessment, assess, kept_for
from servingpool.decision.belief import KNEE_SHARE, hopeless, settled, stuck
from servingpool.decision.blame import missed
from servingpool.decision.decision import Decision, Verdict
from servingpool.decision.learn import Lesson, observe, study
from servingpool.decision.ledger import WAITING
from servingpool.decision.limits import Limited
from servingpool.decision.memory import Memory
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool.decision.unknown import Unknown
from servingpool.decision.waits import stands
from servingpool.decision.witnesses import longest_wait

WORTH = 0.015
"""Share of a fleet that is too little to move it: 300 replicas moved 74 times an hour."""
SERENE_WINDOW, SERENE = 60.0, 2.0
"""Seconds, and misses over those allowed, in and up to which a fleet counts as serene."""
PRICE_LASTS, PRICE_SHARE = 120.0, 1.0 / 60.0
"""Seconds, and share of what was seen, for which about a price is kept: finding one takes longer than two decisions,
and of two hours that are remembered two minutes are little."""


class Outcome(NamedTuple):
    """What `decide` returns."""

    decision: Decision
    memory: Memory


def decide(observation: Observation, pool: Pool, memory: Memory, now: float) -> Outcome:
    """Decide on one pool.

    Pure: the same arguments give the same outcome, and `memory` is left as it was. `now` is Unix time in
    seconds; a clock that is set back empties the windows, and a second call at the same `now` changes nothing.
    """
    lesson = study(observation, pool, memory, now)
    assessment = assess(observation, pool, lesson)
    need = assessment if isinstance(assessment, Unknown) else assessment.need
    memory = _note(lesson.memory, pool, assessment, now)
    limited = _limit(observation, pool, memory, assessment, now)
    measured = figures.measure(observation, memory, pool, lesson, assessment, now)
    warning = _warning(pool, lesson, assessment)
    decision = Decision(
        at=now,
        replicas=limited.replicas,
        verdict=_verdict(limited.replicas, observation.requested),
        need=need,
        limits=limited.applied,
        reason=explain.reason(observation.requested, assessment, limited, measured),
        figures=measured,
        calibrating=not settled(memory, pool),
        warnings=() if warning is None else (warning,),
    )
    return Outcome(decision, memory)


def _note(memory: Memory, pool: Pool, assessment: Assessment | Unknown, now: float) -> Memory:
    """What the next decision is to know of this one."""
    begin = now - kept_for(memory, pool)
    kept = tuple(entry for entry in memory.kept if begin < entry[0] < now)
    if isinstance(assessment, Unknown):
        return replace(memory, kept=kept, price=None, foretelling=None)
    return replace(
        memory,
        kept=(*kept, (now, assessment.kept)),
        price=assessment.price,
        price_until=now + _price_lasts(memory) if memory.price is None else memory.price_until,
        foretelling=assessment.curve,
    )


def _price_lasts(memory: Memory) -> float:
    """Seconds for which a price is kept.

    Pools that were seen first together would look for theirs in the same tick for ever, so it is drawn for each, from
    digits of a figure that no two pools have alike.
    """
    forecast = memory.profile.forecast
    return (0.75 + 0.5 * (1e6 * forecast.mean % 1.0)) * min(PRICE_LASTS, PRICE_SHARE * forecast.seen)


def _limit(
    observation: Observation, pool: Pool, memory: Memory, assessment: Assessment | Unknown, now: float
) -> Limited:
    requested = observation.requested
    if isinstance(assessment, Unknown):
        return _bounded(Limited(requested), pool)
    answer = _half_seen(Limited(math.ceil(assessment.need)), requested, memory)
    wait = longest_wait(observation, memory)
    if wait > stands(pool.slo):
        said = f"requests have waited for {wait:.0f} s, so nothing is removed"
        answer = answer.at_least(requested, limits.REQUESTS_WAIT, said)
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
        answer = _calibrating(answer, requested, memory, pool)
    held = kept_for(memory, pool)
    if memory.since is None or now - memory.since < held:
        answer = answer.at_least(
            requested,
            limits.WINDOW_FILLING,
            f"nothing is removed before it was seen for {held:.0f} s what is worth keeping",
        )
    highest = max((entry[1] for entry in memory.kept), default=0.0)
    answer = answer.at_least(
        min(requested, math.ceil(highest)),
        limits.SCALE_DOWN_WINDOW,
        f"{highest:.0f} were worth keeping within the last {held:.0f} s",
    )
    if 0 < abs(answer.replicas - requested) <= WORTH * requested:
        answer = answer.at(requested, limits.TOO_LITTLE, f"{answer.replicas} is not worth a move")
    without_node = stuck(observation, memory, pool)
    if without_node:
        answer = answer.at_most(
            max(requested, pool.min_replicas),
            limits.UNSCHEDULABLE,
            f"no node has room for {without_node} of the replicas; ordering more would not help",
        )
    return _bounded(_in_proportion(answer, observation, memory, assessment), pool)


def _in_proportion(answer: Limited, observation: Observation, memory: Memory, assessment: Assessment) -> Limited:
    """No more than serves what comes and waits, while misses are a guess; and never many times what stands at once."""
    requested = observation.requested
    if not assessment.told:
        most = math.ceil(assessment.proportionate)
        said = (
            f"{most} serve what comes and what waits at load {KNEE_SHARE}; no more before misses are seen at that load"
        )
        answer = answer.at_most(max(requested, most), limits.PROPORTION, said)
    most = max(requested, 2 * len(observation.ready) + 4)
    said = f"{len(observation.ready)} are ready, and {most} are the most to be ordered within one cold start"
    answer = answer.at_most(most, limits.ONE_COLD_START, said)
    if not memory.profile.fit.known:
        found = memory.profile.forecast.found or requested
        most = max(2 * found, found + 2, requested)
        answer = answer.at_most(most, limits.LEARNING_STEP, f"at most {most} while the engine's speed is being learned")
    return answer


def _half_seen(answer: Limited, requested: int, memory: Memory) -> Limited:
    if memory.coverage < 1.0:
        answer = answer.at_least(
            requested,
            limits.PARTIAL,
            f"only {memory.coverage:.0%} of the ready replicas could be read, so nothing is removed",
        )
    if memory.no_queue is not None:
        said = f"the queue could not be read ({memory.no_queue}), so nothing is removed"
        answer = answer.at_least(requested, limits.QUEUE_UNKNOWN, said)
    return answer


def _calibrating(answer: Limited, requested: int, memory: Memory, pool: Pool) -> Limited:
    if _serene(memory, pool):
        said = "hardly a request is late or queued, so nothing is added before more is known"
        answer = answer.at_most(requested, limits.CALIBRATING, said)
    return answer.at_least(requested, limits.CALIBRATING, _unsettled(memory, pool))


def _serene(memory: Memory, pool: Pool) -> bool:
    """Whether the last minute shows no need for more than there is: a knee that is only guessed buys nothing."""
    last = memory.ledger.last(SERENE_WINDOW)
    late = missed(memory, pool, last)
    queued = last.highest(WAITING)
    if queued is None or queued > last.ready:
        return False
    return late.requests > 0.0 and late.share <= SERENE * (1.0 - pool.slo.attainment)


def _unsettled(memory: Memory, pool: Pool) -> str:
    if memory.profile.learned < pool.behavior.calibration:
        return (
            f"seen for {memory.profile.learned:.0f} s of {pool.behavior.calibration:.0f} s, nothing is removed before"
        )
    return "the engine's speed is not known yet: too few requests were decoded; nothing is removed before"


def _bounded(answer: Limited, pool: Pool) -> Limited:
    answer = answer.at_least(pool.min_replicas, limits.MINIMUM, f"min is {pool.min_replicas}")
    return answer.at_most(pool.max_replicas, limits.MAXIMUM, f"max is {pool.max_replicas}")


def _verdict(replicas: int, requested: int) -> Verdict:
    if replicas == requested:
        return Verdict.HOLD
    return Verdict.SCALE_UP if replicas > requested else Verdict.SCALE_DOWN


def _warning(pool: Pool, lesson: Lesson, assessment: Assessment | Unknown) -> str | None:
    """What is wrong but not fatal."""
    bound, step = pool.slo.time_per_output_token, lesson.step
    if bound is not None and step is not None and lesson.memory.profile.fit.known and hopeless(pool, step):
        return (
            f"time per output token {bound * 1000:.0f} ms cannot be held at any fleet size: "
            f"a step without load takes {step.base * 1000:.0f} ms on this engine"
        )
    if isinstance(assessment, Unknown):
        return None
    allowed, curve = assessment.allowed, assessment.curve
    if assessment.holdable:
        least = math.ceil(assessment.expected / curve.load_for(allowed))
    elif not assessment.told:
        least = math.ceil(assessment.expected)  # whatever the curve, no fleet does more than its work
    else:
        return (
            f"about {curve.floor:.1%} of requests miss the SLO at any fleet size, more than the {allowed:.1%} allowed: "
            f"relax the bound or use faster replicas"
        )
    if least > pool.max_replicas:
        return f"{least} replicas are needed for what is expected and max is {pool.max_replicas}: the SLO will not hold"
    return None


__all__ = ["Outcome", "decide", "observe"]
