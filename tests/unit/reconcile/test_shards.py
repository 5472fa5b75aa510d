"""An operator that writes for its share of the pools: what it reads, writes and forgets, told on virtual time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from servingpool.adapters.cluster.objects import TargetKey
from servingpool.gpubudget.budgets import Budgets
from servingpool.gpubudget.members import Groups
from servingpool.loop.shards import SETTLES, Shards

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


def test_a_new_pool_is_decided_at_the_first_tick_that_sees_it() -> None:
    """Nobody can have written for it before."""
    world, member = shared(MINE, "chat/new")
    world.step(minutes=1)
    world.serve("new", rate=6.0)
    world.pool("new", target="new", created=world.now)
    world.step()
    assert member.joined
    assert "new" in pools_written(world)


def placed(world: FakeCluster) -> Groups:
    budgets: Budgets = world.budgets
    return budgets.membership.groups()


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
    pools = ("old", "young", "alone", "poor")
    assert {name: found.names["chat", name] for name in pools} == {
        "old": "chat/old",
        "young": "chat/young",
        "alone": "chat/alone",
        "poor": "h100",
    }
    assert found.names[TargetKey("chat", "a")] == "chat/old", "the oldest scales it"
    assert found.targets["chat", "old"] == (TargetKey("chat", "a"),)
    assert ("chat", "young") not in found.targets
    assert found.names["h100"] == found.names[TargetKey("chat", "c")] == "h100"


def test_the_groups_of_a_pool_that_changes_are_told_from_its_status() -> None:
    """Ten thousand statuses are written, and none of them is a reason to place all pools again."""
    world = FakeCluster()
    world.pool("mine", target="a")
    found = placed(world)
    world.store("mine", status={"why": "other"})
    assert placed(world) is found
    world.store("mine", labels={"team": "x"})
    assert placed(world) is not found


def test_an_invalid_budget_keeps_its_pools_together_whether_or_not_it_was_seen_valid() -> None:
    """As its selectors stand: two operators, of which one has seen it valid, agree."""
    valid: dict[str, Any] = {"gpus": 8, "poolSelector": {"matchLabels": {"team": "x"}}}
    wrong = valid | {"poolSelector": {"matchLabels": {"team": "y"}}, "gpus": -1}
    found = []
    for specs in ((valid, wrong), (wrong,)):
        world = FakeCluster()
        for name in "xy":
            world.pool(name, target=name)
            world.store(name, labels={"team": name})
        for generation, spec in enumerate(specs):
            budget(world, generation=generation, **spec)
            names = placed(world).names
        found.append(names)
    assert found[0] == found[1]
    assert (found[0]["chat", "x"], found[0]["chat", "y"]) == ("chat/x", "h100")


TEAMS = ("red", "blue", "green")


def selectors(chance: random.Random) -> dict[str, Any]:
    """Selectors of a budget on two labels, of the kinds that Kubernetes has."""

    def one(key: str) -> dict[str, Any]:
        operator = chance.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = {"values": chance.sample(TEAMS, chance.randint(1, 2))} if "In" in operator else {}
        return {"key": key, "operator": operator, **values}

    def selector(key: str) -> dict[str, Any]:
        labels = {"matchLabels": {key: chance.choice(TEAMS)}} if chance.random() < 0.6 else {}
        return labels | {"matchExpressions": [one(key) for _ in range(chance.randint(0, 1))]}

    return {"poolSelector": selector("team"), "namespaceSelector": selector("env") if chance.random() < 0.4 else {}}


@pytest.mark.parametrize("seed", range(20))
def test_a_label_moves_its_own_pool_alone_and_all_pools_of_a_budget_are_together(seed: int) -> None:
    chance, world = random.Random(seed), FakeCluster()
    world.cache.see_namespace({"metadata": {"name": "chat", "labels": {"env": chance.choice(TEAMS)}}}, gone=False)
    for number in range(8):
        world.pool(f"pool-{number}", target=f"target-{chance.randrange(6)}", created=float(number))
    for number in range(4):
        budget(world, 8, f"budget-{number}", created=float(number), **selectors(chance))
    for _ in range(20):
        before = placed(world).names
        moves = f"pool-{chance.randrange(8)}"
        world.store(moves, labels={"team": chance.choice(TEAMS)} if chance.random() < 0.8 else {})
        after = placed(world).names
        others = [f"pool-{number}" for number in range(8) if f"pool-{number}" != moves]
        assert all(before["chat", name] == after["chat", name] for name in others)
        for one in world.budgets.membership.read():
            name = one.metadata.name
            assert before[name] == after[name]
            for key, raw in world.cache.pools.items():
                if one in world.budgets.membership.candidates(key, raw):
                    assert after[key] == after[name]


def test_budgets_that_can_share_no_pool_are_apart() -> None:
    world = FakeCluster()
    for number, (team, env) in enumerate((("red", {}), ("blue", {}), ("blue", {"env": "prod"}), ("red", {"env": "x"}))):
        selects: dict[str, Any] = {
            "poolSelector": {"matchLabels": {"team": team}},
            "namespaceSelector": {"matchLabels": env},
        }
        budget(world, 8, f"budget-{number}", created=float(number), **selects)
    names = placed(world).names
    assert [names[f"budget-{number}"] for number in range(4)] == ["budget-0", "budget-1", "budget-1", "budget-0"]


class Placed:
    """A pool that is alone in its group, as one operator sees it."""

    def __init__(self, *owned: str) -> None:
        self.now, self.listed = 0.0, 0.0
        self.shards = Shards(Membership(*owned), "operator-0", lambda: self.now, lambda: self.listed)

    def owned(self, group: str, at: float, *, edition: int = 0, target: str = "") -> bool:
        """Whether it is ours when it is seen in this group, and scales a target that is in `target`."""
        self.now = at
        pool, workload = ("chat", "pool"), TargetKey("chat", "target")
        names: dict[Any, str] = ({pool: group} if group else {}) | ({workload: target} if target else {})
        found = Groups(names, {pool: (workload,)} if target == group else {}, edition)
        self.shards.look(lambda: found)
        return bool(group) and self.shards.owns(pool)


def test_a_pool_that_changes_its_group_has_no_operator_until_all_know() -> None:
    one = Placed("a", "b")
    assert not one.owned("a", 0.0), "seen for the first time"
    assert one.owned("a", SETTLES)
    assert one.owned("b", 20.0), "both groups are ours"
    assert one.owned("b", 40.0)
    assert not one.owned("c", 41.0), "it is another's now"
    assert not one.owned("b", 42.0), "and back: the other may have begun a write"
    assert not one.owned("b", 42.0 + SETTLES - 1.0)
    assert one.owned("b", 42.0 + SETTLES)
    assert one.shards.moved(("chat", "other"))


def test_a_pool_that_comes_is_ours_at_once_unless_others_may_place_it_elsewhere() -> None:
    one = Placed("a")
    one.owned("", 0.0)
    assert one.owned("a", 20.0)
    one.owned("", 21.0)
    one.owned("", 22.0, edition=1)
    assert not one.owned("a", 23.0, edition=1), "by budgets that changed a second ago"
    assert one.owned("a", 22.0 + SETTLES, edition=1)
    one = Placed("a")
    one.owned("", 0.0)
    one.listed = 20.0
    assert not one.owned("a", 20.0), "what a list shows may have changed before"
    assert one.owned("a", 20.0 + SETTLES)


def test_a_pool_that_was_deleted_and_made_anew_elsewhere_is_as_one_that_moved() -> None:
    one = Placed("a")
    one.owned("b", 0.0)
    one.owned("b", 30.0)
    one.owned("", 31.0)
    assert not one.owned("a", 32.0)
    assert one.owned("a", 31.0 + SETTLES)


def test_a_pool_that_takes_over_the_target_of_another_waits_for_the_others_writes() -> None:
    one = Placed("a")
    one.owned("a", 0.0, target="b")
    assert one.owned("a", 20.0, target="b"), "another scales it"
    assert not one.owned("a", 21.0, target="a")
    assert one.owned("a", 21.0 + SETTLES, target="a")


def test_groups_are_looked_at_again_before_a_write() -> None:
    """Also where the process was held up, so that no look came for seconds."""
    one, groups = Placed("a"), Groups({("chat", "pool"): "a"}, {}, 0)
    one.shards.look(lambda: groups)
    one.now = 20.0
    assert one.shards.owns(("chat", "pool"))
    groups = Groups({("chat", "pool"): "b"}, {}, 0)
    one.now = 21.0
    assert not one.shards.owns(("chat", "pool"))
