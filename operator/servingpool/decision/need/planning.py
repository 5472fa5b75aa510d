"""The raw need of a pool, from its memory; with no replica, from the gateway's demand.

With 0 replicas no engine is there to tell of demand. The gateway's series must: `GatewayMetrics.at_zero` and its queue.
The last replica goes once that series was known, and showed no request, for `Pool.idle_after`. Unknown demand is never
idle: it keeps a replica, and brings one back. Requests bring back what the usual busy hour needs, not one replica.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from servingpool.decision.engine import MOST_WORK, StepTime
from servingpool.decision.learn.forecast import Outlook, WorkForecast
from servingpool.decision.learn.memory import Memory, Trial, UpdateResult
from servingpool.decision.learn.miss_curve import Curve, has_evidence, posterior
from servingpool.decision.need.costs import cheapest, miss_penalty
from servingpool.decision.need.mix import Frontier
from servingpool.decision.observation import NOT_EXPOSED, Observation, Reading, Unknown
from servingpool.decision.params import LONGEST_GAP, REMEMBERED
from servingpool.decision.plan import Course, Plan, Wanted
from servingpool.decision.pool import Pool
from servingpool.decision.words import clock, span
from servingpool.decision.zero import GatewayDemand


def plan(
    observation: Observation,
    pool: Pool,
    update: UpdateResult,
    frontier: Frontier,
    *,
    hung: int = 0,
    unused: bool = False,
) -> Plan | Unknown:
    """The need; Unknown with the reason where it is not known. `unused`: certainly nothing asks for the pool.

    `hung`: replicas that hang. `frontier`: what may be had of its targets.
    """
    memory, params = update.memory, pool.params
    if isinstance(observation.metrics, Unknown):
        return observation.metrics
    if not observation.ready and observation.requested > 0:
        return Unknown("no replica is ready")
    if memory.last.coverage == 0.0:
        return _unread(memory)
    if update.step is None or update.forecast is None:
        return Unknown("no request was decoded yet, so the engine's speed is not known")
    if update.demand is None:
        return Unknown("too few scrapes to take a rate")
    level, profile, forecast = update.demand.level, memory.profile, update.forecast
    curve, allowance, penalty = _terms(pool, memory, update.step, forecast, frontier)
    # What waits for metered engines is told by the requests in flight; for what no engine gets one replica is tried.
    unserved = memory.gateway_gauge is not None and memory.gateway_gauge.unserved(pool)
    queued = backlog(
        memory.last.queues,
        NOT_EXPOSED if observation.metered or unserved else memory.last.gateway,
        work=update.demand.work_per_request,
        horizon=memory.horizon(pool),
        load=level / (observation.ordered or 1),
    )
    idle, safe_load = unused or memory.window.idle(params), curve.load_for(allowance)
    outlook = Outlook.certain(0.0)
    if not idle:
        usual = update.step.work(*memory.window.last(params.mean_window).mean_demand)
        outlook = forecast.outlook(level=level, usual=usual, capacity=safe_load)
    outlook = outlook.plus(queued)
    # The initial fleet is evidence of what to keep, never of what to order.
    penalties = (penalty, params.hysteresis * penalty)
    replicas, course = cheapest(outlook.with_and_without_initial(), level, curve, allowance, penalties, frontier)
    (with_initial, sticking), (for_forecast, _) = replicas.tolist()
    for_initial_fleet = min(with_initial, float(forecast.initial_replicas))
    if for_initial_fleet <= for_forecast:
        for_initial_fleet = 0.0
    # What is ordered now serves a cold start later, but what is removed now is missing now.
    for_present_load = 0.0
    if max(for_forecast, for_initial_fleet) < observation.ordered:
        now, _ = cheapest(Outlook.certain(level), level, curve, allowance, (penalty,), frontier)
        for_present_load = min(float(now[0, 0]), float(observation.ordered))
    # While nothing is asked of any replica, one that serves is enough.
    hung = max(hung, int(unserved))
    stuck = 0 if unused else hung if max(level, queued) > 0.0 else min(hung, 1)
    need = max(for_forecast, for_initial_fleet, for_present_load)
    if stuck:
        need = max(need, float(pool.min_replicas)) + stuck
    return Plan(
        for_forecast=for_forecast,
        for_initial_fleet=for_initial_fleet,
        for_present_load=for_present_load,
        need=need,
        recommended=max(need, min(float(observation.ordered), sticking)),
        curve=curve,
        outlook=outlook,
        level=level,
        backlog=queued,
        allowed=pool.slo.allowed,
        allowance=allowance,
        safe_load=safe_load,
        has_evidence=has_evidence(profile.curve, pool.slo.allowed),
        penalty=penalty,
        idle=idle,
        stuck=stuck,
        course=course,
    )


def _unread(memory: Memory) -> Unknown:
    """Why no sample of a ready replica could be used."""
    if memory.damaged is not None:
        return Unknown(f"the last scrape is left out: {memory.damaged}")
    lacks = memory.last.missing
    return Unknown(f"samples lack {lacks}" if lacks else "no ready replica has a fresh sample")


def _terms(
    pool: Pool, memory: Memory, step: StepTime, forecast: WorkForecast, frontier: Frontier
) -> tuple[Curve, float, float]:
    """Miss curve, share of requests that may miss, penalty of a miss in replicas: by these a fleet size is chosen."""
    profile, params = memory.profile, pool.params
    curve, allowed = posterior(profile.curve, pool, step), pool.slo.allowed
    ratio = profile.calibration.ratio(params)
    allowance = profile.budget.allowance(allowed=allowed, floor=curve.floor, ratio=ratio, params=params)
    penalty = memory.penalty
    if penalty is None:
        greatest, held = params.greatest_penalty / allowed, memory.scale_down_window(pool)
        penalty = miss_penalty(
            forecast, curve, allowance, greatest=greatest, frontier=frontier, held=held, params=params
        )
    return curve, allowance, penalty


def backlog(engines: Iterable[float], gateway: Reading, *, work: float, horizon: float, load: float) -> float:
    """Replicas kept busy by queued requests, `work` replica-seconds each, `horizon` seconds from now.

    What is ordered now serves a cold start later, so a gateway's queue is spread over that time: divided by the TTFT
    bound it would order a fleet that arrives when the queue is long gone.

    `engines` are the requests in each engine's own queue. No other replica can serve those, and what is gone by then,
    under the `load` of the fleet that is ordered already, orders nothing. What is left keeps its own replica busy, and
    no other, however much it is.
    """
    left = (queued * work / horizon + load - 1.0 for queued in engines if queued > 0.0)
    own = math.fsum(min(1.0, max(0.0, more)) for more in left)
    return own + (0.0 if isinstance(gateway, Unknown) else gateway * work / horizon)


def remembered(update: UpdateResult, pool: Pool, plan: Plan | Unknown, trial: Trial | None, now: float) -> Memory:
    """The memory for the next decision."""
    memory = update.memory
    begin = now - memory.scale_down_window(pool)
    recommendations = tuple([entry for entry in memory.recommendations if begin < entry[0] < now])
    if isinstance(plan, Unknown) or update.forecast is None:
        return replace(memory, recommendations=recommendations, penalty=None, predicted_by=None, trial=trial)
    most = math.inf if trial is None or trial.failed is None else trial.most  # no more is kept
    return replace(
        memory,
        recommendations=(*recommendations, (now, min(plan.recommended, most))),
        penalty=plan.penalty,
        penalty_until=now + _penalty_lasts(update.forecast) if memory.penalty is None else memory.penalty_until,
        predicted_by=plan.curve,
        trial=trial,
    )


def _penalty_lasts(forecast: WorkForecast) -> float:
    """Seconds for which a penalty is kept: to find one takes longer than two decisions.

    Pools that were first seen together would look for theirs in the same tick for ever, so it is drawn for each, from
    digits of a figure that no two pools have alike.
    """
    return (0.75 + 0.5 * (1e6 * forecast.mean % 1.0)) * min(REMEMBERED, forecast.seen) / 60.0


def at_zero(observation: Observation, pool: Pool, memory: Memory, now: float, frontier: Frontier) -> Wanted | None:
    """Replicas to request while the pool is at 0 on purpose, and why; None at other times."""
    demand = memory.demand
    if demand is None or demand.zero_at is None:
        return None
    requested = observation.ordered
    if demand.asked_at is not None:
        replicas, course = _for_the_usual(pool, memory, demand, now - demand.asked_at, frontier)
        why = _requests(demand)
        if course is None:
            why = f"{why}; the usual demand is not learned yet"
        return Wanted(max(requested, replicas), why, course)
    seen = memory.profile.vanished
    if seen is not None:
        gone = f"while the fleet was at 0, the gateway's metrics vanished ({clock(seen.at)})"
        return Wanted(max(requested, 1), f"{gone}, so requests could not be seen")
    unknown, longest = demand.unknown_for(now), LONGEST_GAP
    if demand.unknown is None:
        idle = span(now - demand.request_at)
        why = "the first replica after 0 is starting" if requested else f"no request at the gateway for {idle}"
        return Wanted(requested, why)
    said = f"demand at the gateway is unknown for {unknown:.0f} s ({demand.unknown}), "
    said += f"after {longest:.0f} s 1 replica is started"
    return Wanted(max(requested, 1 if unknown > longest else 0), said)


def _for_the_usual(
    pool: Pool, memory: Memory, demand: GatewayDemand, asked_for: float, frontier: Frontier
) -> tuple[float, Course | None]:
    """Replicas for the usual demand of busy hours, or for what has come where that is more; 1 if nothing is known.

    `asked_for`: seconds since the first request that came at 0 replicas.
    """
    profile, params, busy = memory.profile, pool.params, memory.profile.busy
    # Windows are empty after a night at 0 replicas.
    step = profile.engine.step_time(params, tokens=busy.tokens, prompt=busy.prompt, steps=busy.steps)
    if step is None or busy.seconds <= 0.0 or not memory.calibrated(pool):
        return 1, None
    work, horizon = step.work(busy.prompt, busy.steps), memory.horizon(pool)
    arriving = demand.arrived * work / max(horizon, asked_for)
    level = max(min(step.work(*busy.rates), MOST_WORK), arriving) + demand.held * work / horizon
    forecast = profile.forecast.in_work(step, params)
    curve, allowance, penalty = _terms(pool, memory, step, forecast, frontier)
    outlook = forecast.outlook_of(level, capacity=curve.load_for(allowance))
    replicas, course = cheapest(outlook, level, curve, allowance, (penalty,), frontier)
    return max(float(replicas[0, 0]), float(course.fleets[0])), course


def _requests(demand: GatewayDemand) -> str:
    if demand.arrived > 0.0:
        return f"requests that arrived at the gateway at 0 replicas: {demand.arrived:.0f}"
    if demand.held > 0.0:
        return f"requests that the gateway holds at 0 replicas: {demand.held:.0f}"
    return f"tries of requests at the gateway at 0 replicas: {demand.asked:.0f}"
