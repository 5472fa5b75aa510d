"""From the raw need to the answer, by named rules in a fixed order.

In: the `Plan`, or why the need is unknown, with the bounds in force and the `Fleet`. Out: `Limited`, a capacity with
each limit that changed it.
"""

from __future__ import annotations

from servingpool.catalogue.limits import LimitName
from servingpool.decision.allocate import Fleet
from servingpool.decision.decision import Limited
from servingpool.decision.learn.kinds import UNSCHEDULABLE_AFTER
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.lateness import Lateness
from servingpool.decision.observe.queueing import growth
from servingpool.decision.params import MINUTE
from servingpool.decision.plan import Plan, Wanted
from servingpool.decision.pool import Bound, Bounds, Pool
from servingpool.decision.words import clock, shown, span

TOLERANCE = 0.015
"""Share of the fleet: a smaller change is not made. HPA's is 0.1; without any 300 replicas moved 74 times an hour."""


def limit(
    observation: Observation,
    pool: Pool,
    bounds: Bounds,
    memory: Memory,
    plan: Plan | Wanted | Unknown,
    now: float,
    longest_wait: float,
    fleet: Fleet,
) -> Limited:
    """The answer: at most and at least, rule by rule. Without a plan the fleet stays, within min and max.

    `bounds` are those of the pool, with the schedules that they come from. All is counted in replicas of the reference;
    of several targets they need not be whole. What concerns single replicas limits the split, see `Fleet.split`.
    """
    requested = observation.ordered
    if isinstance(plan, Wanted):
        steady = pool.batch is not None and pool.batch.rate is not None  # which has what waits in its need
        waited, answer = 0.0 if steady else longest_wait, Limited(pool.whole(plan.replicas))
        answer = _scale_down_blocked(answer, observation, pool, memory, waited, now, fleet)
        if steady:
            answer = _in_one_cold_start(_scale_down_window(answer, requested, pool, memory, now), observation)
        answer = _while_no_node(answer, observation, pool, memory, fleet)
        return _bounded(_last_replica(answer, observation, pool, memory, now), bounds, fleet)
    idle = memory.idle(pool, now)
    if isinstance(plan, Unknown):
        # Where some targets do not deliver: what is ordered, and no more than was needed lately.
        kept = min(fleet.ordered, memory.highest_recommendation) if fleet.stuck else 0.0
        answer = Limited(0 if idle else max(requested, kept))
        if pool.idle_after is not None and observation.requested == 1 and not fleet.stuck:
            answer = _last_replica(Limited(0), observation, pool, memory, now)  # for its sentence
        answer = _while_the_queue_grows(answer, observation, pool, memory, fleet, now)
        answer = _scale_down_blocked(answer, observation, pool, memory, longest_wait, now, fleet)
        return _bounded(answer, bounds, fleet)
    answer = Limited(pool.whole(plan.need))
    if (trial := memory.trial) is not None:
        answer = answer.at_most(trial.most, LimitName.ON_TRIAL, most=shown(trial.most), why=trial.why)
    answer = _scale_down_blocked(answer, observation, pool, memory, longest_wait, now, fleet)
    answer = _while_misses_remain(answer, requested, pool, memory, plan)
    if not idle and not memory.calibrated(pool):
        answer = _while_calibrating(answer, requested, pool, memory)
    if not idle:
        answer = _scale_down_window(answer, requested, pool, memory, now)
    if 0 < abs(answer.replicas - requested) <= TOLERANCE * requested:
        answer = answer.at_least(requested, LimitName.TOO_LITTLE, replicas=shown(answer.replicas), tolerance=TOLERANCE)
        answer = answer.at_most(requested, LimitName.TOO_LITTLE, replicas=shown(answer.replicas), tolerance=TOLERANCE)
    answer = _while_no_node(answer, observation, pool, memory, fleet)
    answer = _in_proportion(answer, observation, pool, memory, plan)
    answer = _last_replica(answer, observation, pool, memory, now)
    return _bounded(answer, bounds, fleet)


def _while_the_queue_grows(
    answer: Limited, observation: Observation, pool: Pool, memory: Memory, fleet: Fleet, now: float
) -> Limited:
    """More replicas where the need is unknown and the queue keeps growing: in proportion, for one cold start."""
    grows = growth(memory.looks, pool.slo.queue_bound, memory.horizon(pool), now - memory.lag)
    if grows is None:
        return answer
    waited, ratio = grows
    ready, waiting = observation.serving, memory.looks[-1].waiting
    most = pool.whole(min(ready * ratio, _within_one_cold_start(ready)))
    answer = answer.at_least(most, LimitName.QUEUE_GROWS, replicas=shown(most), waiting=waiting, waited=waited)
    return _while_no_node(answer, observation, pool, memory, fleet)


def _within_one_cold_start(ready: float) -> float:
    return 2 * ready + 4


def _last_replica(answer: Limited, observation: Observation, pool: Pool, memory: Memory, now: float) -> Limited:
    """The answer, never below the last replica of a pool that may go to zero and is not known to be idle."""
    if pool.idle_after is None or memory.idle(pool, now):
        return answer
    without, seen = memory.idle_for(now), memory.profile.vanished
    last = min(1, observation.ordered)
    if seen is not None:
        return answer.at_least(last, LimitName.DEMAND_VANISHED, at=clock(seen.at))
    if isinstance(without, Unknown):
        return answer.at_least(last, LimitName.DEMAND_UNKNOWN, reason=without.reason)
    return answer.at_least(last, LimitName.NOT_IDLE, idle=span(without), after=span(memory.idle_after(pool)))


def _while_no_node(answer: Limited, observation: Observation, pool: Pool, memory: Memory, fleet: Fleet) -> Limited:
    without_node = fleet.stuck if fleet.replaced else unschedulable(observation, pool, memory)
    if not without_node:
        return answer
    most = max(observation.ordered, fleet.reachable if fleet.replaced else fleet.fewest)
    return answer.at_most(most, LimitName.UNSCHEDULABLE, to=shown(most), pods=without_node)


def unschedulable(observation: Observation, pool: Pool, memory: Memory) -> int:
    """Replicas without a node for longer than a cluster autoscaler takes to bring a node."""
    patience = max(UNSCHEDULABLE_AFTER, memory.start(pool))
    return sum([replica.unschedulable and replica.age > patience for replica in observation.starting])


def _scale_down_blocked(
    answer: Limited, observation: Observation, pool: Pool, memory: Memory, longest_wait: float, now: float, fleet: Fleet
) -> Limited:
    """The answer, never below the requested replicas where a named reason blocks a scale-down."""
    requested, standing = observation.ordered, len(observation.ready) + len(observation.starting)
    if memory.last.coverage < 1.0:
        answer = answer.at_least(requested, LimitName.PARTIAL, missing=1.0 - memory.last.coverage)
    if memory.queue_unknown is not None:
        answer = answer.at_least(requested, LimitName.QUEUE_UNKNOWN, reason=memory.queue_unknown)
    if memory.last.client_unknown is not None and not memory.window.idle(pool.params):
        answer = answer.at_least(requested, LimitName.CLIENT_UNKNOWN, reason=memory.last.client_unknown)
    if longest_wait > pool.slo.queue_bound:
        answer = answer.at_least(requested, LimitName.REQUESTS_WAIT, waited=longest_wait, bound=pool.slo.queue_bound)
    # What never came serves nobody, so it is not kept.
    refused = not fleet.replaced and any(one.refused(now, pool.params) for one in memory.shortages)
    if standing < observation.requested and not refused:
        wanted = observation.requested
        answer = answer.at_least(requested, LimitName.REPLICAS_MISSING, standing=standing, requested=wanted)
    if observation.rollout:
        answer = answer.at_least(requested, LimitName.ROLLOUT)
    return answer


def _while_misses_remain(answer: Limited, requested: float, pool: Pool, memory: Memory, plan: Plan) -> Limited:
    """No scale-down while more miss than a fleet is sized for, and no fleet is believed to hold the SLO."""
    if plan.feasible or not 0.0 < answer.replicas < requested:
        return answer
    missed = memory.window.last(pool.params.recent_window).misses.share
    if missed <= max(plan.allowed, plan.allowance):
        return answer
    kept = requested if memory.trial is None else min(requested, memory.trial.most)
    return answer.at_least(kept, LimitName.MISSES_REMAIN, missed=missed, floor=plan.curve.floor)


def _while_calibrating(answer: Limited, requested: float, pool: Pool, memory: Memory) -> Limited:
    if _calm(pool, memory):
        detail = "scale-up blocked while few requests are late or queued"
        answer = answer.at_most(requested, LimitName.CALIBRATING, detail=detail)
    seen, wanted = memory.profile.learned, pool.params.calibration
    detail = "scale-down blocked until enough requests were decoded to know the engine's speed"
    if seen < wanted:
        detail = f"scale-down blocked until the pool was observed for {wanted:.0f} s; so far {seen:.0f} s"
    return answer.at_least(requested, LimitName.CALIBRATING, detail=detail)


def _calm(pool: Pool, memory: Memory) -> bool:
    """Whether the last minute shows no need for more than there is: a knee that is only guessed buys nothing."""
    last = memory.window.last(MINUTE)
    late = Lateness(memory.window, memory.profile.queue_in_ttft.excluded, pool).missed(last)
    queued = last.highest(Column.WAITING)
    if queued is None or queued > last.ready:
        return False
    return late.requests > 0.0 and late.share <= pool.params.calm_burn * pool.slo.allowed


def _scale_down_window(answer: Limited, requested: float, pool: Pool, memory: Memory, now: float) -> Limited:
    """Scale-down blocked for replicas recommended within the window, and before the pool was observed for so long."""
    window = memory.scale_down_window(pool)
    if memory.since is None or now - memory.since < window:
        answer = answer.at_least(requested, LimitName.WINDOW_FILLING, window=window)
    highest = memory.highest_recommendation
    least = min(requested, pool.whole(highest))
    return answer.at_least(least, LimitName.SCALE_DOWN_WINDOW, to=shown(least), highest=shown(highest), window=window)


def _in_proportion(answer: Limited, observation: Observation, pool: Pool, memory: Memory, plan: Plan) -> Limited:
    """No more replicas than arrivals and queue need while misses are a guess, nor many times the ready ones at once."""
    requested = observation.ordered
    if not plan.has_evidence:
        load = pool.params.knee_share * plan.curve.limit
        most = (max(plan.expected, plan.level) + plan.backlog) / load + plan.stuck
        most = max(requested, pool.whole(most))
        answer = answer.at_most(most, LimitName.PROPORTION, most=shown(most), load=load)
    answer = _in_one_cold_start(answer, observation)
    if not memory.profile.engine.fit.known:
        initial = memory.profile.forecast.initial_replicas or requested
        most = max(2 * initial, initial + 2, requested)
        answer = answer.at_most(most, LimitName.LEARNING_STEP, most=shown(most))
    return answer


def _in_one_cold_start(answer: Limited, observation: Observation) -> Limited:
    ready = observation.serving
    most = max(observation.ordered, _within_one_cold_start(ready))
    return answer.at_most(most, LimitName.ONE_COLD_START, most=shown(most), ready=shown(ready))


def _bounded(answer: Limited, bounds: Bounds, fleet: Fleet) -> Limited:
    """The user's own limits."""
    return _raised(answer, fleet.fewest, bounds.least).at_most(fleet.largest, LimitName.MAXIMUM, maximum=bounds.most)


def _raised(answer: Limited, capacity: float, least: Bound) -> Limited:
    """The answer raised to the fewest replicas in force, under the name of the cause. `capacity`: of these replicas."""
    other = least.beside
    if other is None:
        return answer.at_least(capacity, LimitName.MINIMUM, minimum=least)
    if other.ratio:
        return answer.at_least(capacity, LimitName.RATIO, least=least, replicas=other.replicas, role=other.role)
    return answer.at_least(capacity, LimitName.OTHER_ROLE, least=least, replicas=other.replicas, role=other.role)
