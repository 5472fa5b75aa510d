"""The watches.

`on.event` fills our own cache; nothing else of kopf is used. Its timers, daemons and indexes write to every object or
start in quadratic time. Pods and Deployments are watched the same way: one library, one set of time-outs.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import kopf
from kopf._cogs.structs.references import Insights, NamespaceName, Resource  # no public way ends or begins a watch

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, Forbidden
from servingpool.adapters.cluster.objects import Count, Kind, revision_of
from servingpool.api.group import BUDGET_PLURAL, GROUP, PLURAL, VERSION

log = logging.getLogger(__name__)

OURS: tuple[Kind, ...] = ((GROUP, VERSION, PLURAL), (GROUP, VERSION, BUDGET_PLURAL))
OF_OTHERS, SEEN = {"keda.sh"}, frozenset(("list", "watch"))
"""Groups without which pools are served: their definitions are not ours, nor Kubernetes' own. Then the verbs without
which kopf drops a kind as soon as a definition of any other group changes."""
DEFINED = {GROUP, *OF_OTHERS}
"""Groups whose kinds may come and go while the operator runs."""

RESTORED = "The API server was restored to an older state, so the watches miss changes. Restart the operator."

Scope = tuple[Kind, str | None]
"""Objects that a watch shows: a kind, in one namespace or (None) in all."""


class See(Protocol):
    """Puts an object into the cache."""

    def __call__(self, raw: Any, *, gone: bool) -> None:
        """The object as it is now; `gone`: it was deleted."""


class Inventory(Protocol):
    """Requests to the API server besides the watches."""

    async def count(self, kind: Kind, namespace: str | None) -> Count:
        """How many objects there are."""

    async def uids(self, kind: Kind, namespace: str | None) -> set[str]:
        """Uids of the objects that exist now."""

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server has this kind."""


class Watches:
    """Fills the cache, and removes objects whose deletion no watch reported.

    Each of `namespaces` has a watch of its own; if there are none, one watch covers the cluster. A namespace that may
    not be read, such as one that was deleted with its Role, is left out until it can be: kopf ends all watches if it
    fails to begin one.
    """

    def __init__(self, cache: ClusterCache, clock: Callable[[], float], namespaces: Collection[str] = ()) -> None:
        self._clock, self._namespaces, self._left_out = clock, namespaces, cache.left_out
        self._cluster: Inventory
        """Set by `expect`: handlers are registered before there is a connection."""
        self._see: dict[Kind, See] = {
            (GROUP, VERSION, PLURAL): cache.see_pool,
            ("apps", "v1", "deployments"): cache.see_workload,
            ("apps", "v1", "replicasets"): cache.see_replica_set,
            ("", "v1", "pods"): cache.see_pod,
            ("autoscaling", "v2", "horizontalpodautoscalers"): cache.see_autoscaler,
            ("keda.sh", "v1alpha1", "scaledobjects"): cache.see_autoscaler,
        }
        # Cluster-scoped: an operator of some namespaces may not read them, and cannot count all pools.
        if not namespaces:
            self._see[GROUP, VERSION, BUDGET_PLURAL] = cache.see_budget
            self._see["", "v1", "namespaces"] = cache.see_namespace
        self._shown: defaultdict[Scope, dict[str, tuple[str, str, str]]] = defaultdict(dict)
        """Kind, namespace and name of each object that was shown and not shown as deleted, by uid."""
        self._expected: dict[Scope, int] = {}
        """Objects that there were at the start."""
        self.insights = Insights()
        """kopf's, for it watches the namespaces that are in there."""
        self.left_out: dict[str, str] = {}
        """Namespaces that cannot be read now, and why."""
        self._revision = 0
        """The highest resourceVersion of pools that was seen: of one kind, for kinds may be stored apart."""
        self._restored = False
        """Whether the API server has gone back behind it."""
        self.listed_at = clock()
        """Time at which an object of a list was last shown, by `clock`."""

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Register a handler for each kind."""
        for kind, see in self._see.items():
            kopf.on.event(*kind, registry=registry)(self._handler(kind, see))

    async def expect(self, cluster: Inventory) -> None:
        """Ask how many objects there are before they are listed, for kopf does not tell where a list ends."""
        self._cluster = cluster
        if self._namespaces:
            log.warning("Only some namespaces are watched, so GPUBudgets are not read and limit no pool.")
        for namespace in self._namespaces or (None,):
            try:
                self._expected |= await self._counts(namespace)
            except Forbidden as error:
                if namespace is None or len(self.left_out) + 1 == len(self._namespaces):
                    raise  # there would be nothing to watch
                self._leave_out(namespace, error)

    async def _counts(self, namespace: str | None) -> dict[Scope, int]:
        return {(kind, namespace): await self._count(kind, namespace) for kind in self._see}

    async def _count(self, kind: Kind, namespace: str | None) -> int:
        """0 where a kind of others cannot be listed, such as one whose conversion webhook is away: pools are told."""
        seen, name = self._revision, (namespace or "", "all")  # what a watch shows meanwhile may be newer than the list
        try:
            found = await self._cluster.count(kind, namespace)
        except ClusterError as error:
            log.warning("%s cannot be listed, so changes of them may be missed: %s", kind[2], error)
            self._left_out.note(kind[2], name, str(error))
            if kind[0] not in OF_OTHERS or isinstance(error, Forbidden):
                raise
            return 0
        self._left_out.forget(kind[2], name)
        if kind == OURS[0]:
            if 0 < found.revision < seen and not self._restored:
                self._restored = True
                log.warning(RESTORED)
            self._revision = max(found.revision, self._revision)
        return found.objects

    @property
    def problem(self) -> str | None:
        """Why the operator should be restarted; None while it is well.

        An API server whose etcd was restored from a backup answers watches from a resourceVersion that it has not
        reached yet with nothing, for ten minutes at a time.
        """
        return RESTORED if self._restored else None

    def complete(self) -> bool:
        """Whether as many objects were shown as there were at the start."""
        return all(len(self._shown[scope]) >= count for scope, count in self._expected.items())

    async def forget_deleted(self) -> None:
        """Remove objects from the cache that no longer exist, though no watch reported it.

        After a partition of some minutes a watch cannot resume (410 Gone). kopf then lists the kind again, and does not
        report objects that are missing in the list.
        """
        for namespace in self._namespaces or (None,):
            try:
                if namespace in self.left_out:
                    await self._counts(namespace)
                    self._take_in(namespace)
                else:
                    await self._compare_all(namespace)
            except Forbidden as error:
                if namespace is not None and namespace not in self.left_out:
                    self._leave_out(namespace, error)
            except ClusterError:
                pass  # the next time
        if self.insights.ready_resources.is_set() and not self._namespaces:  # else a kind that goes ends kopf
            await self._watch_defined()
        elif self.insights.ready_namespaces.is_set() and self._namespaces:
            await self._watch({*self._namespaces} - self.left_out.keys())

    async def _watch_defined(self) -> None:
        """Watch kinds that the API server has and kopf does not watch.

        kopf looks for a kind when its definition changes, and only then. One that was made again may not be served yet
        when it looks, and a change while its watch of definitions is broken is none to it.
        """
        for kind in self._see:
            one, watched = Resource(*kind, namespaced=True, verbs=SEEN), self.insights.watched_resources
            with contextlib.suppress(ClusterError):  # the next time
                if kind[0] in DEFINED and one not in watched and await self._cluster.serves(kind):
                    log.info("%s are watched from now on.", kind[2])
                    async with self.insights.revised:
                        watched.add(one)
                        self.insights.revised.notify_all()

    def _leave_out(self, namespace: str, error: Forbidden) -> None:
        log.warning("Namespace %s is left out until it can be read; its pools are not scaled: %s", namespace, error)
        self.left_out[namespace] = str(error)
        for kind in self._see:
            self._expected.pop((kind, namespace), None)
            self._forget(kind, self._shown.pop((kind, namespace), {}))

    def _take_in(self, namespace: str) -> None:
        log.info("Namespace %s can be read again; its pools are scaled.", namespace)
        del self.left_out[namespace]

    async def _watch(self, namespaces: set[str]) -> None:
        named = {NamespaceName(name) for name in namespaces}
        async with self.insights.revised:
            if self.insights.namespaces != named:
                self.insights.namespaces.clear()
                self.insights.namespaces.update(named)
                self.insights.revised.notify_all()

    async def _compare_all(self, namespace: str | None) -> None:
        """Of all kinds. Forbidden where one may not be read in this namespace; other failures are left alone."""
        for kind in self._see:
            try:
                await self._compare(kind, namespace)
            except Forbidden:
                if namespace is not None:
                    raise
            except ClusterError:
                pass

    async def _compare(self, kind: Kind, namespace: str | None) -> None:
        # A uid is never reused: an object that was shown before the list and is missing in it is deleted. Objects that
        # are shown during the list are not checked against it.
        shown = self._shown[kind, namespace]
        before = set(shown)
        # New objects are shown at once, or in kopf's next list. So a cache with more objects than exist holds deleted
        # ones, and only then all are listed: listing tens of thousands of pods each minute would be expensive.
        if not before and namespace is None and kind != OURS[0] and kind[0] not in OF_OTHERS:
            return
        if await self._count(kind, namespace) >= len(before):
            return
        exist = await self._cluster.uids(kind, namespace)
        deleted = {uid: shown.pop(uid) for uid in before - exist if uid in shown}
        self._forget(kind, deleted)
        if deleted:
            log.info("Removed %d deleted %s from the cache; no watch had reported the deletion.", len(deleted), kind[2])

    def _forget(self, kind: Kind, objects: Mapping[str, tuple[str, str, str]]) -> None:
        for uid, (type_, where, name) in objects.items():
            self._see[kind]({"kind": type_, "metadata": {"namespace": where, "name": name, "uid": uid}}, gone=True)

    def _handler(self, kind: Kind, see: See) -> Any:
        async def handler(*, event: Any, **_: Any) -> None:
            raw, gone = event["object"], event["type"] == "DELETED"
            if event["type"] is None:
                self.listed_at = self._clock()
            meta = raw["metadata"]
            if kind == OURS[0]:
                self._revision = max(self._revision, revision_of(meta))
            namespace = meta.get("namespace", "")
            shown = self._shown[kind, namespace if self._namespaces else None]
            if gone:
                shown.pop(meta["uid"], None)
            else:
                shown[meta["uid"]] = (raw["kind"], namespace, meta["name"])
            see(raw, gone=gone)

        return handler
