"""From plans to claims, a claim for each target of each pool; and the plans within the grants."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from servingpool.adapters.cluster.objects import Key, TargetKey
from servingpool.api.gpu_budget import BudgetSpec
from servingpool.decision.allocate import filled
from servingpool.decision.decision import BudgetCut, Decision, Part, moves, share_of, verdict_of_parts
from servingpool.decision.observation import Unknown
from servingpool.decision.roles import DECODE, PREFILL
from servingpool.gpubudget.claims import PoolNeed, TargetNeed, claims_of, standing
from servingpool.gpubudget.members import Member
from servingpool.gpubudget.sharing import Claim
from servingpool.reconcile.plan.pool_plan import PoolPlan, StagePlan, with_decisions
from servingpool.reconcile.plan.preconditions import ScalePermission

STALE = 90.0
"""Seconds, six ticks, without a decision after which nobody is assumed to scale a pool."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Replicas that the last decision on a stage of a pool asks for."""

    need: PoolNeed
    max_change: float
    acts: bool
    at: float
    """Unix time in seconds."""
    growing: frozenset[str] = frozenset()
    """Names of the targets that could get more replicas, were it not for a budget."""


def wanted_by(plan: StagePlan, permission: ScalePermission) -> Wanted:
    """Replicas that a stage's plan asks for."""
    decision, step = plan.decision, plan.seen.pool.spec.behavior.max_change_per_step
    return Wanted(
        need_of(plan),
        float("inf") if step is None else float(step),
        permission.act,
        decision.at,
        frozenset(part.target for part in decision.parts if part.stuck is None and part.weight > 0.0),
    )


def claims_in(
    budget: BudgetSpec, members: Sequence[Member], wanted: Mapping[Key, tuple[Wanted, ...]], now: float
) -> tuple[Claim, ...]:
    """The claim of each member, in their order. `wanted`: replicas that pools asked for last.

    A pool with GPUs that are unknown keeps what it is assumed to hold, and orders nothing.
    """
    found = {one.target: _standing(one) for one in members}
    unknown = {one.key for one in members if one.unknown is not None}
    pools: defaultdict[Key, list[Member]] = defaultdict(list)
    for one in members:
        pools[one.key].append(one)
    for key, parts in pools.items():
        asked = [
            each for each in wanted.get(key, ()) if each.acts and abs(now - each.at) < STALE and key not in unknown
        ]
        claims, floor = {one.name: found[one.target] for one in parts}, budget.floor(*key)
        if parts[0].names == {name for each in asked for name in each.need.targets}:
            claims = _of_pool("/".join(key), asked, claims, floor)
        else:  # nobody scales it, or it has other targets now: it keeps what it has until the next decision
            claims = {name: replace(one, fixed=True) for name, one in standing(floor, claims).items()}
        found |= {one.target: claims[one.name] for one in parts}
    return tuple(found[one.target] for one in members)


def _standing(one: Member) -> Claim:
    own, name = one.held, one.claimed_as
    return Claim(name, own.each, own.ordered, own.gpus, own.ordered, None, priority=one.priority, placed=len(own.made))


def _of_pool(pool: str, asked: Sequence[Wanted], claims: Mapping[str, Claim], floor: int) -> dict[str, Claim]:
    """Claims of a pool by target. `asked`: the pool's last decisions, one for each stage."""
    own = [
        (each.need, {name: claim for name, claim in claims.items() if name in each.need.targets}, each.max_change)
        for each in asked
    ]
    found: dict[str, Claim] = {}
    # A role with a target outside the budget may get its replicas there.
    paired = len(own) > 1 and all(
        need.targets.keys() == each.keys() and all(one.gpus > 0 for one in each.values()) for need, each, _ in own
    )
    roles = ((pool, PREFILL), (pool, DECODE)) if paired else (("", ""),) * len(own)
    for (need, each, step), share, (pair, role) in zip(own, _floors(floor, own), roles, strict=True):
        made = claims_of(need, share, each) if each else {}  # all of a role may lie outside the budget
        found |= {name: replace(one, max_change=step, pair=pair, role=role) for name, one in made.items()}
    return found


def _floors(floor: int, stages: Sequence[tuple[PoolNeed, Mapping[str, Claim], float]]) -> list[int]:
    """A pool's floor in GPUs, split over prefill and decode as they ask for GPUs: one stage alone serves nothing.

    In whole replicas of prefill: else the floor would lose one where it is cut in two.
    """
    gpus = [sum(need.targets[name].wanted * one.gpus for name, one in own.items()) for need, own, _ in stages]
    sizes = [
        min((one.gpus for name, one in own.items() if one.gpus * need.targets[name].wanted > 0), default=0)
        for need, own, _ in stages
    ]
    if len(sizes) == 1:
        return [floor]
    prefill, decode = sizes
    share = floor * gpus[0] // max(1, sum(gpus))
    if min(sizes) > 0 and prefill + decode <= floor:  # at least a replica of each
        share = min(max(share, prefill), floor - decode)
    share -= share % max(1, prefill)
    return [share, floor - share]


def capacity_of(parts: Iterable[Part]) -> float:
    """Capacity of these parts, in replicas of the reference target."""
    return math.fsum(part.weight * part.useful for part in parts)


def needed_by(decision: Decision) -> float:
    """Capacity that a decision asks for; where the need is unknown, the capacity that it keeps."""
    return capacity_of(decision.parts) if isinstance(decision.capacity, Unknown) else decision.capacity


def need_of(plan: StagePlan) -> PoolNeed:
    """Need of a stage's plan."""
    decision, found = plan.decision, plan.decision.wanted
    must = math.inf if found is None or not found.lends else found.replicas - found.lends
    targets = {
        part.target: TargetNeed(part.replicas, part.weight, part.base, part.delivered if part.absent else None)
        for part in decision.parts
    }
    most = math.ceil(math.fsum(one.wanted * one.weight for one in targets.values()))
    return PoolNeed(
        targets,
        misses=misses_of(decision, most, plan.seen.pool.spec.slo.attainment_share),
        capacity=min(needed_by(decision), must),
        least=least_of(plan),
        gpus=next(one.gpus for one in plan.seen.targets if one.name == plan.memory.profile.reference),
        had=0 if found is None else int(found.had),
        lent=found is not None and not decision.bounds.least.replicas and 0 < decision.replicas <= found.may_wait,
    )


def least_of(plan: StagePlan) -> int:
    """Min in force, without replicas that go with the other role. At 0 the first replica ranks with the mins."""
    decision, least = plan.decision, plan.decision.bounds.least
    own = least.replicas if least.beside is None else plan.seen.pool.spec.min
    return max(own, min(1, decision.replicas))


def misses_of(decision: Decision, replicas: int, attainment: float) -> tuple[float, ...] | None:
    """Expected misses with 0, 1, ... this many replicas and beyond, over the misses that the SLO allows."""
    if decision.course is None:
        return None
    return tuple(each / (1.0 - attainment) for each in decision.course.beyond(replicas))


class Allowance(NamedTuple):
    """Replicas that a budget lets one target request."""

    most: int | None
    """Most replicas; None for the requested ones, because the budget is closed."""
    budget: str
    """Name of the budget."""
    detail: str
    """Why it is no more; empty where it is all that is wanted."""
    waits: bool = False
    """Whether GPUs that are the target's due are not free yet, or the due is unknown."""


def within(plan: PoolPlan, allowed: Mapping[TargetKey, Allowance]) -> PoolPlan:
    """A plan within the budgets of its targets. A recommendation is not cut: it requests nothing."""
    if not allowed or not plan.permission.act:
        return plan
    cut = [_cut(stage, allowed) for stage in plan.stages]
    beside = zip(plan.stages, reversed(plan.stages), reversed(cut), strict=True)
    raised = [_beside(stage, other, decision) for stage, other, decision in beside]
    left = [
        done if again is stage else _cut(again, allowed)
        for stage, done, again in zip(plan.stages, cut, raised, strict=True)
    ]
    return with_decisions(plan, _awake_together(plan, left, allowed))


def _awake_together(
    plan: PoolPlan, decisions: Sequence[Decision], allowed: Mapping[TargetKey, Allowance]
) -> Sequence[Decision]:
    """No stage has replicas where the other gets none: it would hold GPUs and serve nothing.

    A stage that waits for GPUs, or may be ordered elsewhere, keeps the other as it is.
    """
    asleep = [stage for stage, decision in zip(plan.stages, decisions, strict=True) if decision.replicas == 0]
    if not asleep or len(asleep) == len(decisions):
        return decisions
    places = [allowed.get(one.workload.key) for stage in asleep for one in stage.seen.targets]
    full = next((one for one in places if one is not None and not one.most), None)
    if full is None:
        return decisions
    # Nothing stands in for a target's own min.
    elsewhere = plan.seen.pool.spec.goes_to_zero and any(one is None or one.most for one in places)
    most = None if elsewhere or any(one is not None and one.waits for one in places) else 0
    closed = {one.workload.key: full._replace(most=most) for one in plan.seen.targets}
    stages = zip(plan.stages, decisions, strict=True)
    return [_cut(replace(stage, decision=decision), closed) for stage, decision in stages]


def _beside(stage: StagePlan, other: StagePlan, left: Decision) -> StagePlan:
    """A stage's plan, raised for no more than budgets have `left` of the `other`."""
    if left is other.decision or stage.beside is None:
        return stage
    return replace(stage, decision=stage.beside(left.replicas))


def _cut(plan: StagePlan, allowed: Mapping[TargetKey, Allowance]) -> Decision:
    """A stage's plan within the budgets, target by target."""
    before, places = plan.decision.parts, {one.name: allowed.get(one.workload.key) for one in plan.seen.targets}
    within = [_within(part, places[part.target]) for part in before]
    if within == [part.replicas for part in before]:
        return plan.decision
    needed = needed_by(plan.decision)
    counts = _kept(_in_steps(within, before, plan.seen.pool.spec.behavior.max_change_per_step), before, needed)
    after = tuple(part._replace(replicas=count) for part, count in zip(before, counts, strict=True))
    cuts: list[BudgetCut] = []
    for at, (part, whole) in enumerate(zip(after, before, strict=True)):
        place = places[part.target]
        if place is not None and part.replicas < whole.replicas:
            left = capacity_of([*after[: at + 1], *before[at + 1 :]])
            cuts.append(BudgetCut(part.target, part.replicas, place.budget, place.detail, left))
    if after == before:
        return plan.decision
    moved = moves(after, plan.memory.profile.reference)
    return plan.decision.within_budgets(after, verdict_of_parts(after), moved, needed, cuts)


def _within(part: Part, place: Allowance | None) -> int:
    if place is None:
        return part.replicas
    return min(part.replicas, part.requested if place.most is None else place.most)


def _in_steps(counts: Sequence[int], before: Sequence[Part], step: int | None) -> Sequence[int]:
    """Budgets and decision together remove no more replicas than the pool may lose at once."""
    if step is None:
        return counts
    beyond = sum(max(0, part.requested - count) for part, count in zip(before, counts, strict=True)) - step
    most = [min(part.requested, part.replicas) for part in before]
    return filled(counts, most, sum(counts) + beyond, range(len(counts)))


def _kept(counts: Sequence[int], before: Sequence[Part], needed: float) -> Sequence[int]:
    """Nothing is removed that is needed because a budget has cut what was to serve in its place.

    Replicas that a budget asks for go all the same, and so do those that never came: what waits for their GPUs may be
    another target of this pool.
    """
    enough = min(needed, capacity_of(before)) * share_of(len(before))
    useful = [part._replace(replicas=count).useful for part, count in zip(before, counts, strict=True)]
    uncut = [at for at, part in enumerate(before) if part.stuck is None and counts[at] >= part.replicas]
    kept = filled(useful, [part.requested for part in before], enough, uncut, [part.weight for part in before])
    return list(map(max, counts, kept))
