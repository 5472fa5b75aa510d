"""GPU budgets over all rounds: who shares which, who may order how much, and a check before each write.

Pools of different Prometheus backends are decided in different rounds. So what each wants is kept from its last
decision, and what each holds is read from the cluster whenever it matters.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple, TypeVar

from servingpool.adapters.cluster.devices import ClaimTemplates
from servingpool.adapters.cluster.objects import Key, TargetKey
from servingpool.adapters.cluster.scale import TargetReader
from servingpool.api.gpu_budget import BudgetStatus, GPUBudget
from servingpool.decision.observation import Unknown
from servingpool.gpubudget.ledger import Held, Holdings
from servingpool.gpubudget.members import Member, Membership, Subject
from servingpool.gpubudget.plans import Allowance, Wanted, claims_in, wanted_by, within
from servingpool.gpubudget.sharing import Claim, Grant, idle_in, share, spare
from servingpool.reconcile.collect.targets import Owners, SeenTarget
from servingpool.reconcile.keep.orders import Orders
from servingpool.reconcile.plan.pool_plan import PoolPlan, ScaleAction
from servingpool.reconcile.plan.preconditions import owners

log = logging.getLogger(__name__)


class InBudget(NamedTuple):
    """GPUs of a pool under a budget, summed over its targets."""

    held: int
    """GPUs that the pool's pods hold."""
    due: int
    """GPUs that are the pool's due."""
    wanted: int
    """GPUs that the pool's decision asks for."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A budget as it was shared last."""

    budget: GPUBudget
    members: tuple[Member, ...]
    claims: tuple[Claim, ...] = ()
    grants: Mapping[str, Grant] = field(default_factory=dict)
    taken: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Pools that the budget selects and whose targets count in another budget, by the other budget's name."""
    departed: frozenset[TargetKey] = frozenset()
    """Targets whose pools have left it, and of which pods end."""
    leaving: int = 0
    """GPUs of these pods."""
    idle: int = 0
    """GPUs that are held for pods which have no node, and are not their pool's share."""
    not_ending: tuple[str, ...] = ()
    """Pods that should have ended long ago: they hold nothing."""
    valid: bool = True
    """False where no valid spec was seen: then it limits no pool."""
    room: Mapping[TargetKey, int] = field(default_factory=dict)
    """Replicas of each target that could be ordered now."""
    counts: dict[TargetKey, int] = field(default_factory=dict)
    """GPUs of each target: as it was shared, and where we have ordered since, as looked at then."""

    @property
    def held(self) -> int | None:
        """GPUs that all its pools hold, with ending pods of former pools; None where it was never valid."""
        return self.leaving + sum(claim.held for claim in self.claims) if self.valid else None

    @property
    def firm(self) -> Counter[Key]:
        """GPUs of each pool that no other pool's min, priority or need takes."""
        found: Counter[Key] = Counter()
        for one, claim in zip(self.members, self.claims, strict=False):
            found[one.key] += self.grants[claim.pool].firm
        return found

    def by_pool(self) -> dict[Key, InBudget]:
        """GPUs of each pool under the budget; zeros where the pool's GPUs are unknown."""
        found: dict[Key, InBudget] = {}
        unknown = {one.key for one in self.members if one.unknown is not None}
        for one, claim in zip(self.members, self.claims, strict=False):
            if one.key not in unknown:
                mine = claim.held, self.grants[claim.pool].share * claim.gpus, claim.wanted * claim.gpus
                found[one.key] = InBudget(*map(sum, zip(found.get(one.key, (0, 0, 0)), mine, strict=True)))
        return found


T = TypeVar("T")


def _guarded(plan: PoolPlan, do: Callable[[PoolPlan], T]) -> T | None:
    """What this makes of a plan; None, with a line in the log, where it fails."""
    try:
        return do(plan)
    except Exception:
        log.exception("Sharing GPUs failed for this pool; others continue.", extra=plan.meta.log_fields)
        return None


class Budgets:
    """All budgets of the cluster. They run in the loop's own event loop, so no two orders are checked at once."""

    def __init__(self, targets: TargetReader, templates: ClaimTemplates) -> None:
        self._cache, self.templates = targets.cache, templates
        self.orders = Orders(targets.cache)
        """Orders of this process, whose GPUs count from the moment they are sent."""
        self._holdings = Holdings(targets, templates, self.orders)
        self.membership = Membership(targets.cache, self._holdings)
        self._wanted: dict[Key, tuple[Wanted, ...]] = {}
        """GPUs that each pool wants, of both roles where its targets have roles."""
        self.latest: dict[str, Shared] = {}
        """Each budget as it was shared last, by name."""
        self._fresh: set[str] = set()
        """Names of the budgets that were shared since `settle`."""

    def reported(self) -> dict[str, Shared]:
        """Budgets to report, by name: also those that limit no pool because they were never valid."""
        unusable = self.membership.unusable.items()
        return {name: Shared(budget, (), valid=False) for name, budget in unusable} | self.latest

    def apply(self, plans: Sequence[PoolPlan], owned: Owners, now: float) -> list[PoolPlan | None]:
        """The plans, cut to the replicas that the budgets let their pools request. None where that failed for a pool.

        `owned`: for each pool, who owns each of its targets. `now` is Unix time in seconds.
        """
        if not self.membership.read():
            return list(plans)
        touched = {plan.meta.key: _guarded(plan, self._note_wanted) for plan in plans}
        allowed: dict[Key, dict[TargetKey, Allowance]] = {plan.meta.key: {} for plan in plans}
        for shared in self._shares({name for names in touched.values() for name in names or ()}, owned, now):
            for member in shared.members:
                if member.key in allowed:
                    allowed[member.key][member.target] = _allowance(shared, member)
        cut = [_guarded(plan, lambda one: within(one, allowed[one.meta.key])) for plan in plans]
        return [None if touched[plan.meta.key] is None else one for plan, one in zip(plans, cut, strict=True)]

    def _note_wanted(self, plan: PoolPlan) -> list[str]:
        """Keep what a pool wants. The budgets that select it."""
        if found := self.selecting(plan.meta.key):
            self._wanted[plan.meta.key] = tuple(wanted_by(stage, plan.permission) for stage in plan.stages)
        return found

    def selecting(self, key: Key) -> list[str]:
        """Names of the budgets that select a pool."""
        raw = self._cache.pools.get(key)
        return [] if raw is None else [one.metadata.name for one in self.membership.candidates(key, raw)]

    def room(self, key: Key, alike: Sequence[Sequence[SeenTarget]]) -> dict[str, int]:
        """Most replicas of each target in a budget, by name; none of a target that no other target could replace.

        A budget without free GPUs is no reason to wait where another target, in another budget or in none, may grow.
        It does not oscillate: what was ordered elsewhere stays ordered once GPUs are free here, and comes home only for
        a mix that is cheaper by `Params.worth_moving`; room is counted in GPUs that nobody holds, is due or claims, so
        that to want them takes nothing from another pool, which would have to take them back. Where no other target may
        grow, nothing is left out: the claim says all that the pool needs, and others give up what is its due.
        """
        if not any(shared.room for shared in self.latest.values()):
            return {}
        asked = zip(self._wanted.get(key, ()), alike, strict=False)
        found = (self._room_of(wanted, targets) for wanted, targets in asked if wanted.acts)
        return {name: most for each in found for name, most in each.items()}

    def _room_of(self, wanted: Wanted, targets: Sequence[SeenTarget]) -> dict[str, int]:
        """Room of targets that stand in for each other."""
        limits: dict[str, int] = {}
        for one in targets:
            found = [room for each in self.latest.values() if (room := each.room.get(one.workload.key)) is not None]
            if found:
                limits[one.name] = max(one.workload.replicas, min(found))
        grows = {
            one.name
            for one in targets
            if one.name in wanted.growing
            and one.workload.replicas < min(one.spec.max, limits.get(one.name, one.spec.max))
        }
        return {name: most for name, most in limits.items() if grows - {name}}

    def forget(self, moved: Callable[[Subject], bool]) -> None:
        """Forget what others may have changed: it is read from the cluster again, as after a change of the leader."""
        self._wanted = {key: each for key, each in self._wanted.items() if not moved(key)}
        self.latest = {name: each for name, each in self.latest.items() if not moved(name)}
        self._holdings.keep({one.metadata.name for one in self.membership.read() if not moved(one.metadata.name)})
        for target in [target for target in self.orders if moved(target)]:
            del self.orders[target]

    def settle(self, now: float, moved: Callable[[str], bool] = lambda _: False) -> None:
        """Share the budgets of which no pool was decided, and forget deleted objects: a tick ends.

        `moved`: another operator may write for the budget. A leader that cannot write for seconds forgets none.
        """
        budgets = {name for one in self.membership.read() if not moved(name := one.metadata.name)}
        self._wanted = {key: each for key, each in self._wanted.items() if key in self._cache.pools}
        self.latest = {name: each for name, each in self.latest.items() if name in budgets}
        self._holdings.keep(budgets)
        due, self._fresh = budgets - self._fresh, set()
        if due:
            self._shares(due, owners(self._cache.pools), now)
        self._fresh = set()

    def _shares(self, names: AbstractSet[str], owned: Owners, now: float) -> list[Shared]:
        """These budgets, shared as of now."""
        members, taken = self.membership.members(names, owned, now) if names else ({}, {})
        self._fresh |= names
        found = []
        for budget in self.membership.read():
            if (name := budget.metadata.name) not in names:
                continue
            own = tuple(members.get(name, ()))
            try:
                shared = self.latest[name] = self._share(budget, own, taken.get(name, {}), now)
            except Exception:  # a tick that does not end restarts the operator, again and again
                log.exception("Sharing GPUBudget %s failed, so its pools do not grow; all others continue.", name)
                shared = Shared(budget, tuple(replace(one, unknown="sharing them failed") for one in own))
                self.latest.setdefault(name, shared)
            found.append(shared)
        return found

    def admits(self, plan: PoolPlan, action: ScaleAction) -> bool:
        """Whether an order of a plan still fits, right before it is sent."""
        if not action.grows:
            return True
        budgets = {one.metadata.name: one for one in self.membership.read()}  # one may be lowered meanwhile
        for name, shared in self.latest.items():
            mine = next((one for one in shared.members if one.target == action.target.key), None)
            budget = budgets.get(name)
            if mine is None or budget is None:
                continue
            own = self._look(mine, budget, plan.at)
            if isinstance(own, Unknown):
                return False
            total = sum(shared.counts.values()) - shared.counts[mine.target] + own.gpus + shared.leaving
            more = max(0, action.replicas - own.ordered) * own.each
            # Pods that have no node keep no pool from its floor and its min.
            spared = shared.idle if action.replicas * own.each <= shared.grants[mine.claimed_as].firm else 0
            if total + more > budget.spec.gpus + spared:
                log.info("GPUBudget %s is used up meanwhile.", name, extra=plan.meta.log_fields)
                return False
            shared.counts[mine.target] = own.gpus + more  # until the order has `ended`
        return True

    def ended(self, action: ScaleAction, now: float) -> None:
        """An order has ended, or was not sent: replicas that it removed are seen before anything is requested again."""
        for shared in self.latest.values():
            for one in shared.members:
                if one.target == action.target.key:
                    seen = self._look(one, shared.budget, now)
                    shared.counts[one.target] = one.held.gpus if isinstance(seen, Unknown) else seen.gpus

    def _look(self, one: Member, budget: GPUBudget, now: float) -> Held | Unknown:
        return self._holdings.held(one.target, one.stated, budget, now)

    def _departed(self, name: str, members: Sequence[Member], now: float) -> frozenset[TargetKey]:
        """Targets whose pools have left this budget, and of which pods end."""
        before = self.latest.get(name)
        known = set() if before is None else before.departed | {one.target for one in before.members}
        left = known - {one.target for one in members}
        return frozenset(each for each in left if self._holdings.leaving(name, each, now))

    def _before(self, budget: GPUBudget, members: Sequence[Member], claims: Sequence[Claim]) -> Mapping[str, int]:
        """GPUs of each claim that were firm until now: its pool's; where a new leader does not know, as the status has.

        By pool, for that lasts: its targets may become others. A status that cannot be read leaves what stands, the
        oldest replicas first.
        """
        known = self.latest.get(budget.metadata.name)
        if known is None:
            status = self._cache.budgets[budget.metadata.name].get("status")
            stored = BudgetStatus.found(status).pools
            left = Counter({(one.namespace, one.name): one.firm or 0 for one in stored})
            oldest = sorted((at, one.key, one.held.each) for one in members for at in one.held.made)
            for _, key, gpus in oldest if status and not stored else ():
                left[key] += gpus if left.total() + gpus <= budget.spec.gpus else 0
        else:
            left = known.firm
        found: Counter[str] = Counter()
        # Each target's first replica first: a pair gets one of each role, which beside its firm GPUs would be others'.
        for replicas, (one, claim) in product((1, 10_000), zip(members, claims, strict=True)):
            most = claim.held if claim.fixed else min(claim.least, replicas) * claim.gpus
            more = min(left[one.key], most - found[claim.pool])
            found[claim.pool] += more
            left[one.key] -= more
        return found

    def _share(
        self, budget: GPUBudget, members: tuple[Member, ...], taken: Mapping[str, Sequence[str]], now: float
    ) -> Shared:
        name, gpus, lending = budget.metadata.name, budget.spec.gpus, budget.spec.lending
        departed = self._departed(name, members, now)
        leaving = sum(self._holdings.leaving(name, each, now) for each in departed)
        claims = claims_in(budget.spec, members, self._wanted, now)
        grants = share(gpus, claims, lending=lending, leaving=leaving, before=self._before(budget, members, claims))
        idle = idle_in(claims, {pool: grant.share for pool, grant in grants.items()})
        ghosts = tuple(pod for one in members for pod in self._holdings.not_ending(one.target, now))
        counts = {one.target: one.held.gpus for one in members}
        shared = Shared(budget, members, claims, grants, taken, departed, leaving, idle, ghosts, counts=counts)
        if all(len(one.names) == 1 for one in members):
            return shared  # nothing could be ordered instead
        return replace(shared, room=_room(shared, spare(gpus, claims, grants, lending=lending, leaving=leaving)))


def _room(shared: Shared, free: int) -> dict[TargetKey, int]:
    """Replicas of each target that could be ordered now, `free` GPUs being nobody's.

    What a pool's own targets give up counts: else it would order elsewhere while their pods end. What other pools give
    up does not: their pods may take long to end.
    """
    parts = [each for each in zip(shared.members, shared.claims, strict=True) if each[1].gpus > 0]
    leaving: Counter[Key] = Counter()
    for one, claim in parts:
        leaving[one.key] += max(0, claim.held - shared.grants[claim.pool].share * claim.gpus)
    found = {}
    closed = {one.key for one in shared.members if one.unknown is not None}
    for one, claim in parts:
        grant = shared.grants[claim.pool]
        if one.key in closed:
            found[one.target] = 0
            continue
        due = max(grant.most, min(grant.share, grant.most + leaving[one.key] // claim.gpus))
        found[one.target] = due + free // claim.gpus
    return found


def _allowance(shared: Shared, member: Member) -> Allowance:
    """Replicas that a budget lets one target request now."""
    name = shared.budget.metadata.name
    if member.unknown is not None:
        return Allowance(None, name, f"the GPUs of {member.claimed_as} are unknown ({member.unknown})", waits=True)
    grant = shared.grants[member.claimed_as]
    return Allowance(grant.most, name, grant.detail, waits=grant.share > grant.most)
