"""To zero and back: when the last replica may go, and what brings replicas back.

With 0 replicas no engine is there to tell of demand. The gateway's series must: `GatewayMetrics.at_zero` and its queue.
The last replica goes once that series was known, and showed no request, for `Pool.idle_after`. Unknown demand is never
idle: it keeps a replica, and brings one back. Requests bring back what the usual busy hour needs, not one replica.
"""

from __future__ import annotations

from servingpool.catalogue.notes import Note
from servingpool.decision.costs import cheapest, miss_penalty
from servingpool.decision.course import Course
from servingpool.decision.decision import AtZero
from servingpool.decision.gateway_demand import Busy, GatewayDemand, clock, span
from servingpool.decision.knee import posterior
from servingpool.decision.observation import Observation
from servingpool.decision.params import Params
from servingpool.decision.pool import Pool
from servingpool.decision.state import Memory
from servingpool.decision.step_time import StepTime


def at_zero(observation: Observation, pool: Pool, memory: Memory, now: float) -> AtZero | None:
    """What to do while no replica serves because there were to be none; None at other times."""
    demand = memory.demand
    if demand is None or demand.zero_at is None:
        return None
    requested = observation.requested
    if demand.asked_at is not None:
        replicas, course = _for_the_usual(pool, memory, demand, now)
        why = _requests(demand)
        if course is None:
            why = f"{why}; {Note.USUAL_UNKNOWN.message()}"
        return AtZero(max(requested, replicas), why, course)
    seen = memory.profile.vanished
    if seen is not None:
        return AtZero(max(requested, 1), Note.VANISHED.message(at=clock(seen.at)))
    unknown, longest = demand.unknown_for(now), pool.params.longest_gap
    if demand.unknown is None:
        idle = span(now - demand.request_at)
        return AtZero(requested, Note.STILL_IDLE.message(idle=idle) if requested == 0 else Note.FIRST_LOADS.message())
    said = Note.UNKNOWN_AT_ZERO.message(seconds=unknown, reason=demand.unknown, longest=longest)
    return AtZero(max(requested, 1 if unknown > longest else 0), said)


def _for_the_usual(pool: Pool, memory: Memory, demand: GatewayDemand, now: float) -> tuple[int, Course | None]:
    """Replicas for the usual demand of busy hours, or for what has come where that is more; 1 if nothing is known."""
    profile, params, busy = memory.profile, pool.params, memory.profile.busy
    step = _step_of(memory, busy, params)
    if step is None or busy.seconds <= 0.0 or not memory.calibrated(pool):
        return 1, None
    work, horizon = step.work(busy.prompt, busy.steps), memory.horizon(pool)
    since = now if demand.asked_at is None else demand.asked_at
    arriving = demand.arrived * work / max(horizon, now - since)
    level = max(busy.level, arriving) + demand.held * work / horizon
    curve, allowed = posterior(profile.curve, pool, step), pool.slo.allowed
    ratio = profile.calibration.ratio(params)
    allowance = profile.budget.allowance(allowed=allowed, floor=curve.floor, ratio=ratio, params=params)
    most = 4 * pool.max_replicas
    penalty = memory.penalty
    if penalty is None:
        greatest, window = params.greatest_penalty / allowed, memory.scale_down_window(pool)
        penalty = miss_penalty(
            profile.forecast, curve, allowance, greatest=greatest, most=most, held=window, params=params
        )
    outlook = profile.forecast.outlook_of(level, capacity=curve.load_for(allowance), params=params)
    found = cheapest(outlook, curve, allowance, (penalty,), most)
    return max(1, int(found.replicas[0, 0])), Course(found.fleets, found.misses, found.expected, level, curve)


def _step_of(memory: Memory, busy: Busy, params: Params) -> StepTime | None:
    """The step time of the usual request: windows are empty after a night at zero."""
    step = memory.profile.fit.solve(params)
    if step is None:
        return None
    batch = memory.profile.saturation.batch
    return step.limited(batch=batch, tokens=busy.tokens, prompt_tokens=busy.prompt, steps=busy.steps)


def _requests(demand: GatewayDemand) -> str:
    if demand.arrived > 0.0:
        return Note.ARRIVED.message(requests=demand.arrived)
    if demand.held > 0.0:
        return Note.HELD.message(requests=demand.held)
    return Note.TRIED.message(tries=demand.asked)
