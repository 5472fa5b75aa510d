"""What budgets leave of a plan: each target gets what its own budget lets it order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from servingpool.adapters.cluster.objects import TargetKey
from servingpool.decision.decision import BudgetCut, Decision
from servingpool.decision.fleet import moves, verdict_of_parts
from servingpool.decision.mix import share_of
from servingpool.decision.parts import Part
from servingpool.reconcile.budget_claims import Measure
from servingpool.reconcile.pool_plan import PoolPlan, StagePlan, with_decisions


class Allowance(NamedTuple):
    """What a budget lets one target order."""

    most: int | None
    """Replicas; None for those that are ordered now, because the budget is closed."""
    budget: str
    """Name of the budget."""
    detail: str
    """Why it is no more; empty where it is all that is wanted."""
    waits: bool = False
    """Some are its due, and their GPUs are not free yet; or its due is unknown."""


def within(plan: PoolPlan, allowed: Mapping[TargetKey, Allowance]) -> PoolPlan:
    """A plan within the budgets of its targets. What is only recommended is not cut: it orders nothing."""
    if not allowed or not plan.permission.act:
        return plan
    cut = [_cut(stage, allowed) for stage in plan.stages]
    beside = zip(plan.stages, reversed(plan.stages), reversed(cut), strict=True)
    left = [_cut(_beside(stage, other, decision), allowed) for stage, other, decision in beside]
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
    """What budgets leave of a stage, target by target."""
    before, places = plan.decision.parts, {one.name: allowed.get(one.workload.key) for one in plan.seen.targets}
    after = [_within(part, places[part.target]) for part in before]
    if after == list(before):
        return plan.decision
    measure = Measure.of(plan)
    _in_steps(after, before, plan.seen.pool.spec.behavior.max_change_per_step)
    _keep_what_serves(after, before, measure)
    cuts: list[BudgetCut] = []
    for at, (part, whole) in enumerate(zip(after, before, strict=True)):
        place = places[part.target]
        if place is not None and part.replicas < whole.replicas:
            left = measure.of_parts([*after[: at + 1], *before[at + 1 :]])
            cuts.append(BudgetCut(part.target, part.replicas, place.budget, place.detail, left))
    parts = tuple(after)
    if parts == before:
        return plan.decision
    moved = moves(parts, plan.learned.reference)
    return plan.decision.within_budgets(parts, verdict_of_parts(parts), moved, measure.needed, cuts)


def _within(part: Part, place: Allowance | None) -> Part:
    if place is None:
        return part
    return part._replace(replicas=min(part.replicas, part.requested if place.most is None else place.most))


def _in_steps(after: list[Part], before: Sequence[Part], step: int | None) -> None:
    """Budgets and decision together remove no more replicas than the pool may lose at once."""
    beyond = sum(max(0, part.requested - part.replicas) for part in after) - (math.inf if step is None else step)
    for at, whole in enumerate(before):
        taken = min(whole.requested, whole.replicas) - after[at].replicas
        if beyond > 0 and taken > 0:
            back = int(min(beyond, taken))
            after[at] = after[at]._replace(replicas=after[at].replicas + back)
            beyond -= back


def _keep_what_serves(after: list[Part], before: Sequence[Part], measure: Measure) -> None:
    """Nothing is removed that is needed because a budget has cut what was to serve in its place.

    Replicas that a budget asks for go all the same, and so do those that never came: what waits for their GPUs may be
    another target of this pool.
    """
    enough = min(measure.needed, measure.of_parts(before)) * share_of(len(before))
    for at, whole in enumerate(before):
        if whole.stuck is not None or after[at].replicas < whole.replicas or measure.worth[whole.target] <= 0.0:
            continue
        while after[at].replicas < whole.requested and measure.of_parts(after) < enough:
            after[at] = after[at]._replace(replicas=after[at].replicas + 1)
