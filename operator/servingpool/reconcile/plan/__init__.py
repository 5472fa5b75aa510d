"""Plan: the actions for a pool, and why.

In: `Collected`, what was learned before. Out: a `PoolPlan` with decision and orders, or a `Refusal`. Writes nothing.
`pool_plan` (the entry), `preconditions` (whether the pool may scale), `expense` (what its fleet costs).
"""

from __future__ import annotations

from servingpool.reconcile.plan.expense import Expense
from servingpool.reconcile.plan.pool_plan import (
    Learned,
    Planned,
    PoolPlan,
    Refusal,
    ScaleAction,
    StagePlan,
    core_pool,
    plan_pool,
    with_decisions,
)
from servingpool.reconcile.plan.preconditions import ScalePermission, named, no_target, owners, raw_targets

__all__ = [
    "Expense",
    "Learned",
    "Planned",
    "PoolPlan",
    "Refusal",
    "ScaleAction",
    "ScalePermission",
    "StagePlan",
    "core_pool",
    "named",
    "no_target",
    "owners",
    "plan_pool",
    "raw_targets",
    "with_decisions",
]
