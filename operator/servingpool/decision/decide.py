"""The decision: how many replicas a pool should have, and why. Update, plan, limit, report, one after the other."""

from __future__ import annotations

from typing import NamedTuple

from servingpool.decision import report
from servingpool.decision.course import Course
from servingpool.decision.decision import AtZero, Decision, Plan, verdict_of
from servingpool.decision.lateness import Queues
from servingpool.decision.limits import limit
from servingpool.decision.observation import Observation, Reading, Unknown
from servingpool.decision.plan import at_zero, plan, remembered
from servingpool.decision.pool import Pool
from servingpool.decision.state import Memory
from servingpool.decision.update import update


class Outcome(NamedTuple):
    """What `decide` returns."""

    decision: Decision
    memory: Memory


def decide(observation: Observation, pool: Pool, memory: Memory, now: float) -> Outcome:
    """Decide on one pool.

    Pure: the same arguments give the same outcome, and `memory` is left as it was. `now` is Unix time in seconds; a
    clock that is set back empties the windows, and a second call at the same `now` changes nothing.
    """
    updated = update(observation, pool.within(pool.bounds(now, memory.horizon(pool))), memory, now)
    bounds = pool.bounds(now, updated.memory.horizon(pool))
    pool = pool.within(bounds)
    planned = plan(observation, pool, updated, unused=updated.memory.unused(pool, now))
    memory = remembered(updated.memory, pool, planned, now)
    # By the clock of the samples: Prometheus's may differ from ours.
    since = max((one.at for one in memory.samples.values()), default=now) - pool.params.longest_gap
    queues = Queues.recent(observation, memory.samples, memory.gateway_queue, since)
    sleeping = at_zero(observation, pool, memory, now)
    limited = limit(observation, pool, bounds, memory, planned, now, queues.longest_wait, sleeping)
    figures = report.figures(pool, memory, updated, planned, queues, now)
    decision = Decision(
        at=now,
        replicas=limited.replicas,
        verdict=verdict_of(limited.replicas, observation.requested),
        need=_need(pool, memory, planned, sleeping, now),
        limits=limited.applied,
        reason=report.reason(observation.requested, pool, planned, limited, figures, sleeping),
        figures=figures,
        bounds=bounds,
        candidates=() if isinstance(planned, Unknown) else planned.candidates,
        course=_course(planned, sleeping),
        calibrating=not memory.calibrated(pool),
        warning=report.warning(pool, updated, planned),
    )
    return Outcome(decision, memory)


def _course(planned: Plan | Unknown, sleeping: AtZero | None) -> Course | None:
    if sleeping is not None:
        return sleeping.course
    return None if isinstance(planned, Unknown) else planned.course


def _need(pool: Pool, memory: Memory, planned: Plan | Unknown, sleeping: AtZero | None, now: float) -> Reading:
    """The raw need in replicas."""
    if sleeping is not None:
        return float(sleeping.replicas)
    if isinstance(planned, Unknown):
        return 0.0 if memory.idle(pool, now) else planned
    return planned.need
