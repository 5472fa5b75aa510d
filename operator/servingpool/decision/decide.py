"""The decision: how many replicas a pool should have, and why. Update, plan, limit, report, one after the other."""

from __future__ import annotations

from typing import NamedTuple

from servingpool.decision import report
from servingpool.decision.decision import Decision, verdict_of
from servingpool.decision.lateness import Queues
from servingpool.decision.limits import limit
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.plan import plan, remembered
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
    planned = plan(observation, pool, updated)
    memory = remembered(updated.memory, pool, planned, now)
    # By the clock of the samples: Prometheus's may differ from ours.
    since = max((one.at for one in memory.samples.values()), default=now) - pool.params.longest_gap
    queues = Queues.recent(observation, memory.samples, memory.gateway_queue, since)
    limited = limit(observation, pool, bounds, memory, planned, now, queues.longest_wait)
    figures = report.figures(pool, memory, updated, planned, queues, now)
    decision = Decision(
        at=now,
        replicas=limited.replicas,
        verdict=verdict_of(limited.replicas, observation.requested),
        need=planned if isinstance(planned, Unknown) else planned.need,
        limits=limited.applied,
        reason=report.reason(observation.requested, pool, planned, limited, figures),
        figures=figures,
        bounds=bounds,
        candidates=() if isinstance(planned, Unknown) else planned.candidates,
        course=None if isinstance(planned, Unknown) else planned.course,
        calibrating=not memory.calibrated(pool),
        warning=report.warning(pool, updated, planned),
    )
    return Outcome(decision, memory)
