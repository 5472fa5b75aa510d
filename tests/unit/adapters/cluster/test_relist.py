"""A list after a gap tells what there is; what it does not tell of is gone."""

from __future__ import annotations

from typing import Any

from servingpool.adapters.cluster.relist import QUIET, Relist


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def pod(name: str, uid: str | None = None) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"namespace": "chat", "name": name, "uid": uid or f"uid-{name}"}}


def listed(relist: Relist, *names: str) -> None:
    for name in names:
        relist.saw(pod(name), listed=True, gone=False)


def names(relist: Relist) -> list[str]:
    return [raw["metadata"]["name"] for raw in relist.missed()]


def test_what_a_later_list_does_not_tell_of_is_gone_and_told_once() -> None:
    clock = Clock()
    relist = Relist(clock)
    listed(relist, "a", "b", "c")
    clock.now += 600.0
    assert names(relist) == []
    listed(relist, "a", "c")
    clock.now += QUIET
    assert relist.missed() == [{"kind": "Pod", "metadata": {"namespace": "chat", "name": "b", "uid": "uid-b"}}]
    assert names(relist) == []
    assert len(relist) == 2


def test_a_list_that_is_still_coming_in_takes_nothing_away() -> None:
    clock = Clock()
    relist = Relist(clock)
    listed(relist, "a", "b", "c")
    clock.now += 600.0
    listed(relist, "a")
    for name in ("b", "c"):
        clock.now += QUIET - 1.0
        assert names(relist) == []
        listed(relist, name)
    clock.now += QUIET
    assert names(relist) == []


def test_what_a_watch_has_shown_since_the_list_began_is_there() -> None:
    clock = Clock()
    relist = Relist(clock)
    listed(relist, "a", "b")
    clock.now += 600.0
    listed(relist, "a")
    relist.saw(pod("b"), listed=False, gone=False)
    clock.now += QUIET
    assert names(relist) == []


def test_what_never_changes_is_not_gone_while_no_list_came() -> None:
    clock = Clock()
    relist = Relist(clock)
    listed(relist, "a")
    clock.now += QUIET
    assert names(relist) == []
    clock.now += 86_400.0
    relist.saw(pod("b"), listed=False, gone=False)
    assert names(relist) == []
    assert len(relist) == 2


def test_what_a_watch_told_gone_is_not_told_again() -> None:
    clock = Clock()
    relist = Relist(clock)
    listed(relist, "a", "b")
    relist.saw(pod("b"), listed=False, gone=True)
    clock.now += 600.0
    listed(relist, "a")
    clock.now += QUIET
    assert names(relist) == []


def test_of_one_made_again_under_its_name_the_old_one_is_gone() -> None:
    clock = Clock()
    relist = Relist(clock)
    listed(relist, "a")
    clock.now += 600.0
    assert names(relist) == []
    relist.saw(pod("a", uid="uid-new"), listed=True, gone=False)
    clock.now += QUIET
    assert [raw["metadata"]["uid"] for raw in relist.missed()] == ["uid-a"]
    assert len(relist) == 1


def test_a_list_of_one_namespace_tells_nothing_of_the_others() -> None:
    def named(namespace: str, name: str) -> dict[str, Any]:
        raw = pod(name)
        return {**raw, "metadata": {**raw["metadata"], "namespace": namespace}}

    clock = Clock()
    relist = Relist(clock, by_namespace=True)
    for raw in (named("chat", "a"), named("chat", "b"), named("code", "c")):
        relist.saw(raw, listed=True, gone=False)
    clock.now += 600.0
    assert relist.missed() == []
    relist.saw(named("chat", "a"), listed=True, gone=False)
    clock.now += QUIET
    assert names(relist) == ["b"]
    assert len(relist) == 2
