"""The status of the budgets, written if a change matters to a person."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from servingpool.adapters.cluster.errors import ClusterError
from servingpool.adapters.cluster.objects import Key, TargetKey
from servingpool.api.conditions import Reason, condition_of, updated
from servingpool.api.gpu_budget import BudgetedPool, BudgetStatus
from servingpool.decision.words import listed
from servingpool.gpubudget.budgets import Budgets, InBudget, Shared

log = logging.getLogger(__name__)

FIGURES_AFTER = 60.0
"""Seconds between two writes for nothing but figures of single pools."""
MOST_POOLS, FEW_POOLS = 1_000, 100
"""Pools in a status, of about 100 bytes each: all with firm GPUs, for a new leader reads there what each has firm, and
others up to so few in all. The metrics have each."""
NO_FIELD = {str(field.alias): None for field in BudgetStatus.model_fields.values()}
"""Merge patch that removes every field."""


class BudgetWriter(Protocol):
    """Part of a cluster that reporting needs."""

    async def write_budget_status(self, name: str, changes: dict[str, Any]) -> None:
        """Merge into a budget's status."""


class BudgetReporter:
    """Reports for all budgets, and reads the claims that their pods ask for."""

    def __init__(self, budgets: Budgets, writer: BudgetWriter) -> None:
        self.budgets, self._writer = budgets, writer
        self.failures = 0
        """Writes that failed since the start."""
        self._held: dict[str, tuple[str, BudgetStatus]] = {}
        """Uid and status of each as written last."""
        self._written: dict[str, float] = {}
        """Unix time in seconds of the last write, by budget."""

    def forget(self, moved: Callable[[Key | TargetKey | str], bool]) -> None:
        """Forget what others may have written."""
        self.budgets.forget(moved)
        self._held = {name: each for name, each in self._held.items() if not moved(name)}

    async def report(self, now: float, owns: Callable[[str], bool]) -> None:
        """Write each of our budgets' status that has changed. `now` is Unix time in seconds."""
        await self.budgets.templates.read(now)
        for name, shared in tuple(self.budgets.reported().items()):
            uid, before = self._held.get(name, ("", shared.budget.status))
            if uid != shared.budget.metadata.uid:
                before = shared.budget.status
            status = build(shared, self.budgets.membership.invalid.get(name), before, now)
            soon = 0.0 <= now - self._written.get(name, -FIGURES_AFTER) < FIGURES_AFTER
            if status == before or (soon and _headline(status) == _headline(before)) or not owns(name):
                continue
            try:
                await self._writer.write_budget_status(name, {**NO_FIELD, **status.to_dict()})
            except ClusterError as error:
                self.failures += 1
                log.warning("%s", error)
            else:
                self._held[name] = shared.budget.metadata.uid, status
                self._written[name] = now


def build(shared: Shared, problems: str | None, before: BudgetStatus, now: float) -> BudgetStatus:
    """The status of a budget as it was shared. Conditions of `before` keep their transition times."""
    budget, held = shared.budget, shared.held
    judged = [_counted(shared, problems), _exclusive(shared), *(() if held is None else [_sufficient(shared, held)])]
    known = [condition_of(*one, generation=budget.metadata.generation, at=now) for one in judged]
    worst = next((one for one in known if one.status is not one.type.good), known[-1])
    waiting = sum(
        max(0, shared.grants[claim.pool].share - shared.grants[claim.pool].most) * claim.gpus for claim in shared.claims
    )
    firm, by_pool, priorities = shared.firm, shared.by_pool(), {one.key: one.priority for one in shared.members}
    # Those with firm GPUs go first: else pools of high priority, which cost nothing, would push them out.
    most = min(MOST_POOLS, max(FEW_POOLS, len(+firm)))
    told = sorted(priorities, key=lambda key: (-firm[key], -priorities[key], key))[:most]
    told.sort(key=lambda key: (-priorities[key], key))
    return BudgetStatus(
        observed_generation=budget.metadata.generation,
        conditions=updated([one for one in before.conditions if one.type in {each.type for each in known}], known),
        use=None if held is None else f"{held}/{budget.spec.gpus}",
        held=held,
        waiting=None if held is None else waiting,
        why=worst.reason,
        pools=tuple(_pool(key, priorities[key], firm[key], by_pool.get(key)) for key in told),
    )


def _pool(key: Key, priority: int, firm: int, mine: InBudget | None) -> BudgetedPool:
    figures = {} if mine is None else {"held": mine.held, "due": mine.due, "wanted": mine.wanted}
    return BudgetedPool(namespace=key[0], name=key[1], priority=priority, firm=firm, **figures)


def _counted(shared: Shared, problems: str | None) -> tuple[Reason, str]:
    if problems is not None:
        effect = "the last valid one counts" if shared.valid else "no pool is limited by it"
        return Reason.INVALID_BUDGET.said(effect=effect, problems=problems)
    for one in shared.members:
        if one.unknown is not None:
            return Reason.NOT_COUNTED.said(pool=one.claimed_as, why=one.unknown, gpus=one.held.gpus)
    if shared.not_ending:
        return Reason.PODS_NOT_ENDING.said(pods=listed(shared.not_ending))
    return Reason.ALL_COUNTED.said(pools=len({one.key for one in shared.members}))


def _exclusive(shared: Shared) -> tuple[Reason, str]:
    for budget, pools in sorted(shared.taken.items()):
        return Reason.COUNTED_ELSEWHERE.said(pools=listed(sorted(pools)), budget=budget)
    return Reason.NO_OVERLAP.said()


def _sufficient(shared: Shared, held: int) -> tuple[Reason, str]:
    gpus = shared.budget.spec.gpus
    if held > gpus:
        return Reason.OVER_BUDGET.said(held=held, gpus=gpus)
    short: Counter[str] = Counter()
    for one, claim in zip(shared.members, shared.claims, strict=False):
        missing = (claim.wanted - claim.optional - shared.grants[claim.pool].most) * claim.gpus
        if not claim.fixed and missing > 0:
            short["/".join(one.key)] += missing
    if short:
        named = listed(sorted(short, key=lambda pool: (-short[pool], pool)))
        return Reason.POOLS_WAIT.said(held=held, gpus=gpus, pools=named, missing=sum(short.values()))
    return Reason.ENOUGH_GPUS.said(held=held, gpus=gpus)


def _headline(status: BudgetStatus) -> tuple[object, ...]:
    """Part of a status that is written at once when it changes."""
    conditions = tuple((one.type, one.status, one.reason) for one in status.conditions)
    return status.observed_generation, conditions, status.held, status.waiting
