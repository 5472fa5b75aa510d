"""The decision: how many replicas a pool should have, and why. Learn, need, bound, allocate, explain, in turn.

A pool has one stage, or prefill and decode: these are decided one by one, and raised to what holds for both at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from servingpool.decision import explain
from servingpool.decision.allocate import Fleet, Split, counted, fleet_of
from servingpool.decision.bound import TOLERANCE, limit
from servingpool.decision.decision import Decision, Limited, moves, verdict_of_parts
from servingpool.decision.figures import figures
from servingpool.decision.learn.memory import Memory
from servingpool.decision.learn.updating import update, with_fresh_samples
from servingpool.decision.need import throughput
from servingpool.decision.need.anchor import tried
from servingpool.decision.need.planning import at_zero, plan, remembered
from servingpool.decision.observation import Observation, Reading, Unknown
from servingpool.decision.observe.lateness import Queues
from servingpool.decision.plan import Plan, Wanted
from servingpool.decision.pool import Beside, Bound, Pool
from servingpool.decision.roles import DECODE, PREFILL, Ratio

BY_WORK = Unknown("the pool is sized by the deadlines or the rate of its work")


class Outcome(NamedTuple):
    """The decision and the next memory, as `decide` returns them."""

    decision: Decision
    memory: Memory


def learn(observation: Observation, pool: Pool, memory: Memory, now: float) -> Memory:
    """The memory with an observation of the past, without a decision."""
    memory = counted(memory, observation, pool, now)
    return update(fleet_of(observation, pool, memory, now).observed(observation), pool, memory, now).memory


def decide(observation: Observation, pool: Pool, memory: Memory, now: float) -> Outcome:
    """Decide on one pool.

    Pure: the same arguments give the same outcome, and `memory` is left as it was. `now` is Unix time in seconds; a
    clock that is set back empties the windows, and a second call at the same `now` changes nothing.
    """
    observation, memory = with_fresh_samples(observation, counted(memory, observation, pool, now), now)
    fleet = fleet_of(observation, pool, memory, now)
    seen = fleet.observed(observation)
    updated = update(seen, pool.within(pool.bounds(now, memory.horizon(pool))), memory, now)
    bounds = pool.bounds(now, updated.memory.horizon(pool))
    pool = pool.within(bounds)
    fleet = Fleet(fleet.lines, pool)
    frontier = fleet.frontier
    standing = () if seen.metered else updated.memory.last.standing
    unused = updated.memory.unused(pool, now)
    planned = BY_WORK if pool.batch else plan(seen, pool, updated, frontier, hung=len(standing), unused=unused)
    trial = updated.memory.trial if memory.at == now else tried(updated, planned, seen, pool, now)
    memory = remembered(updated, pool, planned, trial, now)
    queues = Queues.recent(seen, memory.last, {one.replica for one in standing}, now)
    wanted, money, paid = at_zero(seen, pool, memory, now, frontier), math.inf, math.inf
    if pool.batch is not None:
        money = pool.batch.rate.price if pool.batch.rate else math.inf
        paid = fleet.paid_by(money) if money < math.inf else math.inf
        work, ledger = throughput.plan(seen, pool, pool.batch, updated, fleet.reachable, paid, now)
        wanted = (wanted or work)._replace(replicas=min((wanted or work).replicas, paid))
        recommended = (*memory.recommendations, (now, wanted.replicas))
        memory = replace(memory, profile=replace(memory.profile, ledger=ledger), recommendations=recommended)
    answer = wanted or planned
    limited = limit(seen, pool, bounds, memory, answer, now, queues.longest_wait, fleet)
    found = figures(pool, memory, updated, planned, queues, now)
    doubts = explain.doubts(memory, planned, standing, memory.absent(seen), pool)
    if limited.replicas > paid or memory.profile.ledger.known_at != now:  # what keeps replicas, keeps them at any price
        money = math.inf
    parts, limited = _split(fleet, seen, pool, memory, planned, limited, now, money)
    moved, need = moves(parts, memory.profile.reference), _need(pool, memory, planned, wanted, now)
    decision = Decision(
        at=now,
        replicas=sum([part.replicas for part in parts]),
        verdict=verdict_of_parts(parts),
        need=need,
        capacity=need if isinstance(need, Unknown) else limited.replicas,
        limits=limited.applied,
        reason=explain.reason(moved, pool, planned, limited, found, wanted, doubts),
        figures=found,
        bounds=bounds,
        candidates=() if isinstance(planned, Unknown) else planned.candidates,
        course=None if isinstance(answer, Unknown) else answer.course,
        calibrating=not memory.calibrated(pool),
        warning=explain.warning(pool, memory, updated.step, planned, found.attainment_now),
        parts=parts,
        standing=standing,
        wanted=wanted,
    )
    return Outcome(decision, memory)


def _split(
    fleet: Fleet,
    observation: Observation,
    pool: Pool,
    memory: Memory,
    planned: Plan | Unknown,
    limited: Limited,
    now: float,
    money: float,
) -> Split:
    """The replicas of each target. Unless all is certain, no target replaces another, and no new target is tried."""
    seen = memory.last.coverage >= 1.0 and memory.queue_unknown is None and memory.last.client_unknown is None
    if isinstance(planned, Unknown) or not (memory.calibrated(pool) and seen and not observation.rollout):
        return fleet.split(limited, move=False, trial=False, keep=not memory.idle(pool, now), money=money)
    # What will go soon is not replaced.
    worthwhile = limited.replicas <= planned.recommended * (1.0 + TOLERANCE)
    return fleet.split(limited, move=worthwhile, trial=not planned.idle and not memory.unused(pool, now))


def _need(pool: Pool, memory: Memory, planned: Plan | Unknown, wanted: Wanted | None, now: float) -> Reading:
    """The raw need in replicas."""
    if wanted is not None:
        return float(wanted.replicas)
    if isinstance(planned, Unknown):
        return 0.0 if memory.idle(pool, now) else planned
    return planned.need


@dataclass(frozen=True, slots=True)
class Stage:
    """Targets that are sized together, all of a pool's, or those of prefill or decode: the arguments of a decision."""

    observation: Observation
    pool: Pool
    memory: Memory

    def decide(self, now: float) -> Outcome:
        """The decision on this stage alone."""
        return decide(self.observation, self.pool, self.memory, now)

    def raised(self, replicas: int, other: Beside) -> Stage:
        """The stage with a min that follows from the `other` stage; never above max."""
        least = min(max(replicas, self.pool.min_replicas), self.pool.max_replicas)
        bound = Bound(least, beside=other if least > self.pool.min_replicas else None)
        return replace(self, pool=replace(self.pool, min_replicas=least, beside=bound))


class StageOutcome(NamedTuple):
    """Result of `decide_stages` for a stage."""

    decision: Decision
    memory: Memory
    beside: Callable[[int], Decision] | None
    """Decision beside a number of replicas of the other stage; pure. None where there is no other."""


def decide_stages(stages: Sequence[Stage], ratio: Ratio, now: float) -> tuple[StageOutcome, ...]:
    """Decide on a pool of one stage, or of prefill and decode beside each other.

    Pure, as `decide`; the memories are what each stage learned by itself.
    """
    alone = [one.decide(now) for one in stages]
    if len(alone) == 1:
        return (StageOutcome(*alone[0], None),)
    (prefill, decode), (first, second) = stages, alone
    of_prefill = partial(_beside, prefill, first.decision, ratio.prefill, DECODE)
    of_decode = partial(_beside, decode, second.decision, ratio.decode, PREFILL)
    return (
        StageOutcome(of_prefill(second.decision.replicas), first.memory, of_prefill),
        StageOutcome(of_decode(first.decision.replicas), second.memory, of_decode),
    )


def _beside(stage: Stage, alone: Decision, fewest: Callable[[int], int], other: str, replicas: int) -> Decision:
    """The decision on a stage beside so many replicas of the `other`: never below `alone`, what it is by itself."""
    awake = 1 if alone.replicas > 0 or replicas > 0 else 0  # neither is at 0 alone
    least = max(fewest(replicas), awake)
    if alone.replicas >= least:
        return alone
    return stage.raised(least, Beside(replicas, other, ratio=least > awake)).decide(alone.at).decision
