"""What kopf delivers, put into the cache; and what it does not deliver, taken out."""

from __future__ import annotations

from typing import Any

import kopf
import pytest

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.relist import QUIET
from servingpool.api.group import GROUP, PLURAL, VERSION
from servingpool.handlers.lifecycle import settle
from servingpool.handlers.watching import Watches

POOLS = (GROUP, VERSION, PLURAL)


class Kopf:
    """Hands events to the handlers as they were registered."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cache = ClusterCache()
        self.watches = Watches(self.cache, lambda: self.now)
        registry = kopf.OperatorRegistry()
        self.watches.register(registry)
        self.handlers: dict[str, Any] = {
            str(handler.selector.any_name): handler.fn
            for handler in registry._watching.get_all_handlers()
            if handler.selector is not None
        }

    async def show(self, type_: str | None, *names: str, kind: str = PLURAL) -> None:
        for name in names:
            meta = {"namespace": "chat", "name": name, "uid": f"uid-{name}"}
            await self.handlers[kind](event={"type": type_, "object": {"kind": "ServingPool", "metadata": meta}})

    def pools(self) -> list[str]:
        return sorted(name for _, name in self.cache.pools)


def test_only_what_matters_is_watched() -> None:
    watched = {"servingpools", "deployments", "replicasets", "pods", "horizontalpodautoscalers", "scaledobjects"}
    assert Kopf().handlers.keys() == watched


async def test_objects_come_change_and_go() -> None:
    story = Kopf()
    await story.show(None, "a", "b")
    await story.show("ADDED", "c")
    await story.show("MODIFIED", "a")
    assert story.pools() == ["a", "b", "c"]
    await story.show("DELETED", "b")
    assert story.pools() == ["a", "c"]


async def test_the_first_lists_are_whole_when_all_that_there_was_is_shown() -> None:
    story = Kopf()
    story.watches.expected[POOLS] = 2
    assert not story.watches.complete()
    await story.show(None, "a")
    assert not story.watches.complete()
    story.now += 1.0
    await story.show(None, "b")
    assert story.watches.complete()
    assert story.watches.listed_at == story.now


async def test_what_was_deleted_while_no_watch_was_open_is_swept_out() -> None:
    story = Kopf()
    await story.show(None, "a", "b")
    story.now += QUIET
    story.watches.sweep()
    story.now += 600.0
    await story.show(None, "a")
    story.watches.sweep()
    assert story.pools() == ["a", "b"], "the list may still be coming in"
    story.now += QUIET
    story.watches.sweep()
    assert story.pools() == ["a"]


@pytest.mark.parametrize("scoped", [True, False])
def test_kopf_has_time_outs_and_writes_nothing(scoped: bool) -> None:
    settings = kopf.OperatorSettings()
    settle(settings, scoped=scoped)
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert (settings.networking.connect_timeout, settings.networking.request_timeout) == (10, 60)
    assert settings.watching.server_timeout == 600
    assert settings.scanning.disabled == scoped, "an operator of a few namespaces may not list them"
