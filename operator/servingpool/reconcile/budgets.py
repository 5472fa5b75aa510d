"""GPU budgets over all rounds: who shares which, who may order how much, and a check before each write.

Pools of different Prometheus backends are decided in different rounds. So what each wants is kept from its last
decision, and what each holds is read from the cluster whenever it matters.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from servingpool.adapters.cluster.devices import ClaimTemplates
from servingpool.adapters.cluster.objects import Key, Raw, TargetKey
from servingpool.adapters.cluster.scale import TargetReader
from servingpool.api.gpu_budget import GPUBudget
from servingpool.api.serving_pool import problems
from servingpool.api.spec import DEFAULT_PRIORITY, HIGHEST_PRIORITY
from servingpool.catalogue.notes import Note
from servingpool.decision.decision import Verdict
from servingpool.decision.observation import Unknown
from servingpool.decision.sharing import Claim, Grant, share
from servingpool.reconcile.holdings import Held, Holdings
from servingpool.reconcile.pool_plan import PoolPlan, ScaleAction
from servingpool.reconcile.preconditions import named, owners

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
class Member:
    """A pool that shares a budget, by its target: two pools that name one target count once."""

    key: Key
    target: TargetKey
    priority: int
    stated: int | None
    """GPUs of a replica, as the pool says."""
    held: Held | Unknown


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

    @property
    def held(self) -> int | None:
        """GPUs that all its pools hold; None if unknown."""
        return None if self.uncounted is not None else sum(claim.held for claim in self.claims)

    def by_pool(self) -> Iterator[tuple[Key, Claim]]:
        """Each pool with its claim; none while the GPUs of one are unknown."""
        return zip((one.key for one in self.members), self.claims, strict=False)

    def due(self, claim: Claim) -> int:
        """GPUs that are a pool's due."""
        return claim.held if claim.fixed else self.grants[claim.pool].share * claim.gpus

    def wanted(self, claim: Claim) -> int:
        """GPUs that a pool's decision asks for."""
        return claim.held if claim.fixed else claim.wanted * claim.gpus


class Budgets:
    """All budgets of the cluster. All happens in the loop's own event loop, so no two orders are checked at once."""

    def __init__(self, targets: TargetReader, templates: ClaimTemplates) -> None:
        self._cache, self.templates = targets.cache, templates
        self._holdings = Holdings(targets, templates)
        self._wanted: dict[Key, Wanted] = {}
        self._edition = -1
        self._budgets: tuple[GPUBudget, ...] = ()
        """Valid ones, the oldest first."""
        self.invalid: dict[str, str] = {}
        """What is wrong with others, by name."""
        self._selected: dict[tuple[str, frozenset[tuple[str, str]]], tuple[GPUBudget, ...]] = {}
        """Budgets by namespace and labels of the pools that they select."""
        self.latest: dict[str, Shared] = {}
        """Each as it was shared last, by name."""
        self._fresh: set[str] = set()
        """Those that were shared since `settle`."""

    def read(self) -> tuple[GPUBudget, ...]:
        """The valid budgets, the oldest first."""
        if self._edition != self._cache.edition:
            self._edition, self._selected, self.invalid = self._cache.edition, {}, {}
            held = {budget.metadata.name: budget for budget in self._budgets}
            found = [self._parsed(name, raw, held) for name, raw in self._cache.budgets.items()]
            self._budgets = tuple(
                sorted(
                    (one for one in found if one is not None),
                    key=lambda one: (one.metadata.creation_timestamp, one.metadata.name),
                )
            )
        return self._budgets

    def apply(self, plans: Sequence[PoolPlan], owned: Mapping[Key, Key], now: float) -> list[PoolPlan]:
        """The same plans, cut to what the budgets let their pools order.

        `owned`: for each pool, the one that owns its target. `now` is Unix time in seconds.
        """
        budgets = self.read()
        if not budgets:
            return list(plans)
        touched: set[str] = set()
        for plan in plans:
            raw = self._cache.pools.get(plan.meta.key)
            found = () if raw is None else self._candidates(plan.meta.key, raw)
            touched |= {one.metadata.name for one in found}
            if found:
                self._wanted[plan.meta.key] = _wanted(plan)
        shared = {member.key: one for one in self._shares(touched, owned, now) for member in one.members}
        return [_cut(plan, shared.get(plan.meta.key)) for plan in plans]

    def settle(self, now: float) -> None:
        """Share those budgets of which no pool was decided, and forget what is gone: a tick ends."""
        budgets = {one.metadata.name for one in self.read()}
        self._wanted = {key: each for key, each in self._wanted.items() if key in self._cache.pools}
        self.latest = {name: each for name, each in self.latest.items() if name in budgets}
        if budgets - self._fresh:
            self._shares(budgets - self._fresh, owners(self._cache.pools), now)
        self._fresh = set()

    def _shares(self, names: AbstractSet[str], owned: Mapping[Key, Key], now: float) -> list[Shared]:
        """These budgets, shared as of now."""
        self._holdings.expire(now)
        members, taken = self._members(names, owned, now) if names else ({}, {})
        shared = [
            self._share(budget, tuple(members.get(name, ())), taken.get(name, {}), now)
            for budget in self.read()
            if (name := budget.metadata.name) in names
        ]
        self.latest.update((one.budget.metadata.name, one) for one in shared)
        self._fresh |= names
        return shared

    def admits(self, plan: PoolPlan) -> bool:
        """Whether a plan's order still fits, right before it is sent. If so its GPUs are taken."""
        action = plan.action
        if action is None or not plan.grows:
            return True
        for name, shared in self.latest.items():
            mine = next((one for one in shared.members if one.target == action.target.key), None)
            if mine is None or name not in self._cache.budgets:
                continue
            own, total = self._look(mine, shared.budget, plan.at), 0
            for one in shared.members:
                held = own if one is mine else self._look(one, shared.budget, plan.at)
                if isinstance(held, Unknown):
                    return False
                total += held.gpus
            if (
                isinstance(own, Held)
                and total + max(0, action.replicas - own.ordered) * own.each > shared.budget.spec.gpus
            ):
                log.info("GPUBudget %s is used up meanwhile.", name, extra=plan.meta.log_fields)
                return False
            self._holdings.order(action.target, action.replicas, plan.at)
        return True

    def answered(self, plan: PoolPlan, *, unknown: bool) -> None:
        """A plan's order has ended; `unknown`: it may have been carried out."""
        if plan.action is None:
            return
        key = plan.action.target.key
        self._holdings.answered(key, unknown=unknown)
        for shared in self.latest.values():
            for one in shared.members:
                if one.target == key:
                    self._look(
                        one, shared.budget, plan.at
                    )  # what was ordered away is seen before anything is ordered again

    def _look(self, one: Member, budget: GPUBudget, now: float) -> Held | Unknown:
        return self._holdings.held(one.target, one.stated, budget.spec, now)

    def _parsed(self, name: str, raw: Raw, held: Mapping[str, GPUBudget]) -> GPUBudget | None:
        try:
            return GPUBudget.read(raw)
        except ValidationError as error:
            self.invalid[name] = problems(error)
            before = held.get(name)
            return before if before is not None and before.metadata.uid == raw["metadata"]["uid"] else None

    def _candidates(self, key: Key, raw: Raw) -> tuple[GPUBudget, ...]:
        """Budgets that select a pool by its labels and its namespace's, the oldest first."""
        budgets, labels = self.read(), raw["metadata"].get("labels") or {}
        at = key[0], frozenset(labels.items())
        if at not in self._selected:
            around = dict(self._cache.namespaces.get(key[0], {}))
            self._selected[at] = tuple(
                one
                for one in budgets
                if one.spec.pool_selector.admits(labels) and one.spec.namespace_selector.admits(around)
            )
        return self._selected[at]

    def _members(
        self, names: AbstractSet[str], owned: Mapping[Key, Key], now: float
    ) -> tuple[dict[str, list[Member]], dict[str, dict[str, list[str]]]]:
        """The pools of each of these budgets, and those that it leaves to an older one."""
        pools = self._cache.pools
        members: defaultdict[str, list[Member]] = defaultdict(list)
        taken: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
        seen: set[tuple[str, TargetKey]] = set()
        # The owner of a target first: it is the one that orders.
        for key in sorted(pools, key=lambda each: (owned.get(each, each) != each, each)):
            raw = pools[key]
            candidates = self._candidates(key, raw)
            if not any(one.metadata.name in names for one in candidates):
                continue
            for target in named(key, raw):
                mine: str | None = None
                for budget in candidates:
                    name = budget.metadata.name
                    if (name, target) in seen:
                        break
                    stated = _stated(raw, target)
                    held = self._holdings.held(target, stated, budget.spec, now)
                    if isinstance(held, Held) and held.gpus == 0 and held.each == 0:
                        continue
                    if mine is None:
                        mine = name
                        seen.add((name, target))
                        members[name].append(Member(key, target, _priority(raw), stated, held))
                    else:
                        taken[name].setdefault(mine, []).append("/".join(key))
        return members, taken

    def _share(
        self, budget: GPUBudget, members: tuple[Member, ...], taken: Mapping[str, Sequence[str]], now: float
    ) -> Shared:
        lost = {name: tuple(pools) for name, pools in taken.items()}
        for one in members:
            if isinstance(one.held, Unknown):
                return Shared(budget, members, uncounted=("/".join(one.key), one.held.reason), taken=lost)
        claims = tuple(self._claim(one, one.held, budget, now) for one in members if isinstance(one.held, Held))
        grants = share(budget.spec.gpus, claims, lending=budget.spec.lending)
        return Shared(budget, members, claims, grants, taken=lost)

    def _claim(self, one: Member, held: Held, budget: GPUBudget, now: float) -> Claim:
        wanted = self._wanted.get(one.key)
        floor = budget.spec.floor(*one.key)
        claim = Claim("/".join(one.key), held.each, held.ordered, held.gpus, held.ordered, None, 0, floor, one.priority)
        if wanted is None or not wanted.acts or not 0.0 <= now - wanted.at < STALE:
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
    action = ScaleAction(plan.seen.workload, decision.replicas) if act else None
    return replace(plan, decision=decision, action=action)


def _stated(raw: Raw, target: TargetKey) -> int | None:
    """GPUs of a replica as the pool says, even where the rest of its spec cannot be read."""
    for one in raw["spec"].get("targets", ()):
        gpus = one.get("gpusPerReplica") if one.get("name") == target.name else None
        if isinstance(gpus, int):
            return gpus
    return None


def _priority(raw: Raw) -> int:
    found = raw["spec"].get("priority", DEFAULT_PRIORITY)
    return found if isinstance(found, int) and 0 <= found <= HIGHEST_PRIORITY else 0
