"""Stage three: from the raw need to the answer, by named rules in a fixed order."""

from __future__ import annotations

import math

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decision import Limited, Plan
from servingpool.decision.lateness import Lateness
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool
from servingpool.decision.state import Memory
from servingpool.decision.window import WAITING

CALM_WINDOW = 60.0
"""Seconds."""


def limit(
    observation: Observation, pool: Pool, memory: Memory, plan: Plan | Unknown, now: float, longest_wait: float
) -> Limited:
    """The answer: at most and at least, rule by rule. Without a plan the fleet stays, within min and max."""
    requested = observation.requested
    if isinstance(plan, Unknown):
        return _bounded(Limited(requested), pool)
    answer = Limited(math.ceil(plan.need))
    for name, reason in _scale_down_blocked(observation, pool, memory, longest_wait):
        answer = answer.at_least(requested, name, reason)
    if not memory.calibrated(pool):
        answer = _while_calibrating(answer, requested, pool, memory)
    answer = _scale_down_window(answer, requested, pool, memory, now)
    if 0 < abs(answer.replicas - requested) <= pool.params.tolerance * requested:
        said = f"a change to {answer.replicas} is within the tolerance of {pool.params.tolerance:.1%}"
        answer = answer.at_least(requested, LimitName.TOO_LITTLE, said).at_most(requested, LimitName.TOO_LITTLE, said)
    without_node = unschedulable(observation, pool, memory)
    if without_node:
        said = f"{without_node} pods are unschedulable; more would not start either"
        answer = answer.at_most(max(requested, pool.min_replicas), LimitName.UNSCHEDULABLE, said)
    return _bounded(_in_proportion(answer, observation, pool, memory, plan), pool)


def unschedulable(observation: Observation, pool: Pool, memory: Memory) -> int:
    """Replicas for which there has been no node for longer than a cluster autoscaler takes to bring one."""
    patience = max(pool.params.unschedulable_after, memory.horizon(pool))
    return sum(replica.unschedulable and replica.age > patience for replica in observation.starting)


def _scale_down_blocked(
    observation: Observation, pool: Pool, memory: Memory, longest_wait: float
) -> list[tuple[LimitName, str]]:
    """Why nothing may be removed now."""
    found = []
    if memory.coverage < 1.0:
        found.append((LimitName.PARTIAL, f"metrics of {1.0 - memory.coverage:.0%} of the ready replicas are missing"))
    if memory.queue_unknown is not None:
        found.append((LimitName.QUEUE_UNKNOWN, f"the queue is not known ({memory.queue_unknown})"))
    if longest_wait > pool.slo.queue_bound:
        found.append((LimitName.REQUESTS_WAIT, f"requests have waited for {longest_wait:.0f} s"))
    standing = len(observation.ready) + len(observation.starting)
    if standing < observation.requested:
        found.append((LimitName.REPLICAS_MISSING, f"only {standing} of {observation.requested} replicas exist so far"))
    if observation.rollout:
        found.append((LimitName.ROLLOUT, "a rollout is in progress"))
    return [(name, f"scale-down blocked: {said}") for name, said in found]


def _while_calibrating(answer: Limited, requested: int, pool: Pool, memory: Memory) -> Limited:
    if _calm(pool, memory):
        said = "calibrating: nothing is added while hardly a request is late or queued"
        answer = answer.at_most(requested, LimitName.CALIBRATING, said)
    said = "too few requests were decoded to know the engine's speed"
    if memory.profile.learned < pool.params.calibration:
        said = f"observed for {memory.profile.learned:.0f} s of {pool.params.calibration:.0f} s"
    return answer.at_least(requested, LimitName.CALIBRATING, f"scale-down blocked while calibrating: {said}")


def _calm(pool: Pool, memory: Memory) -> bool:
    """Whether the last minute shows no need for more than there is: a knee that is only guessed buys nothing."""
    last = memory.window.last(CALM_WINDOW)
    late = Lateness(memory.window, memory.profile.saturation, pool).missed(last)
    queued = last.highest(WAITING)
    if queued is None or queued > last.ready:
        return False
    return late.requests > 0.0 and late.share <= pool.params.calm_burn * pool.slo.allowed


def _scale_down_window(answer: Limited, requested: int, pool: Pool, memory: Memory, now: float) -> Limited:
    """Nothing goes that was recommended within the window, nor before the pool was observed for so long."""
    window = memory.scale_down_window(pool)
    if memory.since is None or now - memory.since < window:
        said = f"scale-down blocked: the pool was observed for less than {window:.0f} s"
        answer = answer.at_least(requested, LimitName.WINDOW_FILLING, said)
    highest = memory.highest_recommendation
    said = f"scale-down blocked: {highest:.0f} were recommended within the last {window:.0f} s"
    return answer.at_least(min(requested, math.ceil(highest)), LimitName.SCALE_DOWN_WINDOW, said)


def _in_proportion(answer: Limited, observation: Observation, pool: Pool, memory: Memory, plan: Plan) -> Limited:
    """No more than serves what comes and waits, while misses are a guess; and never many times what stands at once."""
    requested = observation.requested
    if not plan.has_evidence:
        load = pool.params.knee_share * plan.curve.limit
        most = math.ceil(plan.proportionate(load))
        said = f"{most} serve arrivals and queue at load {load:.2g}; no more until misses are observed at that load"
        answer = answer.at_most(max(requested, most), LimitName.PROPORTION, said)
    most = max(requested, 2 * len(observation.ready) + 4)
    said = f"at most {most} within one cold start while {len(observation.ready)} are ready"
    answer = answer.at_most(most, LimitName.ONE_COLD_START, said)
    if not memory.profile.fit.known:
        initial = memory.profile.forecast.initial_replicas or requested
        most = max(2 * initial, initial + 2, requested)
        answer = answer.at_most(most, LimitName.LEARNING_STEP, f"at most {most} while the engine's speed is learned")
    return answer


def _bounded(answer: Limited, pool: Pool) -> Limited:
    answer = answer.at_least(pool.min_replicas, LimitName.MINIMUM, f"min is {pool.min_replicas}")
    return answer.at_most(pool.max_replicas, LimitName.MAXIMUM, f"max is {pool.max_replicas}")
