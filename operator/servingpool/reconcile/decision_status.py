"""A decision as the status has it, with every figure that it rests on: the pool's, and of each role."""

from __future__ import annotations

from dataclasses import fields

from pydantic.alias_generators import to_camel

from servingpool.api.duration import brief
from servingpool.api.role import Role
from servingpool.api.status import Candidate, LastDecision, Limit, RoleStatus
from servingpool.api.time import from_unix
from servingpool.decision.decision import Decision, Figures
from servingpool.decision.observation import Reading, Unknown
from servingpool.reconcile.pool_plan import PoolPlan

FIGURE_NAMES = {one.name: to_camel(one.name) for one in fields(Figures)}
"""Figures of a decision, and their names in the status."""


def last_decision(decision: Decision, on_cost: str | None = None) -> LastDecision:
    """The decision in full. `on_cost`: why nothing is told of the cost."""
    figures = decision.figures
    return LastDecision(
        at=from_unix(decision.at),
        replicas=decision.replicas,
        verdict=decision.verdict.value,
        need=rounded(decision.need, 2),
        limits=tuple(
            Limit(name=limit.name, before=round(limit.before, 2), after=round(limit.after, 2), reason=limit.reason)
            for limit in decision.limits
        ),
        reason=decision.reason,
        load=rounded(figures.load, 3),
        safe_load=rounded(figures.safe_load, 3),
        forecast=rounded(figures.forecast, 2),
        horizon=brief(figures.horizon),
        figures={
            FIGURE_NAMES[name]: float(f"{value:.6g}")
            for name in FIGURE_NAMES
            if isinstance(value := getattr(figures, name), float)
        },
        candidates=tuple(
            Candidate(replicas=round(one.replicas, 2), misses=float(f"{one.misses:.6g}")) for one in decision.candidates
        ),
        warnings=tuple(warning for warning in (decision.warning, on_cost) if warning is not None),
    )


def roles_of(plan: PoolPlan, *, done: bool) -> tuple[RoleStatus, ...] | None:
    """Each role; None for a pool without. `done`: all that was decided was ordered just now."""
    told = tuple(
        RoleStatus(
            role=Role(stage.role),
            replicas=stage.decision.replicas if done else stage.seen.observation.requested,
            ready_replicas=len(stage.seen.observation.ready),
            desired_replicas=stage.decision.replicas,
            last_decision=last_decision(stage.decision),
        )
        for stage in plan.stages
        if stage.role
    )
    return told or None


def rounded(figure: Reading, digits: int) -> float | None:
    """As the status has it; None where unknown."""
    return None if isinstance(figure, Unknown) else round(figure, digits)
