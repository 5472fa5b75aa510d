"""GPU budgets over all rounds: who shares which, who may order how much, and a check before each write.

Pools of different Prometheus backends are decided in different rounds. So what each wants is kept from its last
decision, and what each holds is read from the cluster whenever it matters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from servingpool.adapters.cluster.devices import ClaimTemplates
from servingpool.adapters.cluster.objects import Key, TargetKey
from servingpool.adapters.cluster.scale import TargetReader
from servingpool.api.gpu_budget import GPUBudget
from servingpool.catalogue.notes import Note
from servingpool.decision.decision import Verdict
from servingpool.decision.observation import Unknown
from servingpool.decision.sharing import Claim, Grant, share
from servingpool.reconcile.budget_members import Member, Membership
from servingpool.reconcile.holdings import Held, Holdings
from servingpool.reconcile.pool_plan import PoolPlan, ScaleAction
from servingpool.reconcile.preconditions import owners
from servingpool.reconcile.targets import Owners

log = logging.getLogger(__name__)

STALE = 90.0
"""Seconds, six ticks, after which a pool counts as one that nobody scales: it was not decided on since."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pool's last decision asks for."""

    replicas: int
    misses: tuple[float, ...] | None
    least: int
    max_change: float
    acts: bool
    at: float
    """Unix time in seconds."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One budget as it was shared last."""

    budget: GPUBudget
    members: tuple[Member, ...]
    claims: tuple[Claim, ...] = ()
    grants: Mapping[str, Grant] = field(default_factory=dict)
    uncounted: tuple[str, str] | None = None
    """A pool whose GPUs are unknown, and why: then nothing is granted."""
    taken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pools that it selects and that belong to an older budget, by that one's name."""
    departed: frozenset[TargetKey] = frozenset()
    """Targets whose pools have left it, and of which pods end."""
    leaving: int = 0
    """GPUs of these pods."""
    valid: bool = True
    """False where no valid spec was seen: then it limits no pool."""

    @property
    def held(self) -> int | None:
        """GPUs that all its pools hold, and pods of former ones that end; None if unknown."""
        return None if self.uncounted is not None else self.leaving + sum(claim.held for claim in self.claims)

    def by_pool(self) -> Iterator[tuple[Key, Claim]]:
        """Each pool with its claim; none while the GPUs of one are unknown."""
        return zip((one.key for one in self.members), self.claims, strict=False)

    def due(self, claim: Claim) -> int:
        """GPUs that are a pool's due."""
        return self.grants[claim.pool].share * claim.gpus

    def wanted(self, claim: Claim) -> int:
        """GPUs that a pool's decision asks for."""
        return claim.wanted * claim.gpus


class Budgets:
    """All budgets of the cluster. All happens in the loop's own event loop, so no two orders are checked at once."""

    def __init__(self, targets: TargetReader, templates: ClaimTemplates) -> None:
        self._cache, self.templates = targets.cache, templates
        self._holdings = Holdings(targets, templates)
        self._membership = Membership(targets.cache, self._holdings)
        self._wanted: dict[Key, Wanted] = {}
        self.latest: dict[str, Shared] = {}
        """Each as it was shared last, by name."""
        self._fresh: set[str] = set()
        """Those that were shared since `settle`."""

    def reported(self) -> dict[str, Shared]:
        """What is to be reported, by name: also budgets that limit no pool because they were never valid."""
        unusable = self._membership.unusable.items()
        return {name: Shared(budget, (), uncounted=("", ""), valid=False) for name, budget in unusable} | self.latest

    @property
    def invalid(self) -> Mapping[str, str]:
        """What is wrong with budgets that cannot be read, by name."""
        return self._membership.invalid

    def apply(self, plans: Sequence[PoolPlan], owned: Owners, now: float) -> list[PoolPlan]:
        """The same plans, cut to what the budgets let their pools order.

        `owned`: for each pool, who owns each of its targets. `now` is Unix time in seconds.
        """
        budgets = self._membership.read()
        if not budgets:
            return list(plans)
        touched: set[str] = set()
        for plan in plans:
            raw = self._cache.pools.get(plan.meta.key)
            found = () if raw is None else self._membership.candidates(plan.meta.key, raw)
            touched |= {one.metadata.name for one in found}
            if found:
                self._wanted[plan.meta.key] = _wanted(plan)
        shared = {member.key: one for one in self._shares(touched, owned, now) for member in one.members}
        return [_cut(plan, shared.get(plan.meta.key)) for plan in plans]

    def settle(self, now: float) -> None:
        """Share those budgets of which no pool was decided, and forget what is gone: a tick ends."""
        budgets = {one.metadata.name for one in self._membership.read()}
        self._wanted = {key: each for key, each in self._wanted.items() if key in self._cache.pools}
        self.latest = {name: each for name, each in self.latest.items() if name in budgets}
        self._holdings.keep(budgets)
        if budgets - self._fresh:
            self._shares(budgets - self._fresh, owners(self._cache.pools), now)
        self._fresh = set()

    def _shares(self, names: AbstractSet[str], owned: Owners, now: float) -> list[Shared]:
        """These budgets, shared as of now."""
        self._holdings.expire(now)
        members, taken = self._membership.members(names, owned, now) if names else ({}, {})
        shared = [
            self._share(budget, tuple(members.get(name, ())), taken.get(name, {}), now)
            for budget in self._membership.read()
            if (name := budget.metadata.name) in names
        ]
        self.latest.update((one.budget.metadata.name, one) for one in shared)
        self._fresh |= names
        return shared

    def admits(self, plan: PoolPlan, action: ScaleAction) -> bool:
        """Whether one order of a plan still fits, right before it is sent. If so its GPUs are taken."""
        if not action.grows:
            return True
        budgets = {one.metadata.name: one for one in self._membership.read()}  # one may be lowered meanwhile
        for name, shared in self.latest.items():
            mine = next((one for one in shared.members if one.target == action.target.key), None)
            budget = budgets.get(name)
            if mine is None or budget is None:
                continue
            own, total = self._look(mine, budget, plan.at), self._leaving(shared)
            for one in shared.members:
                held = own if one is mine else self._look(one, budget, plan.at)
                if isinstance(held, Unknown):
                    return False
                total += held.gpus
            more = max(0, action.replicas - own.ordered) * own.each if isinstance(own, Held) else 0
            if total + more > budget.spec.gpus:
                log.info("GPUBudget %s is used up meanwhile.", name, extra=plan.meta.log_fields)
                return False
        # Also without a budget: one may be made while the answer is on its way.
        self._holdings.order(action.target, action.replicas, plan.at)
        return True

    def answered(self, action: ScaleAction, now: float, *, unknown: bool) -> None:
        """An order has ended, or was not sent; `unknown`: it may have been carried out."""
        key = action.target.key
        self._holdings.answered(key, unknown=unknown)
        for shared in self.latest.values():
            for one in shared.members:
                if one.target == key:  # what was ordered away is seen before anything is ordered again
                    self._look(one, shared.budget, now)

    def _look(self, one: Member, budget: GPUBudget, now: float) -> Held | Unknown:
        return self._holdings.held(one.target, one.stated, budget, now)

    def _leaving(self, shared: Shared) -> int:
        return sum(self._holdings.leaving(shared.budget.metadata.name, each) for each in shared.departed)

    def _departed(self, name: str, members: Sequence[Member]) -> frozenset[TargetKey]:
        """Targets whose pools have left this budget, and of which pods end."""
        before = self.latest.get(name)
        known = set() if before is None else before.departed | {one.target for one in before.members}
        left = known - {one.target for one in members}
        return frozenset(each for each in left if self._holdings.leaving(name, each))

    def _share(
        self, budget: GPUBudget, members: tuple[Member, ...], taken: Mapping[str, Sequence[str]], now: float
    ) -> Shared:
        lost = {name: tuple(pools) for name, pools in taken.items()}
        shared = Shared(budget, members, taken=lost, departed=self._departed(budget.metadata.name, members))
        for one in members:
            if isinstance(one.held, Unknown):
                return replace(shared, uncounted=("/".join(one.key), one.held.reason))
        claims = tuple(self._claim(one, one.held, budget, now) for one in members if isinstance(one.held, Held))
        leaving = self._leaving(shared)
        grants = share(budget.spec.gpus, claims, lending=budget.spec.lending, leaving=leaving)
        return replace(shared, claims=claims, grants=grants, leaving=leaving)

    def _claim(self, one: Member, held: Held, budget: GPUBudget, now: float) -> Claim:
        wanted = self._wanted.get(one.key)
        floor = budget.spec.floor(*one.key)
        claim = Claim("/".join(one.key), held.each, held.ordered, held.gpus, held.ordered, None, 0, floor, one.priority)
        if wanted is None or not wanted.acts or abs(now - wanted.at) >= STALE:
            return replace(claim, fixed=True)
        return replace(
            claim, wanted=wanted.replicas, misses=wanted.misses, least=wanted.least, max_change=wanted.max_change
        )


def _wanted(plan: PoolPlan) -> Wanted:
    decision, spec = plan.decision, plan.seen.pool.spec
    misses = None
    if decision.course is not None:
        allowed = 1.0 - spec.slo.attainment_share
        misses = tuple(each / allowed for each in decision.course.beyond(decision.replicas))
    step = spec.behavior.max_change_per_step
    change = float("inf") if step is None else float(step)
    least = max(decision.bounds.least.replicas, min(1, decision.replicas))  # at 0 the first one ranks with the mins
    return Wanted(decision.replicas, misses, least, change, plan.permission.act, plan.at)


def _cut(plan: PoolPlan, shared: Shared | None) -> PoolPlan:
    """A plan within its budget. What is only recommended is not cut: it orders nothing."""
    if shared is None or not plan.permission.act:
        return plan
    requested = plan.seen.observation.requested
    if shared.uncounted is not None:
        pool, why = shared.uncounted
        most, detail = requested, Note.GPUS_UNKNOWN.message(pool=pool, why=why)
    else:
        grant = shared.grants["/".join(plan.meta.key)]
        most, detail = grant.most, grant.detail
    decision = plan.decision.within_budget(requested, most, shared.budget.metadata.name, detail)
    if decision is plan.decision:
        return plan
    act = decision.verdict is not Verdict.HOLD
    actions = (ScaleAction(plan.seen.workload, decision.replicas),) if act else ()
    return replace(plan, decision=decision, actions=actions)
