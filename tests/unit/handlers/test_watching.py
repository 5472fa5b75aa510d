"""What the watches show, and what they leave out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.references import NamespaceName

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError, Forbidden
from servingpool.adapters.cluster.objects import Count, Kind, TargetKey
from servingpool.handlers.watching import RESTORED, Watches

POOLS = ("servingpool.dev", "v1alpha1", "servingpools")
PODS = ("", "v1", "pods")
SCALED_OBJECTS = ("keda.sh", "v1alpha1", "scaledobjects")
HPAS = ("autoscaling", "v2", "horizontalpodautoscalers")
Raw = dict[str, Any]


class World:
    """An API server that counts and lists, and the operator's side of its watches."""

    def __init__(self, *, namespaces: Collection[str] = ()) -> None:
        self.now = 1000.0
        self.there: dict[Kind, list[Raw]] = {}
        self.lists: list[tuple[Kind, str | None]] = []
        """What was listed in full: kind, namespace."""
        self.refused: set[Kind] = set()
        self.revisions = 0
        """What a list of pools has as its resourceVersion."""
        self.served = {POOLS}
        """Kinds with definitions that the API server has."""
        self.forbidden: set[str] = set()
        """Namespaces in which nothing may be listed."""
        self.meanwhile: list[tuple[Raw, str]] = []
        """What a watch shows after the server has read a list and before the list arrives: object, type of event."""
        self.cache = ClusterCache()
        self.watches = Watches(self.cache, lambda: self.now, namespaces)
        self.registry = kopf.OperatorRegistry()
        self.watches.register(self.registry)

    async def start(self, *raws: Raw) -> None:
        """The operator starts, and kopf lists what there is."""
        for raw in raws:
            self.there.setdefault(kind_of(raw), []).append(raw)
        await self.watches.expect(self)
        for raw in raws:
            await self.show(raw, None)

    def delete(self, *raws: Raw) -> None:
        """While the watch is broken: nobody is told."""
        for raw in raws:
            self.there[kind_of(raw)].remove(raw)

    async def show(self, raw: Raw, type_: str | None = "ADDED") -> None:
        for handler in self.registry._watching.get_all_handlers():
            selector = handler.selector
            assert selector is not None
            if (selector.group, selector.version, selector.any_name) == kind_of(raw):
                await handler.fn(event={"type": type_, "object": raw})  # type: ignore[call-arg, misc, typeddict-item]

    async def count(self, kind: Kind, namespace: str | None) -> Count:
        found = Count(len(self._found(kind, namespace)), self.revisions)
        if kind == POOLS:
            for raw, type_ in self.meanwhile:
                await self.show(raw, type_)
        return found

    async def uids(self, kind: Kind, namespace: str | None) -> set[str]:
        self.lists.append((kind, namespace))
        found = self._found(kind, namespace)
        for raw, type_ in self.meanwhile:
            await self.show(raw, type_)
        return found

    async def serves(self, kind: Kind) -> bool:
        return kind in self.served

    def _found(self, kind: Kind, namespace: str | None) -> set[str]:
        if namespace in self.forbidden:
            raise Forbidden(f"Cannot list {kind[2]} in namespace {namespace}: 403 Forbidden")
        if kind in self.refused:
            raise ClusterError("the API server did not answer")
        metas = [raw["metadata"] for raw in self.there.get(kind, [])]
        return {meta["uid"] for meta in metas if namespace in (None, meta["namespace"])}

    @property
    def pools(self) -> list[str]:
        return sorted("/".join(key) for key in self.cache.pools)


def kind_of(raw: Raw) -> Kind:
    return {"ServingPool": POOLS, "Pod": PODS, "HorizontalPodAutoscaler": HPAS}[raw["kind"]]


def pool(name: str, namespace: str = "chat", uid: str = "") -> Raw:
    meta = {"namespace": namespace, "name": name, "uid": uid or f"uid-{namespace}-{name}"}
    return {"kind": "ServingPool", "metadata": meta}


def hpa(name: str) -> Raw:
    meta = {"namespace": "chat", "name": name, "uid": f"uid-{name}"}
    return {"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": {"scaleTargetRef": {"name": "vllm"}}}


def pod(name: str) -> Raw:
    owner = [{"kind": "ReplicaSet", "uid": "rs-1", "controller": True}]
    at = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": "Pod", "metadata": {"namespace": "chat", "name": name, "uid": name, "ownerReferences": owner, **at}}


async def test_the_first_lists_are_whole_when_all_that_there_was_is_shown() -> None:
    world = World(namespaces=["chat", "code"])
    raws = pool("a"), pool("b", "code"), hpa("h")
    world.there = {POOLS: [*raws[:2]], HPAS: [raws[2]]}
    await world.watches.expect(world)
    for raw in raws:
        assert not world.watches.complete()
        await world.show(raw, None)
    assert world.watches.complete()


@pytest.mark.parametrize("namespaces", [(), ("chat", "code")], ids=["cluster-wide", "two namespaces"])
@pytest.mark.parametrize(
    ("deleted", "left"),
    [(["chat/1"], 119), (["chat/1", "code/1"], 118), ("code", 60), ("chat", 60), ("", 0)],
    ids=["one", "one of each namespace", "all of a namespace", "all of the other namespace", "all"],
)
async def test_what_is_deleted_while_its_watch_is_broken_is_forgotten(
    namespaces: tuple[str, ...], deleted: list[str] | str, left: int
) -> None:
    """A list that comes back empty shows nothing: a namespace's last pools went on being scaled."""
    world = World(namespaces=namespaces)
    pools = {f"{where}/{name}": pool(str(name), where) for where in ("chat", "code") for name in range(60)}
    await world.start(*pools.values())
    gone = deleted if isinstance(deleted, list) else [key for key in pools if key.startswith(deleted)]
    world.delete(*(pools[key] for key in gone))
    await world.watches.forget_deleted()
    assert world.pools == sorted(pools.keys() - set(gone))
    assert len(world.pools) == left


async def test_nothing_is_listed_while_the_counts_agree() -> None:
    """Tens of thousands of pods, each minute."""
    world = World()
    await world.start(*(pod(f"p-{number}") for number in range(3)))
    world.there[PODS].append(pod("not shown yet"))
    await world.watches.forget_deleted()
    assert world.lists == []
    await world.show(pod("not shown yet"))
    world.delete(pod("p-0"))
    await world.show(pod("p-0"), "DELETED")
    await world.watches.forget_deleted()
    assert world.lists == []


async def test_only_the_namespace_in_which_something_was_deleted_is_listed() -> None:
    world = World(namespaces=["chat", "code"])
    await world.start(pool("a"), pool("b", "code"), hpa("h"))
    world.delete(pool("b", "code"))
    await world.watches.forget_deleted()
    assert world.lists == [(POOLS, "code")]
    await world.watches.forget_deleted()
    assert len(world.lists) == 1


async def test_objects_shown_during_a_list_are_not_removed_by_it() -> None:
    world = World()
    await world.start(pool("deleted"), pool("deleted and shown so"), pool("made anew", uid="old"))
    world.delete(pool("deleted"), pool("deleted and shown so"), pool("made anew", uid="old"))
    world.meanwhile = [
        (pool("deleted and shown so"), "DELETED"),
        (pool("made anew", uid="new"), "ADDED"),
        (pool("created"), "ADDED"),
    ]
    await world.watches.forget_deleted()
    assert world.pools == ["chat/created", "chat/made anew"]


async def test_nothing_is_forgotten_while_the_api_server_does_not_answer() -> None:
    world = World()
    await world.start(pool("a"), hpa("h"))
    world.delete(pool("a"), hpa("h"))
    world.refused = {POOLS}
    await world.watches.forget_deleted()
    assert world.pools == ["chat/a"]
    assert not world.cache.autoscalers(TargetKey("chat", "vllm")), "what is told of the others counts"
    world.refused = set()
    await world.watches.forget_deleted()
    assert world.pools == []


async def test_a_late_delete_event_does_not_remove_the_successor() -> None:
    # kopf handles objects side by side, and these are two of one name.
    world = World()
    await world.show(pool("a", uid="old"))
    await world.show(pool("a", uid="new"))
    await world.show(pool("a", uid="old"), "DELETED")
    assert world.cache.pools["chat", "a"]["metadata"]["uid"] == "new"
    await world.show(pool("a", uid="new"), "DELETED")
    assert not world.cache.pools


async def test_a_watched_namespace_that_is_deleted_is_left_out_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(namespaces=["chat", "code"])
    await world.start(pool("a"), pool("b", "code"))
    world.watches.insights.namespaces.update({NamespaceName("chat"), NamespaceName("code")})
    world.watches.insights.ready_namespaces.set()
    world.forbidden = {"code"}
    for _ in range(2):
        await world.watches.forget_deleted()
    assert world.pools == ["chat/a"]
    assert world.watches.insights.namespaces == {"chat"}
    assert world.watches.left_out.keys() == {"code"}
    [told] = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert "Namespace code" in told

    world.forbidden = set()
    await world.watches.forget_deleted()
    assert world.watches.insights.namespaces == {"chat", "code"}
    assert not world.watches.left_out


async def test_a_kind_of_others_that_cannot_be_listed_is_no_end_of_a_start() -> None:
    """KEDA's objects, while the webhook that converts them is away."""
    world = World()
    world.refused = {SCALED_OBJECTS}
    await world.start(pool("a"))
    assert world.watches.complete()
    assert world.cache.left_out.kinds() == {"scaledobjects": 1}
    await world.watches.forget_deleted()
    assert world.cache.left_out.kinds() == {"scaledobjects": 1}
    world.refused = set()
    await world.watches.forget_deleted()
    assert not world.cache.left_out.kinds()


async def test_a_start_without_one_of_its_namespaces_serves_the_others() -> None:
    world = World(namespaces=["chat", "code"])
    world.forbidden = {"code"}
    await world.start(pool("a"))
    assert world.watches.complete()
    assert world.watches.left_out.keys() == {"code"}


async def test_a_start_that_can_read_none_of_its_namespaces_ends() -> None:
    world = World(namespaces=["chat", "code"])
    world.forbidden = {"chat", "code"}
    with pytest.raises(Forbidden, match="in namespace code"):
        await world.start()


@pytest.mark.parametrize("kind", [POOLS, SCALED_OBJECTS])
async def test_a_kind_whose_definition_came_unseen_is_watched_within_a_minute(kind: Kind) -> None:
    world = World()
    await world.start()
    world.watches.insights.ready_resources.set()
    world.served = {kind}
    await world.watches.forget_deleted()
    assert [(*one, one.verbs) for one in world.watches.insights.watched_resources] == [(*kind, {"list", "watch"})]


async def test_an_api_server_that_was_restored_from_a_backup_fails_the_probe() -> None:
    """It answers a watch from where the operator was with nothing, until it is there again."""
    world = World()
    await world.start(pool("a"))
    world.revisions = 900
    await world.watches.forget_deleted()
    newer = pool("a")
    newer["metadata"]["resourceVersion"] = "1000"
    world.meanwhile = [(newer, "MODIFIED")]  # after the list
    await world.watches.forget_deleted()
    assert world.watches.problem is None
    world.meanwhile, world.revisions = [], 1000
    await world.watches.forget_deleted()
    assert world.watches.problem is None
    world.revisions = 999
    await world.watches.forget_deleted()
    assert world.watches.problem == RESTORED
    world.revisions = 2000
    await world.watches.forget_deleted()
    assert world.watches.problem == RESTORED, "what was changed in between was not shown"
