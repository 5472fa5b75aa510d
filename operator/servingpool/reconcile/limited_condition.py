"""What keeps a pool from the replicas that its load needs, or above them: the ScalingLimited condition."""

from __future__ import annotations

from servingpool.api.conditions import Reason
from servingpool.catalogue.limits import LimitName
from servingpool.decision.bounds import Bounds
from servingpool.decision.decision import shown
from servingpool.reconcile.pool_plan import PoolPlan, StagePlan
from servingpool.reconcile.stages import of_role

LIMITED_BY: tuple[str, ...] = (
    *(Reason.GPU_BUDGET, Reason.TOO_MANY_REPLICAS, Reason.TOO_FEW_REPLICAS),
    *(Reason.PREFILL_PER_DECODE, Reason.OTHER_ROLE_RUNS),
)
"""Reasons, called as the limits that they report. Where both roles are limited, the first of these is reported: a role
that has less than it needs comes before one that has more."""


def judge_limits(plan: PoolPlan) -> tuple[Reason, str]:
    """Reason and message."""
    found = [each for stage in plan.stages if (each := _judged(stage)) is not None]
    within_range = (Reason.DESIRED_WITHIN_RANGE, Reason.DESIRED_WITHIN_RANGE.message())
    return min(found, key=lambda one: LIMITED_BY.index(one[0]), default=within_range)


def limit_of(plan: PoolPlan) -> str | None:
    """Name of the last limit; of both roles', in the order of `LIMITED_BY`. None where nothing is limited."""
    last = [stage.decision.limits[-1].name.value for stage in plan.stages if stage.decision.limits]
    return min(last, key=lambda name: LIMITED_BY.index(name) if name in LIMITED_BY else len(LIMITED_BY), default=None)


def _judged(stage: StagePlan) -> tuple[Reason, str] | None:
    """What limits a stage; None where nothing does."""
    decision, role = stage.decision, stage.role
    cut = next((one for one in decision.limits if one.name == LimitName.GPU_BUDGET), None)
    if cut is not None:
        said = Reason.GPU_BUDGET.message(needed=_needed(stage, cut.before), said=cut.reason)
        return Reason.GPU_BUDGET, of_role(role, said)
    hit = next((one for one in decision.limits if one.name in LIMITED_BY), None)
    if hit is None:
        return None
    reason, said = _by_bound(_needed(stage, hit.before), decision.bounds, above=hit.name == LimitName.MAXIMUM)
    return reason, of_role(role, said)


def _by_bound(needed: str, bounds: Bounds, *, above: bool) -> tuple[Reason, str]:
    """Reason and message of a need that is `above` max, or below the min in force."""
    if above:
        return Reason.TOO_MANY_REPLICAS, Reason.TOO_MANY_REPLICAS.message(needed=needed, bound=bounds.most)
    least, beside = bounds.least, bounds.least.beside
    if beside is None:
        return Reason.TOO_FEW_REPLICAS, Reason.TOO_FEW_REPLICAS.message(needed=needed, bound=least)
    replicas, role = beside.replicas, beside.role
    if beside.ratio:
        said = Reason.PREFILL_PER_DECODE.message(needed=needed, bound=least, replicas=replicas, role=role)
        return Reason.PREFILL_PER_DECODE, said
    said = Reason.OTHER_ROLE_RUNS.message(needed=needed, bound=least, replicas=replicas, role=role)
    return Reason.OTHER_ROLE_RUNS, said


def _needed(stage: StagePlan, replicas: float) -> str:
    """Replicas, with what they are counted in where there are several targets."""
    return f"{shown(replicas)} of {stage.learned.reference}" if stage.seen.pool.spec.several else shown(replicas)
