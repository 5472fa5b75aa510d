"""A cluster without an API server: it feeds the cache as the watches would, and counts what is written.

Writes come back as events, as a watch brings them: a status that was written is parsed again at the next tick.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import fleet
from fleet import Entry

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import NotFound
from servingpool.adapters.cluster.objects import Key, Workload

COLD_START = 60.0
"""Seconds from order to Ready."""
AGE = 7200.0
"""Seconds that the first pods have served."""


class FakeCluster:
    """What the operator watches and writes to; `reconcile.act.Writer`."""

    def __init__(
        self, cache: ClusterCache, every: Sequence[Entry], replicas: int, now: float, *, budgets: int = 0
    ) -> None:
        """`budgets`: so many GPUBudgets that the pools share, each a quarter larger than its fleet at first."""
        self._cache, self._every, self._now = cache, every, now
        self._entries = {(entry.namespace, entry.name): entry for entry in every}
        since = now - AGE
        self._pods: list[dict[int, float]] = [dict.fromkeys(range(replicas), since) for _ in every]
        """By pool: the time from which each pod is Ready, by its ordinal."""
        self._born = [replicas] * len(every)
        self._orders = [replicas] * len(every)
        self._pools = [fleet.stored(fleet.serving_pool(entry, replicas), "pool", entry.index, since) for entry in every]
        self._budgets = [
            fleet.stored(
                fleet.gpu_budget(number, math.ceil(1.25 * replicas * len(every) / budgets)), "budget", number, since
            )
            for number in range(budgets)
        ]
        if budgets:
            for entry, pool in zip(every, self._pools, strict=True):
                pool["metadata"]["labels"] = fleet.budget_labels(entry.index % budgets)
        self.writes = {"scale": 0, "cost": 0, "status": 0, "budget": 0, "event": 0}

    def list_all(self) -> None:
        """The first lists."""
        for budget in self._budgets:
            self._cache.see_budget(budget, gone=False)
        for entry, pool in zip(self._every, self._pools, strict=True):
            self._cache.see_pool(pool, gone=False)
            self._show_deployment(entry)
            self._cache.see_replica_set(fleet.replica_set(entry), gone=False)
            for ordinal, ready_at in self._pods[entry.index].items():
                self._show_pod(entry, ordinal, ready_at, ready=True)

    def advance(self, now: float) -> list[list[str]]:
        """Pods come up and go. The names of those that serve, by pool."""
        before, self._now = self._now, now
        for entry in self._every:
            pods = self._pods[entry.index]
            for ordinal, ready_at in pods.items():
                if before < ready_at <= now:
                    self._show_pod(entry, ordinal, ready_at, ready=True)
        return [
            [fleet.pod_name(entry, ordinal) for ordinal, at in self._pods[entry.index].items() if at <= now]
            for entry in self._every
        ]

    @property
    def pods(self) -> int:
        return sum(len(pods) for pods in self._pods)

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        raise NotFound(path)

    async def scale(self, target: Workload, replicas: int) -> None:
        await self.set_replicas(target.key[:2], target.replicas, replicas)

    async def set_replicas(self, target: Key, current: int, replicas: int) -> None:
        entry = self._entries[target]
        assert self._orders[entry.index] == current
        self._orders[entry.index] = replicas
        pods = self._pods[entry.index]
        while len(pods) < replicas:
            ordinal = self._born[entry.index]
            self._born[entry.index] += 1
            pods[ordinal] = self._now + COLD_START
            self._show_pod(entry, ordinal, pods[ordinal], ready=False)
        while len(pods) > replicas:
            ordinal, ready_at = pods.popitem()
            raw = fleet.pod(entry, ordinal, created_at=ready_at - COLD_START, ready_at=ready_at)
            self._cache.see_pod(raw, gone=True)
        self._show_deployment(entry)
        self.writes["scale"] += 1

    async def set_deletion_cost(self, pod: Key, uid: str, cost: int | None) -> None:  # noqa: ARG002
        self.writes["cost"] += 1

    async def write_status(self, pool: Key, changes: dict[str, Any]) -> None:
        index = self._entries[pool].index
        raw = copy.copy(self._pools[index])
        meta = raw["metadata"]
        raw["metadata"] = meta | {"resourceVersion": str(int(meta["resourceVersion"]) + 1)}
        raw["status"] = _merged(raw.get("status", {}), changes)
        self._pools[index] = raw
        self._cache.see_pool(raw, gone=False)
        self.writes["status"] += 1

    async def write_budget_status(self, name: str, changes: dict[str, Any]) -> None:
        index = int(name.removeprefix(fleet.BUDGET))
        raw = self._budgets[index] | {"status": _merged(self._budgets[index].get("status", {}), changes)}
        self._budgets[index] = raw
        self._cache.see_budget(raw, gone=False)
        self.writes["budget"] += 1

    async def post_event(self, pool: Key, uid: str, *, type_: str, reason: str, message: str) -> None:  # noqa: ARG002
        self.writes["event"] += 1

    def _show_deployment(self, entry: Entry) -> None:
        manifest = fleet.deployment(entry, self._orders[entry.index])
        self._cache.see_workload(fleet.stored(manifest, "deployment", entry.index, self._now), gone=False)

    def _show_pod(self, entry: Entry, ordinal: int, ready_at: float, *, ready: bool) -> None:
        raw = fleet.pod(entry, ordinal, created_at=ready_at - COLD_START, ready_at=ready_at if ready else None)
        self._cache.see_pod(raw, gone=False)


def _merged(held: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """RFC 7386."""
    merged = dict(held)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(held[key] if isinstance(held.get(key), dict) else {}, value)
        else:
            merged[key] = value
    return merged
