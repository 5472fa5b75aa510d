"""Members that share groups of pools on an API server of a few lines, on virtual time: slow, lossy, frozen, killed."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound
from servingpool.adapters.cluster.shard_lease import ShardMembership, ShardTerms, ShardView

from .virtual_time import now

T = TypeVar("T")
NAMESPACE, RELEASE = "servingpool-system", "servingpool-operator"
GROUPS = tuple(f"team-{number % 7}/pool-{number}" for number in range(24))
LATE = 10.0
"""Seconds after which the API server applies a write at the latest."""


@dataclass
class Api:
    """The API server's part: Leases with their resourceVersions, and when each group was written by whom."""

    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 0
    written: list[tuple[float, float, str, str]] = field(default_factory=list)
    """Begun, applied, member and group of each write."""

    def store(self, name: str, lease: dict[str, Any], version: str | None) -> dict[str, Any]:
        held = self.leases.get(name)
        if version is not None and held is None:
            raise NotFound(name)
        if version != (None if held is None else held["metadata"]["resourceVersion"]):
            raise Conflict("it was changed")
        self.version += 1
        stored = copy.deepcopy(lease)
        stored["metadata"] |= {"name": name, "resourceVersion": str(self.version)}
        self.leases[name] = stored
        return copy.deepcopy(stored)

    def delete(self, name: str, version: str) -> None:
        if name in self.leases and self.leases[name]["metadata"]["resourceVersion"] != version:
            raise Conflict("it was changed")
        self.leases.pop(name, None)


class Process:
    """One operator: its way to the API server, its clock, and what it writes.

    `there` and `back` are seconds that a request takes until it is applied, and its answer after that; an answer may be
    lost. A request is applied though its sender gave up on it, was frozen or died.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        rate: float = 1.0,
        there: Callable[[], float] = lambda: 0.01,
        back: Callable[[], float] = lambda: 0.01,
        lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self.api, self.name, self.rate = api, name, rate
        self.there, self.back, self.lost = there, back, lost
        self.membership = ShardMembership(self, NAMESPACE, RELEASE, name, clock=lambda: now() * rate)
        self.membership.join()
        self.gained: dict[str, float] = {}
        """Since when each group is ours without a break, as far as anybody has looked."""
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._late: set[asyncio.Task[Any]] = set()

    def start(self, *, writes: bool = True) -> None:
        self._tasks = [asyncio.create_task(self.membership.run())]
        if writes:
            self._tasks.append(asyncio.create_task(self._write()))

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def stop(self) -> None:
        """As SIGTERM does."""
        self.kill()
        await asyncio.sleep(0)
        await self.membership.release()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    @property
    def alive(self) -> bool:
        return bool(self._tasks) and self._thawed.is_set()

    def owned(self) -> set[str]:
        return {group for group in GROUPS if self.membership.owns(group)} if self.alive else set()

    async def _write(self) -> None:
        """For each group that is ours, once a second: right before each write it is asked whether it still is."""
        while True:
            for group in GROUPS:
                if self._thawed.is_set() and self.membership.owns(group):
                    self._later(self._apply(now(), group))
            await asyncio.sleep(1.0)

    async def _apply(self, begun: float, group: str) -> None:
        await asyncio.sleep(self.there())
        self.api.written.append((begun, now(), self.name, group))

    def _later(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        return task

    async def _ask(self, work: Callable[[], T]) -> T:
        async def carried() -> T:
            await asyncio.sleep(self.there())
            return work()

        await self._thawed.wait()
        answer = await asyncio.shield(self._later(carried()))
        await asyncio.sleep(self.back())
        await self._thawed.wait()
        if self.lost():
            raise ClusterError("the API server did not answer")
        return answer

    async def list_leases(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        assert (namespace, selector) == (NAMESPACE, f"servingpool.dev/shards-of={RELEASE}")
        return await self._ask(lambda: copy.deepcopy(list(self.api.leases.values())))

    async def create_lease(
        self, lease: tuple[str, str], spec: dict[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> dict[str, Any]:
        body = {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}, "spec": dict(spec)}
        return await self._ask(lambda: self.api.store(lease[1], body, None))

    async def replace_lease(self, lease: tuple[str, str], held: dict[str, Any]) -> dict[str, Any]:
        body = copy.deepcopy(held)
        return await self._ask(lambda: self.api.store(lease[1], body, body["metadata"]["resourceVersion"]))

    async def delete_lease(self, lease: tuple[str, str], version: str) -> None:
        await self._ask(lambda: self.api.delete(lease[1], version))


def overlaps(api: Api) -> list[tuple[str, str, str, float, float]]:
    """Writes for one group by two members that may have met: the one begun before the other was applied."""
    found = []
    last: dict[str, tuple[float, float, str]] = {}
    for begun, applied, member, group in sorted(api.written):
        before = last.get(group)
        if before is not None and before[2] != member and begun < before[1]:
            found.append((group, before[2], member, begun, before[1]))
        if before is None or member != before[2] or applied > before[1]:
            last[group] = (begun, max(applied, before[1]) if before and before[2] == member else applied, member)
    return found


__all__ = ["GROUPS", "LATE", "Api", "Process", "ShardTerms", "ShardView", "overlaps"]
