"""Work is the anchor, and lateness proves itself: what is ordered at once, and what only on trial.

Counters of requests that were served, at the engine's learned speed, are what is slow to err. A multiple of the fleet
that their work needs is free. Late requests and gauges may ask for more, whatever they are worth, and get it in steps:
one that made no fewer requests late is given back, and is not tried again for a while, longer each time.
"""

from __future__ import annotations

import math

import numpy as np

from servingpool.decision.engine import StepTime
from servingpool.decision.learn.kinds import OVERDUE
from servingpool.decision.learn.memory import Memory, Step, Trial, UpdateResult
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.observe.latency import LEAST_REQUESTS
from servingpool.decision.observe.lateness import Lateness
from servingpool.decision.observe.window import LEAST_USUAL, Demand
from servingpool.decision.plan import Plan
from servingpool.decision.pool import Pool

FREE, STEP, MOVED = 4.0, 1.5, 0.2
"""Ratio of the free fleet to the one that counted work needs: at 3, a step to 3.5 times the load lost 1.2 points. Ratio
of a step's fleet to the one before. Share of the late requests that a step must save; and share of all requests: if so
many more or fewer are late, the world has changed."""


def tried(update: UpdateResult, plan: Plan | Unknown, observation: Observation, pool: Pool, now: float) -> Trial | None:
    """The trial of what is asked beyond counted work; as it was where the need is not known."""
    (memory, step, demand, _), params = update, pool.params
    if not pool.in_charge or isinstance(plan, Unknown) or step is None or demand is None:
        return memory.trial if pool.in_charge else None  # nobody makes its steps
    served, most = memory.window.served(demand, memory.interval, params), params.beyond * step.work(*memory.most_served)
    # With the forecast that 1 in 20 exceeds on-off code attains 0.3 points less.
    work = max(step.work(*served), min(plan.outlook.exceeded_by(0.02), most))
    least = pool.whole(work / plan.curve.limit)
    hopeless = _hopeless(memory, step, demand, pool)
    free = max(1.0, least) if hopeless else max(pool.whole(FREE * work / plan.curve.limit), least + 1.0)
    trial, asked = memory.trial or Trial(), max(plan.recommended, memory.highest_recommendation)
    # Until the pool is known, the replicas that stand may have been needed.
    known = memory.trial is not None and plan.has_evidence and memory.calibrated(pool)
    proven = 0.0 if hopeless or asked <= free else min(asked, trial.replicas if known else observation.ordered)
    trial = trial._replace(free=free + plan.stuck, replicas=proven, hopeless=hopeless)
    return _judged(trial, memory, plan, observation, pool, work, now)


def _hopeless(memory: Memory, step: StepTime, demand: Demand, pool: Pool) -> str | None:
    """Why no fleet holds the TTFT bound; None where one may."""
    bound, prefill = pool.slo.time_to_first_token, demand.prompt * step.per_prefill_token
    if bound is None or len(pool.targets) > 1:  # another may be faster
        return None
    judge = Lateness(memory.window, memory.profile.queue_in_ttft.excluded, pool)
    recent, (_, upper) = memory.window.last(pool.params.mean_window), memory.window.buckets.ttft
    missed, load = judge.missed(recent, output_tokens=False), memory.window.per_replica(step.work(*recent.mean_demand))
    if upper < STEP * bound and load < 0.5:  # steps tell little of a prompt that is computed while nobody decodes
        prefill = max(prefill, recent.mean_beyond)
    if prefill <= 1.05 * bound or missed.requests < LEAST_USUAL or missed.share <= 0.5:
        return None
    said = f"a prompt of {demand.prompt:,.0f} tokens takes {prefill:.3g} s to prefill on an idle replica"
    return f"{said}, and the bound is {bound:g} s: no number of replicas helps"


def _judged(
    trial: Trial, memory: Memory, plan: Plan, observation: Observation, pool: Pool, work: float, now: float
) -> Trial:
    """The trial with the last minutes' late requests."""
    lasts, step, most = pool.params.recent_window, trial.step, trial.most
    late = missed.share if (missed := memory.window.last(lasts).misses).requests >= LEAST_REQUESTS else None
    if step is not None and step.then is None and step.after > most:
        step = None  # less is asked for by now
    elif step is not None and step.then is not None:
        similar = step.work / STEP <= work <= step.work * STEP
        over = now >= trial.until if late is None else late <= plan.allowed or abs(late - step.then) > MOVED
        if over or not similar:
            step, trial = None, trial._replace(pause=0.0, until=0.0)
    # What does not come is not waited for, and a step of which nothing came is not judged.
    overdue = math.fsum([one.weight for one in observation.starting if one.age > OVERDUE * memory.start(pool)])
    least = step.before + 1.0 if step is not None and step.then is None else 0.0
    coming = max(least, min(most, observation.ordered - overdue))
    ready_at = (trial.ready_at or now) if observation.serving > coming - 0.5 else None
    trial = trial._replace(step=step, ready_at=ready_at)
    if late is None or ready_at is None or now - ready_at < lasts:
        return trial
    if step is not None and step.then is None:
        foretold = min(step.late, float(plan.curve.cost(np.array([plan.level / step.after]))[0]))
        if late <= max(plan.allowed, step.late - max(0.5 * (step.late - foretold), MOVED * step.late)):
            return trial._replace(step=None, pause=0.0)
        pause = min(pool.params.evidence_memory, max(3.0 * lasts, 2.0 * trial.pause))
        return trial._replace(replicas=step.before, step=step._replace(then=late), pause=pause, until=now + pause)
    before = max(most, observation.serving)  # min, or another role, may keep more
    if late <= plan.allowed or plan.need <= before or now < trial.until or trial.hopeless is not None:
        return trial
    more = min(plan.need, pool.whole(max(STEP * before, before + 1.0)))
    return trial._replace(replicas=more, step=Step(before, more, late, work), ready_at=None)
