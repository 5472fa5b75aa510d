"""What the watches show, and what they leave out."""

from __future__ import annotations

from typing import Any

import kopf
import pytest

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import ClusterError
from servingpool.adapters.cluster.objects import Kind
from servingpool.adapters.cluster.relist import QUIET
from servingpool.handlers.watching import RECOUNT, Watches

POOLS = ("servingpool.dev", "v1alpha1", "servingpools")
HPAS = ("autoscaling", "v2", "horizontalpodautoscalers")


class World:
    """An API server that only counts, and the operator's side of its watches."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.counts: dict[Kind, int] = {}
        self.down = False
        self.cache = ClusterCache()
        self.watches = Watches(self.cache, lambda: self.now, self.count)
        self.registry = kopf.OperatorRegistry()
        self.watches.register(self.registry)

    async def count(self, kind: Kind) -> int:
        if self.down:
            raise ClusterError("the API server did not answer")
        return self.counts.get(kind, 0)

    async def show(self, kind: Kind, raw: dict[str, Any], type_: str | None = "ADDED") -> None:
        for handler in self.registry._watching.get_all_handlers():
            selector = handler.selector
            assert selector is not None
            if (selector.group, selector.version, selector.any_name) == kind:
                await handler.fn(event={"type": type_, "object": raw})  # type: ignore[call-arg]


def pool(name: str, uid: str = "") -> dict[str, Any]:
    return {"kind": "ServingPool", "metadata": {"namespace": "chat", "name": name, "uid": uid or f"uid-{name}"}}


def hpa(name: str) -> dict[str, Any]:
    meta = {"namespace": "chat", "name": name, "uid": f"uid-{name}"}
    return {"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": {"scaleTargetRef": {"name": "vllm"}}}


@pytest.fixture
def world() -> World:
    return World()


async def test_the_first_lists_are_whole_when_all_that_there_was_is_shown(world: World) -> None:
    world.counts = {POOLS: 2, HPAS: 1}
    await world.watches.expect()
    assert not world.watches.complete()
    await world.show(POOLS, pool("a"), None)
    await world.show(HPAS, hpa("h"), None)
    assert not world.watches.complete()
    await world.show(POOLS, pool("b"), None)
    assert world.watches.complete()


async def test_a_pool_deleted_behind_our_back_is_forgotten_after_the_next_list(world: World) -> None:
    await world.show(POOLS, pool("kept"), None)
    await world.show(POOLS, pool("deleted"), None)
    world.now += 3600
    world.counts = {POOLS: 1}
    await world.watches.sweep()
    assert len(world.cache.pools) == 2
    world.now += 60
    await world.show(POOLS, pool("kept"), None)
    await world.watches.sweep()
    assert len(world.cache.pools) == 2, "the list may still be coming in"
    world.now += QUIET
    await world.watches.sweep()
    assert list(world.cache.pools) == [("chat", "kept")]


async def test_the_last_hpa_of_all_is_forgotten_though_an_empty_list_shows_nothing(world: World) -> None:
    await world.show(HPAS, hpa("h"))
    world.counts = {HPAS: 1}
    world.now += RECOUNT
    await world.watches.sweep()
    assert world.cache.autoscalers(("chat", "vllm"))
    world.counts = {}
    world.now += RECOUNT
    await world.watches.sweep()
    assert not world.cache.autoscalers(("chat", "vllm"))


async def test_nothing_is_forgotten_while_the_api_server_cannot_count(world: World) -> None:
    await world.show(HPAS, hpa("h"))
    world.down = True
    world.now += RECOUNT
    await world.watches.sweep()
    assert world.cache.autoscalers(("chat", "vllm"))


async def test_the_end_of_an_object_told_after_its_successor_leaves_the_successor(world: World) -> None:
    # kopf handles objects side by side, and these are two of one name.
    await world.show(POOLS, pool("a", "old"))
    await world.show(POOLS, pool("a", "new"))
    await world.show(POOLS, pool("a", "old"), "DELETED")
    assert world.cache.pools["chat", "a"]["metadata"]["uid"] == "new"
    await world.show(POOLS, pool("a", "new"), "DELETED")
    assert not world.cache.pools
