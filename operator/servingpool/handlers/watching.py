"""The watches.

`on.event` into an own cache, and nothing else of kopf: timers, daemons and indexes write to every object or start
in quadratic time. Pods and Deployments come the same way, so that one library watches, with one set of time-outs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import kopf

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError
from servingpool.adapters.cluster.objects import Kind
from servingpool.adapters.cluster.relist import Relist
from servingpool.api.group import GROUP, PLURAL, VERSION

RECOUNT = 600.0
"""Seconds between two questions whether a kind of few objects has any left."""
FEW = 50


class See(Protocol):
    """A way into the cache."""

    def __call__(self, raw: Any, *, gone: bool) -> None:
        """Take in an object as it is now, or that it is gone."""


class Watches:
    """Puts what is shown into the cache, and knows what was not shown.

    `count` asks the API server how many objects of a kind there are. `scoped`: only some namespaces are watched, each
    by a watch of its own.
    """

    def __init__(
        self,
        cache: ClusterCache,
        clock: Callable[[], float],
        count: Callable[[Kind], Awaitable[int]],
        *,
        scoped: bool = False,
    ) -> None:
        self._clock, self._count = clock, count
        self._counted = clock()
        self._kinds: dict[Kind, tuple[See, Relist]] = {
            kind: (see, Relist(clock, by_namespace=scoped))
            for kind, see in (
                ((GROUP, VERSION, PLURAL), cache.see_pool),
                (("apps", "v1", "deployments"), cache.see_workload),
                (("apps", "v1", "replicasets"), cache.see_replica_set),
                (("", "v1", "pods"), cache.see_pod),
                (("autoscaling", "v2", "horizontalpodautoscalers"), cache.see_autoscaler),
                (("keda.sh", "v1alpha1", "scaledobjects"), cache.see_autoscaler),
            )
        }
        self.listed_at = clock()
        """When an object of a list was last shown, by `clock`."""
        self._expected: dict[Kind, int] = dict.fromkeys(self._kinds, 0)
        """Objects of each kind that there were at the start."""

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Register a handler for each kind."""
        for kind, (see, relist) in self._kinds.items():
            kopf.on.event(*kind, registry=registry)(self._handler(see, relist))

    async def expect(self) -> None:
        """Ask how many objects there are before they are listed, for kopf does not tell where a list ends."""
        for kind in self._kinds:
            self._expected[kind] = await self._count(kind)

    def complete(self) -> bool:
        """Whether as many objects of each kind were shown as there were at the start."""
        return all(len(relist) >= self._expected[kind] for kind, (_, relist) in self._kinds.items())

    async def sweep(self) -> None:
        """Take out of the cache what was deleted while no watch was open."""
        for see, relist in self._kinds.values():
            for raw in relist.missed():
                see(raw, gone=True)
        if self._clock() >= self._counted + RECOUNT:
            self._counted = self._clock()
            with contextlib.suppress(ClusterError):
                await self._recount()

    async def _recount(self) -> None:
        # A list that comes back empty shows nothing, so it never begins: the last HPA would own its target for ever.
        for kind, (see, relist) in self._kinds.items():
            asked = self._clock()
            if 0 < len(relist) <= FEW and await self._count(kind) == 0:
                for raw in relist.before(asked):
                    see(raw, gone=True)

    def _handler(self, see: See, relist: Relist) -> Any:
        async def handler(*, event: Any, **_: Any) -> None:
            listed, gone = event["type"] is None, event["type"] == "DELETED"
            if listed:
                self.listed_at = self._clock()
            relist.saw(event["object"], listed=listed, gone=gone)
            see(event["object"], gone=gone)

        return handler
