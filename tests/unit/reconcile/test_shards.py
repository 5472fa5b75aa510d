"""An operator that writes for its share of the pools: what it reads, writes and forgets, told on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster.objects import TargetKey
from servingpool.gpubudget import Budgets
from servingpool.reconcile.loop import Groups, Subject
from servingpool.reconcile.shards import SETTLES, Shards

from ..gpubudget.test_budgets import budget, held  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import FakeCluster, stamp
from .stories import amid_reading, upon

MINE, THEIRS = "chat/mine", "chat/theirs"


class Membership:
    """A membership that owns these groups."""

    def __init__(self, *groups: str) -> None:
        self.groups, self.leading, self.joined = set(groups), True, False

    def owns(self, group: str) -> bool:
        return self.leading and group in self.groups

    def holds(self, group: str) -> bool:
        return group in self.groups

    def join(self) -> None:
        self.joined = True


def shared(*groups: str) -> tuple[FakeCluster, Membership]:
    """Two pools on their own Deployments, each its own group; ours are these, and have settled."""
    world, member = FakeCluster(history=3600.0), Membership(*groups)
    world.share = Shards(member, "operator-0", lambda: world.now)
    world.restart()
    for name in ("mine", "theirs"):
        world.serve(name, rate=6.0)
        world.pool(name, target=name)
    world.remember(minutes=30)
    world.step()
    world.step()
    return world, member


def pools_written(world: FakeCluster) -> set[str]:
    statuses = {key[1] for key, _ in world.writes.statuses}
    events = {key[1] for key, _, _, _ in world.writes.events}
    return statuses | events | {key[1] for key, _, _ in world.writes.scales}


def test_only_our_pools_are_read_and_written() -> None:
    world, _ = shared(MINE)
    for service in world.services.values():
        service.rate = 30.0
    done = world.step(minutes=5)
    assert pools_written(world) == {"mine"}
    assert list(world.loop.states) == [("chat", "mine")]
    assert (done.pools, done.owned) == (2, 1)
    assert not any("theirs" in str(request.pods) for request in world.prometheus.requests)
    assert world.status("mine")["operator"] == "operator-0"


def test_nothing_is_written_before_a_pool_has_settled_in_its_group() -> None:
    world, member = FakeCluster(), Membership(MINE)
    world.share = Shards(member, "operator-0", lambda: world.now)
    world.restart()
    world.serve("mine")
    world.pool("mine", target="mine")
    world.step()
    assert member.joined, "our caches are full"
    assert world.writes.count() == 0
    world.step()
    assert pools_written(world) == {"mine"}


def test_a_pool_that_comes_is_decided_once_its_history_was_read() -> None:
    """In the same tick: it was without an operator for half a minute already."""
    world, member = shared(MINE)
    world.step(minutes=1)
    member.groups.add(THEIRS)
    world.services["theirs"].rate = 60.0
    world.prometheus.asked.clear()
    done = world.step()
    assert "history" in world.prometheus.asked
    assert done.decided == 2
    assert world.status("theirs")["operator"] == "operator-0"


def test_a_pool_that_moves_away_and_back_begins_as_after_a_restart() -> None:
    world, member = shared(MINE, THEIRS)
    world.step(minutes=2)
    before, ledger = world.state("theirs"), world.budgets.orders[TargetKey("chat", "theirs")]
    member.groups.remove(THEIRS)
    world.loop.forget_moved()
    assert ("chat", "theirs") not in world.loop.states
    world.set_replicas("theirs", 4, by="servingpool-operator")
    world.store("theirs", status={**world.status("theirs"), "operator": "operator-1"})
    member.groups.add(THEIRS)
    world.prometheus.asked.clear()
    world.step()
    assert "history" in world.prometheus.asked, "its windows were half read"
    assert world.state("theirs") is not before
    assert world.budgets.orders[TargetKey("chat", "theirs")] is not ledger
    assert world.status("theirs")["operator"] == "operator-0"


@pytest.mark.parametrize("moment", ["reading", "announcing"])
def test_a_pool_that_moves_away_amid_a_tick_is_not_written(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, member = shared(MINE, THEIRS)
    world.step(minutes=2)
    world.services["theirs"].rate = 60.0
    if moment == "reading":
        amid_reading(world, lambda: member.groups.discard(THEIRS))
    else:
        upon(world, "scale", lambda: member.groups.discard(THEIRS), monkeypatch)
    before = len(world.writes.statuses)
    world.step(minutes=3)
    scaled = [key[1] for key, *_ in world.writes.scales]
    assert scaled.count("theirs") == (moment == "announcing")
    assert "theirs" not in {key[1] for key, _ in world.writes.statuses[before:]}
    assert "SuccessfulRescale" not in world.writes.reasons("theirs")


def test_an_operator_that_cannot_renew_keeps_what_it_knows() -> None:
    """An API server that is away for a minute must not cost the history of all pools."""
    world, member = shared(MINE)
    state = world.state("mine")
    member.leading = False
    world.step(minutes=1)
    member.leading = True
    world.step()
    assert world.state("mine") is state


def test_a_budget_that_comes_is_not_overrun() -> None:
    """GPUs that another operator has ordered, and whose pods do not exist yet, count."""
    world, member = FakeCluster(), Membership()
    world.share = Shards(member, "operator-0", lambda: world.now)
    world.restart()
    for name in ("high", "low"):
        world.serve(name, rate=6.0)
        world.pool(name, target=name)
    budget(world, gpus=20)
    world.step(minutes=0.5)
    assert world.writes.count() == 0
    world.set_replicas("high", 3, by="servingpool-operator")
    member.groups.add("h100")
    for _ in range(40):
        world.services["low"].rate = 60.0
        world.step()
        assert held(world) <= 20
    assert world.cache.budgets["h100"]["status"]["held"] == held(world) == 20
    member.groups.clear()
    world.loop.forget_moved()
    assert not world.budgets.latest


def placed(world: FakeCluster) -> Groups:
    budgets: Budgets = world.budgets
    return budgets.groups()


def test_what_must_be_decided_together_is_one_group() -> None:
    world = FakeCluster()
    for name, created, target in (("old", 1.0, "a"), ("young", 2.0, "a"), ("alone", 3.0, "b"), ("poor", 4.0, "c")):
        world.pool(name, target=target, created=created)
    raw = world.cache.pools["chat", "poor"]
    world.cache.see_pool({**raw, "metadata": {**raw["metadata"], "labels": {"team": "x"}}}, gone=False)
    meta = {"name": "h100", "uid": "h100", "generation": 1, "creationTimestamp": stamp(5.0)}
    selects = {"poolSelector": {"matchLabels": {"team": "x"}}}
    world.cache.see_budget({"metadata": meta, "spec": {"gpus": 8, **selects}}, gone=False)
    found = placed(world)
    pools: dict[str, Subject] = {name: ("chat", name) for name in ("old", "young", "alone", "poor")}
    assert {name: found[key] for name, key in pools.items()} == {
        "old": "chat/old",
        "young": "chat/old",
        "alone": "chat/alone",
        "poor": "h100",
    }
    assert found[TargetKey("chat", "a")] == "chat/old"
    assert found["h100"] == found[TargetKey("chat", "c")] == "h100"


def test_a_pool_that_changes_its_group_has_no_operator_until_all_know() -> None:
    clock, member = [0.0], Membership("a", "b")
    shards = Shards(member, "operator-0", lambda: clock[0])
    pool: Any = ("chat", "pool")

    def owned(group: str, at: float) -> bool:
        clock[0] = at
        shards.look(lambda: {pool: group})
        return shards.owns(pool)

    assert not owned("a", 0.0), "seen for the first time"
    assert owned("a", SETTLES)
    assert owned("b", 20.0), "both groups are ours"
    assert owned("b", 40.0)
    assert not owned("c", 41.0), "it is another's now"
    assert not owned("b", 42.0), "and back: the other may have begun a write"
    assert not owned("b", 42.0 + SETTLES - 1.0)
    assert owned("b", 42.0 + SETTLES)
    assert shards.moved(("chat", "other"))
