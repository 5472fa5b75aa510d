"""One look at a pool, turned into knowledge. No decision is taken here.

Live ticks and history go through the same function: what Prometheus remembers teaches exactly as it would
have taught live.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from servingpool.decision import demand as demand_model
from servingpool.decision.budget import Budget
from servingpool.decision.calibration import Calibration
from servingpool.decision.demand import Demand
from servingpool.decision.intake import ITL_COUNT, ITL_SUM, LONGEST_GAP, TPOT_SUM, TTFT_SUM, take_in
from servingpool.decision.ledger import LOAD, Ledger, Misses, Window, misses
from servingpool.decision.memory import Memory
from servingpool.decision.miss_curve import Curve, MissCurve
from servingpool.decision.observation import Histogram, Observation
from servingpool.decision.percentile import Tail
from servingpool.decision.pool import Pool
from servingpool.decision.slo_count import SloCount, late_share_by_mean
from servingpool.decision.step_time import FASTEST_STEP, StepTime, StepTimeFit
from servingpool.decision.trim import Trim
from servingpool.decision.unknown import Unknown

LEAST_SPAN = 1.0
"""Seconds between two looks below which the second teaches nothing."""
SHAPE_WINDOW = 600.0
"""Over which the late share of the bucket that the bound cuts is taken."""
SCORE_BIN = 300.0
SCORE_KEPT = 3600.0
LEAST_DECODE_STEPS = 50.0
MOST_DECODING = 8192.0
"""Requests decoding in one replica: eight times vLLM's largest default batch, so a damaged page and no engine."""
KNEE_SHARE = 0.75
"""Where the prior expects the knee, as a share of the load at which even a smooth stream breaks TPOT."""
NO_TPOT_KNEE = 1.0
LOWEST_KNEE = 0.06
OVERLOAD = 1.0
"""Beyond it queues grow without end. What is late then is blamed on the load without the queue: blamed on the load
with it, those on time before and after took the safe load from 0.66 to 0.37 behind one step of the ramp."""
SPEED_WINDOW = 60.0
"""Over which the mean time per output token is taken."""
LIFETIME_WINDOW = 60.0


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the last look taught, next to the memory that holds it."""

    memory: Memory
    step: StepTime | None
    demand: Demand | None
    """None where the step time or the arrivals are not known yet."""


def observe(observation: Observation, pool: Pool, memory: Memory, now: float) -> Memory:
    """Learn from one look. The same look at the same `now` a second time changes nothing."""
    return study(observation, pool, memory, now).memory


def study(observation: Observation, pool: Pool, memory: Memory, now: float) -> Lesson:
    """`observe`, with what is needed to go on and decide."""
    memory = _without_the_past_of_another_slo(memory, pool)
    if memory.at is not None and now < memory.at - LEAST_SPAN:
        memory = memory.interrupted()  # the clock was set back: nothing in the windows can be compared with now
    if memory.at is not None and now < memory.at + LEAST_SPAN:
        return _recall(memory)
    span = min(now - memory.at, LONGEST_GAP) if memory.at is not None else 0.0
    intake = take_in(observation, pool.slo, memory.pages)
    seen = intake.covered > 0.0
    hole = memory.covered_at is None or now - memory.covered_at > LONGEST_GAP
    if seen and (hole or memory.since is None):
        # The loop, Prometheus or the fleet was away. Windows fill anew, and nothing is removed until they have.
        memory = replace(memory.without_forecasts(), since=now, needs=())
    ledger = memory.ledger.add(now=now, span=span, ready=_present(observation, span), intake=intake)
    profile = memory.profile
    fit = _learn_step_time(profile.fit, ledger, span)
    curve = profile.curve.doubted(span) if fit.changed else profile.curve
    cold_start = profile.cold_start.learn(observation.ready, observation.starting)
    interval = memory.interval if intake.interval is None else min(intake.interval, memory.interval * 1.02)
    learned = profile.learned + (span if seen else 0.0)
    memory = replace(
        memory,
        profile=replace(profile, at=now, fit=fit, curve=curve, cold_start=cold_start, learned=learned),
        ledger=ledger,
        pages=intake.pages,
        edges=intake.edges if intake.coverage > 0.0 else memory.edges,
        interval=max(interval, 1.0),
        coverage=intake.coverage,
        lacking=intake.lacking,
        covered_at=now if seen else memory.covered_at,
        kv_usage=None if isinstance(intake.kv_usage, Unknown) else intake.kv_usage,
        first_token_tail=_tail(memory.first_token_tail, observation, "time_to_first_token", span),
        output_token_tail=_tail(memory.output_token_tail, observation, "time_per_output_token", span),
    )
    step = fit.solve()
    if step is None:
        return Lesson(memory, step, None)
    demand = demand_model.measure(ledger, step, memory.interval)
    if demand is None or not seen:
        return Lesson(memory, step, demand)
    memory = _learn_from_demand(memory, pool, step, demand, observation=observation, span=span, now=now)
    return Lesson(memory, step, demand)


def _present(observation: Observation, span: float) -> float:
    """Replicas ready in the last `span` seconds, on average.

    One that turned Ready a second ago has served none of what the others' counters tell: 3 replicas becoming 10 were
    taken for a demand three times as high, and two hours long for a thing that may come again.
    """
    if span <= 0.0:
        return float(len(observation.ready))
    return sum(1.0 if one.ready_for is None else min(1.0, max(0.0, one.ready_for) / span) for one in observation.ready)


def _without_the_past_of_another_slo(memory: Memory, pool: Pool) -> Memory:
    """Drop what was learned of another SLO: which requests were late, and how much hope that gave.

    What was learned of engine, traffic and cold start stays.
    """
    slo, known = (pool.slo.time_to_first_token, pool.slo.time_per_output_token, pool.slo.attainment), memory.profile.slo
    if known == slo:
        return memory
    profile = replace(memory.profile, slo=slo)
    if known is None:
        return replace(memory, profile=profile)
    if known[:2] == slo[:2]:  # which requests are late did not change, only how many may be
        return replace(memory, profile=replace(profile, budget=Budget(), trim=Trim()), price=None)
    profile = replace(profile, curve=MissCurve(), budget=Budget(), calibration=Calibration(), trim=Trim())
    return replace(memory.interrupted(), profile=profile, kept_score=())


def _recall(memory: Memory) -> Lesson:
    step = memory.profile.fit.solve()
    demand = demand_model.measure(memory.ledger, step, memory.interval) if step is not None else None
    return Lesson(memory, step, demand)


def _learn_step_time(fit: StepTimeFit, ledger: Ledger, span: float) -> StepTimeFit:
    """One more window for the fit, if the fleet was the same in it: means over a fleet that changed mix two."""
    window = Window(ledger.rows[-2:])
    last = Window(ledger.rows[-1:])
    steps, seconds, covered = last.total(ITL_COUNT), last.total(ITL_SUM), last.covered
    if not window.steady or steps < LEAST_DECODE_STEPS or covered <= 0.0:
        return fit
    if seconds < steps * FASTEST_STEP or seconds > covered * MOST_DECODING:
        return fit
    itl = seconds / steps
    # Each decoding request spends all its time between tokens, so the sum of ITLs over the time is the mean
    # number decoding: exact, where the gauge is one instant in fifteen seconds.
    decoding = seconds / covered
    prefill_per_step = last.computed_prompts / covered * itl
    return fit.learn(itl=itl, decoding=decoding, prefill_per_step=prefill_per_step, elapsed=span)


def _learn_from_demand(
    memory: Memory, pool: Pool, step: StepTime, demand: Demand, *, observation: Observation, span: float, now: float
) -> Memory:
    ready, requested = len(observation.ready), observation.requested
    load = _blamed_load(pool, demand, ready)
    ledger = memory.ledger.judged(load=load, work=demand.level)
    memory = replace(memory, ledger=ledger)
    last = Window(ledger.rows[-1:])
    late = missed(memory, pool, last)
    # What no fleet can hold says nothing on the size of the fleet.
    telling = missed(memory, pool, last, output_tokens=False) if hopeless(memory, pool, step) else late
    window = ledger.last(SHAPE_WINDOW)
    usual = window.first_tokens().total * span / max(window.seconds, span)
    weight = telling.requests / usual if usual > 0.0 else 0.0
    profile = memory.profile
    curve, calibration = profile.curve, profile.calibration
    if telling.requests > 0.0:
        if ready:
            foretold = posterior(memory, pool, step).cost(np.array([demand.level / ready]))
            calibration = calibration.learn(
                foretold=min(1.0, float(foretold[0])), came=telling.share, weight=weight, elapsed=span
            )
        # A miss is reported up to a request's lifetime after the load that caused it. Without this the backlog
        # of one overload teaches that light load misses too, and at light load nothing ever contradicts it.
        life = ledger.last(_lifetime(pool, step, demand, ledger))
        cause = life.highest(LOAD) or load
        if cause > OVERLOAD:
            cause = life.highest_load() or cause
        curve = curve.learn(load=cause, requests=telling.requests, late=telling.late, elapsed=span)
    usage = memory.kv_usage
    kv_cache = profile.kv_cache
    if usage is not None and demand.queued < 1.0 and Window(ledger.rows[-4:]).steady:
        kv_cache = kv_cache.learn(usage=usage, load=demand.level / max(ready, 0.5), elapsed=span)
    forecast = profile.forecast.learn(
        now=now,
        level=demand.level,
        usual=demand_model.usual(ledger),
        ready=ready,
        horizon=horizon(memory, pool),
        elapsed=span,
    )
    budget, trim, allowed = profile.budget, profile.trim, 1.0 - pool.slo.attainment
    may_rise, may_fall = requested > pool.min_replicas, requested < pool.max_replicas
    if pool.in_charge and settled(memory, pool):
        if weight > 0.0:
            budget = budget.learn(
                missed=telling.share,
                allowed=allowed,
                weight=weight,
                elapsed=span,
                may_rise=may_rise,
                may_fall=may_fall,
            )
        # More careful planning brings no replica for which there is no node.
        stuck = any(replica.unschedulable for replica in observation.starting)
        trim = trim.learn(
            requests=telling.requests,
            missed=telling.late,
            allowed=allowed,
            elapsed=span,
            may_rise=may_rise,
            may_fall=may_fall and not stuck,
        )
    profile = replace(
        profile, curve=curve, kv_cache=kv_cache, forecast=forecast, budget=budget, calibration=calibration, trim=trim
    )
    price = memory.price if now < memory.price_until else None
    return replace(memory, profile=profile, price=price, kept_score=_score(memory.kept_score, late, now))


def missed(memory: Memory, pool: Pool, window: Window, *, output_tokens: bool = True) -> Misses:
    """Requests of a window and how many broke either bound, or that of the first token only.

    Only the two marginals are exposed. They are joined as if independent: it errs towards too many misses,
    by less than their product, where the same requests break both.
    """
    pooled = memory.ledger.last(SHAPE_WINDOW)
    ttft_edges, tpot_edges = memory.edges[:2], memory.edges[2:]
    slo = pool.slo
    ttft = misses(window.first_tokens(), pooled.first_tokens(), ttft_edges, slo.time_to_first_token)
    bound = slo.time_per_output_token if output_tokens else None
    tpot = _slow(window.finished(), memory.ledger.last(SPEED_WINDOW), tpot_edges, bound)
    requests = max(ttft.requests, tpot.requests)
    share = 1.0 - (1.0 - ttft.share) * (1.0 - tpot.share)
    return Misses(requests, requests * share)


def _slow(count: SloCount, recent: Window, bucket: tuple[float, float], bound: float | None) -> Misses:
    """Requests whose tokens came too slowly; `recent` tells their mean."""
    if bound is None or count.straddling <= 0.0:
        return Misses(count.total, 0.0 if bound is None else count.late)
    shape = recent.finished()
    mean = recent.total(TPOT_SUM) / shape.total
    return Misses(count.total, count.late + count.straddling * late_share_by_mean(shape, mean, bucket, bound))


def posterior(memory: Memory, pool: Pool, step: StepTime) -> Curve:
    """The miss curve as believed now."""
    bound = pool.slo.time_per_output_token
    # ITL = a / (1 - load) reaches the bound at 1 - a / bound: no knee lies beyond.
    # Where even an idle engine breaks TPOT, TPOT says nothing on the size of the fleet.
    highest = NO_TPOT_KNEE if bound is None or hopeless(memory, pool, step) else 1.0 - step.base / bound
    highest = min(NO_TPOT_KNEE, memory.profile.kv_cache.full_at, max(LOWEST_KNEE, highest))
    return memory.profile.curve.posterior(expected_knee=max(LOWEST_KNEE, KNEE_SHARE * highest), highest_knee=highest)


def hopeless(memory: Memory, pool: Pool, step: StepTime) -> bool:
    """Whether even a step without load takes longer than a token may."""
    bound = pool.slo.time_per_output_token
    return bound is not None and memory.profile.fit.known and step.base >= bound


def horizon(memory: Memory, pool: Pool) -> float:
    """Seconds from an order to the capacity: the cold start, and one look more to see it."""
    return memory.profile.cold_start.expected(pool.behavior.cold_start) + memory.interval


def settled(memory: Memory, pool: Pool) -> bool:
    """Past calibration: long enough seen, counting what a kept profile or history has seen."""
    return memory.profile.learned >= pool.behavior.calibration and memory.profile.fit.known


def _tail(tail: Tail, observation: Observation, name: str, span: float) -> Tail:
    pages = () if isinstance(observation.metrics, Unknown) else observation.metrics
    read = {page.replica: getattr(page, name) for page in pages}
    return tail.learn({replica: page for replica, page in read.items() if isinstance(page, Histogram)}, elapsed=span)


def _blamed_load(pool: Pool, demand: Demand, ready: int) -> float:
    """Load that this tick's requests meet.

    What arrives, and the queue, which must be worked off within the TTFT bound or is late.
    """
    bound = pool.slo.time_to_first_token
    queue = demand.queued * demand.work_per_request / bound if bound is not None else 0.0
    return (demand.level + queue) / max(ready, 0.5)


def _lifetime(pool: Pool, step: StepTime, demand: Demand, ledger: Ledger) -> float:
    """Seconds back to the arrival of the requests that are judged now.

    The first token of a request that queued for a minute tells of the load of a minute ago. Twice the mean wait,
    since waits are spread from none to the longest, and the mean of those that were late: while new replicas answer at
    once, the queue of an old one is told by a few, and blamed on the light load of now it taught a knee at 0.24.
    """
    slo = pool.slo
    recent = ledger.last(LIFETIME_WINDOW)
    judged = recent.first_tokens().total
    waited = 2.0 * recent.total(TTFT_SUM) / judged if judged > 0.0 else 0.0
    late = recent.first_tokens().late
    if slo.time_to_first_token is not None and late >= 1.0:
        on_time = (judged - late) * slo.time_to_first_token / 2.0
        waited = max(waited, (recent.total(TTFT_SUM) - on_time) / late)
    per_token = slo.time_per_output_token if slo.time_per_output_token is not None else 2.0 * step.base
    return max(waited, slo.time_to_first_token or 0.0) + demand.output_tokens * per_token


def _score(
    kept: tuple[tuple[float, float, float], ...], late: Misses, now: float
) -> tuple[tuple[float, float, float], ...]:
    if kept and now < kept[-1][0] + SCORE_BIN:
        start, requests, missed_so_far = kept[-1]
        return (*kept[:-1], (start, requests + late.requests, missed_so_far + late.late))
    return (*(entry for entry in kept if entry[0] > now - SCORE_KEPT), (now, late.requests, late.late))
