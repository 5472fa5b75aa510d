"""The pools that share each budget: by selectors, each target once, in the oldest budget of the pool that scales it."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pydantic import ValidationError

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.kinds import group_of
from servingpool.adapters.cluster.objects import Key, Raw, TargetKey
from servingpool.api.gpu_budget import GPUBudget
from servingpool.api.mode import Mode
from servingpool.api.serving_pool import problems
from servingpool.api.spec import DEFAULT_PRIORITY, HIGHEST_PRIORITY
from servingpool.api.target import Target, names_of
from servingpool.decision.observation import Unknown
from servingpool.gpubudget.ledger import Held, Holdings
from servingpool.reconcile.collect import Owners, owns
from servingpool.reconcile.plan import named, raw_targets


@dataclass(frozen=True, slots=True)
class Member:
    """A target of a pool that shares a budget: two pools that name one target count once."""

    key: Key
    """Namespace and name of the pool."""
    target: TargetKey
    name: str
    """Name of the target in decisions."""
    names: frozenset[str]
    """Names of all targets of the pool in decisions."""
    priority: int
    stated: int | None
    """GPUs of a replica, as the pool says."""
    held: Held
    unknown: str | None = None
    """Why the target's GPUs are unknown: it is then assumed to hold as many as `held` says."""

    @property
    def claimed_as(self) -> str:
        """Name of the claim: the pool's name, with the target's where the pool has several."""
        return claimed_as(self.key, self.name, self.names)


def claimed_as(key: Key, name: str, names: Collection[str]) -> str:
    """Name of the claim of this target, of a pool with targets of these `names`."""
    return "/".join(key) + (f" ({name})" if len(names) > 1 else "")


class Membership:
    """The valid budgets, and the pools that they select."""

    def __init__(self, cache: ClusterCache, holdings: Holdings) -> None:
        self._cache, self._holdings = cache, holdings
        self._edition = -1
        self._budgets: tuple[GPUBudget, ...] = ()
        """Valid ones, the oldest first."""
        self.invalid: dict[str, str] = {}
        """Errors of the budgets that cannot be read, by name."""
        self.unusable: dict[str, GPUBudget] = {}
        """Names of invalid budgets that were never valid: without a spec, they limit no pool."""
        self._selected: dict[tuple[str, frozenset[tuple[str, str]]], tuple[GPUBudget, ...]] = {}
        """Budgets by namespace and labels of the pools that they select."""

    def read(self) -> tuple[GPUBudget, ...]:
        """The valid budgets, the oldest first."""
        if self._edition != self._cache.edition:
            self._edition, self._selected, self.invalid, self.unusable = self._cache.edition, {}, {}, {}
            held = {budget.metadata.name: budget for budget in self._budgets}
            found = [self._parsed(name, raw, held) for name, raw in self._cache.budgets.items()]
            self._budgets = tuple(
                sorted(
                    (one for one in found if one is not None),
                    key=lambda one: (one.metadata.creation_timestamp, one.metadata.name),
                )
            )
        return self._budgets

    def candidates(self, key: Key, raw: Raw) -> tuple[GPUBudget, ...]:
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

    def groups(self) -> dict[Key | TargetKey | str, str]:
        """What one operator must decide together, by the name of its group: pools, their targets, and budgets.

        Pools of one budget share its GPUs, and of pools that name one target the oldest owns it. A group has the name
        of its oldest budget, else of its oldest pool, so that it keeps its name when a pool or a budget joins it.
        """
        above: dict[Key | TargetKey | str, Key | TargetKey | str] = {}

        def top(one: Key | TargetKey | str) -> Key | TargetKey | str:
            while above.setdefault(one, one) != one:
                above[one] = one = above[above[one]]
            return one

        pools = self._cache.pools
        rank: dict[Key | TargetKey | str, tuple[int, int, str, str]] = {}
        for at, budget in enumerate(self.read()):
            rank[top(budget.metadata.name)] = (0, at, "", "")
        for key, raw in pools.items():
            rank[key] = (1, 0, str(raw["metadata"].get("creationTimestamp")), "/".join(key))
            own = top(key)
            for budget in self.candidates(key, raw):
                above[top(budget.metadata.name)] = own
            for target in named(key, raw):
                above[top(target)] = own
        first: dict[Key | TargetKey | str, Key | TargetKey | str] = {}
        for one, ranked in rank.items():
            group = top(one)
            if group not in first or ranked < rank[first[group]]:
                first[group] = one
        names = {group: one if isinstance(one, str) else "/".join(one) for group, one in first.items()}
        return {one: names[top(one)] for one in tuple(above)}

    def members(
        self, names: AbstractSet[str], owned: Owners, now: float
    ) -> tuple[dict[str, list[Member]], dict[str, dict[str, list[str]]]]:
        """The targets of each of these budgets, and the targets that it selects and that count in another budget.

        A target counts in the oldest budget that selects the pool that scales it; where none does, in that of another
        pool that names it.
        """
        pools = self._cache.pools
        called = {key: _called(key, raw) for key, raw in pools.items() if self.candidates(key, raw)}
        concerned = {
            target
            for key, targets in called.items()
            if any(one.metadata.name in names for one in self.candidates(key, pools[key]))
            for target in targets
        }
        members: defaultdict[str, list[Member]] = defaultdict(list)
        taken: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
        counted_in: dict[TargetKey, str] = {}
        # The owner of a target first: it is the one that orders. A pool in Recommend owns none.
        for key in sorted(called, key=lambda each: (not _orders(each, pools[each], owned), each)):
            raw, names = pools[key], frozenset(called[key].values())
            for target, name in called[key].items():
                if target not in concerned:
                    continue
                stated = _stated(raw, target)
                for budget in self.candidates(key, raw):
                    mine = counted_in.get(target)
                    if mine == budget.metadata.name:
                        continue
                    held = self._holdings.held(target, stated, budget, now)
                    if isinstance(held, Held) and held.gpus == 0 and held.each == 0:
                        continue
                    why = held.reason if isinstance(held, Unknown) else None
                    seen = held if isinstance(held, Held) else Held(0, 0, 0)
                    if mine is None:
                        counted_in[target] = budget.metadata.name
                        member = Member(key, target, name, names, _priority(raw), stated, seen, why)
                        members[budget.metadata.name].append(member)
                    else:
                        taken[budget.metadata.name].setdefault(mine, []).append(claimed_as(key, name, names))
        return {name: self._with_assumed(name, each, now) for name, each in members.items()}, taken

    def _with_assumed(self, name: str, members: list[Member], now: float) -> list[Member]:
        """The holdings with those of unknown GPUs: a replica of unknown size counts as the largest of the others."""
        largest = max((one.held.each for one in members), default=0) or 1
        [budget] = [one for one in self._budgets if one.metadata.name == name]
        return [
            one
            if one.unknown is None
            else replace(one, held=self._holdings.assumed(one.target, one.stated, largest, budget, now))
            for one in members
        ]

    def _parsed(self, name: str, raw: Raw, held: Mapping[str, GPUBudget]) -> GPUBudget | None:
        try:
            return GPUBudget.read(raw)
        except ValidationError as error:
            self.invalid[name] = problems(error)
            before = held.get(name)
            if before is not None and before.metadata.uid == raw["metadata"]["uid"]:
                return before
            self.unusable[name] = GPUBudget.read({**raw, "spec": {"gpus": 0}})
            return None


def named_versions(pools: Iterable[Raw]) -> dict[TargetKey, str]:
    """Targets that pools name, with their API group and version, also where the rest of a spec cannot be read.

    Budgets count what such pools hold, though nothing is decided for them.
    """
    found: dict[TargetKey, str] = {}
    for raw in pools:
        for each in raw_targets(raw):
            identity = {name: each[name] for name in ("apiVersion", "kind", "name") if name in each}
            with contextlib.suppress(ValidationError):
                target = Target.read({**identity, "max": 1})
                key = TargetKey(raw["metadata"]["namespace"], target.name, target.kind, group_of(target.api_version))
                found[key] = target.api_version
    return found


def _orders(key: Key, raw: Raw, owned: Owners) -> bool:
    return owns(key, owned) and raw["spec"].get("mode") != Mode.RECOMMEND


def _called(key: Key, raw: Raw) -> dict[TargetKey, str]:
    """Names in decisions of the targets that a pool names, even where the rest of its spec cannot be read."""
    targets = tuple(dict.fromkeys(named(key, raw)))
    names = names_of(targets)
    # Admission refuses the same kind and name in two groups, and each must be counted all the same.
    twice = {name for name, times in Counter(names).items() if times > 1}
    return {
        one: f"{one.kind}.{one.group}/{one.name}" if name in twice else name
        for one, name in zip(targets, names, strict=True)
    }


def _stated(raw: Raw, target: TargetKey) -> int | None:
    """GPUs of a replica as the pool says, even where the rest of its spec cannot be read."""
    for one in raw_targets(raw):
        if one.get("name") != target.name or one.get("kind", "Deployment") != target.kind:
            continue
        gpus = one.get("gpusPerReplica")
        if isinstance(gpus, int):
            return gpus
    return None


def _priority(raw: Raw) -> int:
    found = raw["spec"].get("priority", DEFAULT_PRIORITY)
    return found if isinstance(found, int) and 0 <= found <= HIGHEST_PRIORITY else 0
