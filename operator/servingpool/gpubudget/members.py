"""The pools that share each budget: by selectors, each target once, in the oldest budget of the pool that scales it."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pydantic import ValidationError

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.devices import NOT_READ
from servingpool.adapters.cluster.kinds import group_of
from servingpool.adapters.cluster.objects import Key, Raw, TargetKey
from servingpool.api.gpu_budget import BudgetSpec, GPUBudget
from servingpool.api.mode import Mode
from servingpool.api.serving_pool import problems
from servingpool.api.spec import DEFAULT_PRIORITY, HIGHEST_PRIORITY
from servingpool.api.target import Target, names_of
from servingpool.decision.observation import Unknown
from servingpool.gpubudget.ledger import Held, Holdings
from servingpool.reconcile.collect.targets import Owners, owns
from servingpool.reconcile.plan.preconditions import named, owners, raw_targets

log = logging.getLogger(__name__)

SELECTORS = ("poolSelector", "namespaceSelector")


Subject = Key | TargetKey | str
"""A pool or a pod by namespace and name, a target of pools, or a GPUBudget by name."""


@dataclass(frozen=True, slots=True)
class Groups:
    """What one operator must decide together, by the objects as they stand: nothing that was seen before matters."""

    names: Mapping[Subject, str]
    """Name of the group of each pool, of each target that pools name, and of each budget."""
    targets: Mapping[Subject, tuple[TargetKey, ...]]
    """Targets that each pool scales."""
    edition: int
    """It differs where budgets or namespaces do, by which the group of any pool may differ."""


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
        self._groups: tuple[tuple[int, int], Groups] = (-1, -1), Groups({}, {}, -1)
        """By the editions of the cache from which they are."""
        self._links: tuple[object, tuple[dict[str, BudgetSpec], dict[str, str]]] = None, ({}, {})
        """By the budgets from which they are: of hundreds each pair is compared."""

    def read(self) -> tuple[GPUBudget, ...]:
        """The valid budgets, the oldest first."""
        if self._edition != self._cache.edition:
            self._edition, self._selected, self.invalid, self.unusable = self._cache.edition, {}, {}, {}
            held = {budget.metadata.name: budget for budget in self._budgets}
            found = [one for name, raw in self._cache.budgets.items() if (one := self._parsed(name, raw, held))]
            self._budgets = tuple(sorted(found, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name)))
        return self._budgets

    def candidates(self, key: Key, raw: Raw) -> tuple[GPUBudget, ...]:
        """Budgets that select a pool by its labels and its namespace's, the oldest first."""
        budgets, labels = self.read(), raw["metadata"].get("labels") or {}
        at = key[0], frozenset(labels.items())
        if at not in self._selected:
            around = dict(self._cache.namespaces.get(key[0], {}))
            self._selected[at] = tuple(one for one in budgets if _admits(one.spec, labels, around))
        return self._selected[at]

    def groups(self) -> Groups:
        """What one operator must decide together; the same object until something of it changes.

        Budgets that could select one pool are one group, by their selectors alone, and it has the name of the oldest.
        So whoever sets a pool's labels moves that pool alone. A pool in no budget is a group of its own.
        A target is of the pool that scales it. Two pools that name one target may be in two groups: only one scales it.
        """
        editions = self._cache.edition, self._cache.pools_edition
        if self._groups[0] == editions:
            return self._groups[1]
        selecting, joined = self._linked()
        names: dict[Subject, str] = {name: joined.get(name, name) for name in self._cache.budgets}
        found: dict[tuple[str, frozenset[tuple[str, str]]], str | None] = {}
        for key, raw in self._cache.pools.items():
            labels = raw["metadata"].get("labels") or {}
            at = key[0], frozenset(labels.items())
            if at not in found:
                around = dict(self._cache.namespaces.get(key[0], {}))
                admitting = (joined[name] for name, one in selecting.items() if _admits(one, labels, around))
                found[at] = next(admitting, None)
            names[key] = found[at] or "/".join(key)
        # Of two pools of which the older is in Recommend, the younger scales: the later entry.
        scaled = {target: pool for own in owners(self._cache.pools).values() for target, pool in own.items()}
        targets: defaultdict[Subject, tuple[TargetKey, ...]] = defaultdict(tuple)
        for target, pool in scaled.items():
            names[target] = names[pool]
            targets[pool] += (target,)
        self._groups = editions, Groups(names, dict(targets), editions[0])
        return self._groups[1]

    def _linked(self) -> tuple[dict[str, BudgetSpec], dict[str, str]]:
        """Selectors of the budgets, and the oldest of those to which each is linked."""
        budgets = self._cache.budgets
        versions = {name: (raw["metadata"]["uid"], raw["metadata"].get("generation")) for name, raw in budgets.items()}
        if self._links[0] != versions:
            selecting = _selecting(budgets)
            self._links = versions, (selecting, _joined(selecting))
        return self._links[1]

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
                    try:
                        held = self._holdings.held(target, stated, budget, now)
                    except Exception as defect:  # others go on
                        log.exception("GPUs of %s could not be counted.", "/".join(key))
                        held = Unknown(f"counting them failed, {type(defect).__name__}")
                    if isinstance(held, Held) and held.gpus == 0 and held.each == 0:
                        continue
                    # Of several targets, the others stand in for one that does not deliver.
                    why = held.reason if isinstance(held, Unknown) else held.refused if len(names) == 1 else None
                    seen = held if isinstance(held, Held) else Held(0, 0, 0)
                    if mine is None:
                        counted_in[target] = budget.metadata.name
                        member = Member(key, target, name, names, _priority(raw), stated, seen, why)
                        members[budget.metadata.name].append(member)
                    else:
                        taken[budget.metadata.name].setdefault(mine, []).append(claimed_as(key, name, names))
        return {name: self._with_assumed(name, each, now) for name, each in members.items()}, taken

    def _with_assumed(self, name: str, members: list[Member], now: float) -> list[Member]:
        """The holdings with those of unknown GPUs: a replica of unknown size counts as the largest of the others.

        What its pool says counts as far as that, for it could be any number, and until a template was first read.
        """
        largest = max(one.held.each for one in members)
        [budget] = [one for one in self._budgets if one.metadata.name == name]
        for at, one in enumerate(members):
            if one.unknown is not None and not one.held.each:
                stated = one.stated or largest or 1
                each = stated if NOT_READ.reason in one.unknown else min(stated, largest or stated)
                members[at] = replace(one, held=self._holdings.assumed(one.target, each, budget, now))
        return members

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


def _admits(spec: BudgetSpec, labels: dict[str, str], around: dict[str, str]) -> bool:
    """Whether a budget selects a pool by its labels and its namespace's."""
    return spec.pool_selector.admits(labels) and spec.namespace_selector.admits(around)


def _selecting(budgets: Mapping[str, Raw]) -> dict[str, BudgetSpec]:
    """The selectors of each budget, the oldest first, also where the rest of its spec cannot be read.

    A budget of which the selectors cannot be read selects nothing here.
    """
    found = {}
    for name in sorted(budgets, key=lambda name: (str(budgets[name]["metadata"].get("creationTimestamp")), name)):
        spec = budgets[name].get("spec")
        stated = {part: spec[part] for part in SELECTORS if part in spec} if isinstance(spec, dict) else {}
        with contextlib.suppress(ValidationError):
            found[name] = BudgetSpec.read({"gpus": 0, **stated})
    return found


def _joined(selecting: Mapping[str, BudgetSpec]) -> dict[str, str]:
    """For each budget the oldest of those to which it is linked, through pairs that could select one pool."""
    ages = {name: age for age, name in enumerate(selecting)}
    found: dict[str, str] = {}
    for name, spec in selecting.items():
        linked = {found[other] for other in found if _meet(spec, selecting[other])} | {name}
        first = min(linked, key=ages.__getitem__)
        found = {other: first if each in linked else each for other, each in (found | {name: name}).items()}
    return found


def _meet(one: BudgetSpec, other: BudgetSpec) -> bool:
    apart = one.pool_selector.excludes(other.pool_selector)
    return not (apart or one.namespace_selector.excludes(other.namespace_selector))


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
