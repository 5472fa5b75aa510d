"""Several operators share the pools: never two write for one, and none is without an operator for long."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from servingpool.adapters.cluster.shard_lease import TERMS, MemberLease, ShardView, winner

from .fake_shards import GROUPS, LATE, Api, Process, overlaps
from .virtual_time import event_loop_policy, now, run  # noqa: F401, a fixture

LONGEST_GAP = 35.0
"""Seconds for which a pool may be without an operator after its operator has died."""


async def until_shared(*members: Process, seconds: float = 60.0) -> None:
    """Wait until these own all groups."""
    end = now() + seconds
    while set().union(*(one.owned() for one in members)) != set(GROUPS):
        assert now() < end, {one.name: len(one.owned()) for one in members}
        await asyncio.sleep(0.1)


def started(api: Api, *names: str) -> list[Process]:
    members = [Process(api, name) for name in names]
    for one in members:
        one.start()
    return members


async def shared(*names: str) -> tuple[Api, list[Process]]:
    """Members that have started and have shared all groups."""
    members = started(api := Api(), *names)
    await until_shared(*members)
    return api, members


def test_only_the_share_of_a_member_that_goes_moves() -> None:
    groups = [f"chat/pool-{number}" for number in range(3000)]
    before = {group: winner(group, ("a", "b", "c")) for group in groups}
    after = {group: winner(group, ("a", "b")) for group in groups}
    assert all(after[group] == owner for group, owner in before.items() if owner != "c")
    counts = Counter(before.values())
    assert min(counts.values()) > 900, counts


def test_the_owner_of_a_group_is_the_same_in_every_release() -> None:
    """Members of two releases share while the operator is upgraded."""
    assert [winner(f"chat/pool-{number}", ("a", "b", "c")) for number in range(8)] == list("bcbbcaaa")


async def test_a_member_that_comes_takes_its_share_and_no_other_moves() -> None:
    api, (a, b) = await shared("a", "b")
    before = a.owned(), b.owned()
    (c,) = started(api, "c")
    await asyncio.sleep(20.0)
    assert c.owned()
    assert (a.owned(), b.owned()) == (before[0] - c.owned(), before[1] - c.owned())
    assert a.owned() | b.owned() | c.owned() == set(GROUPS)
    assert not overlaps(api)


def test_a_pool_that_was_given_away_comes_back_when_its_writes_have_ended_whatever_was_agreed_before() -> None:
    """B dies and starts again as C, which takes the pool and leaves, before all agree on a view without B."""
    taken = next(group for group in (f"chat/{n}" for n in range(1000)) if _is_taken(group))
    a, c = ShardView("a", TERMS), ShardView("c", TERMS)
    leases: dict[str, MemberLease] = {}
    owned: dict[int, bool] = {}
    for second in range(140):
        if second < 55 and second % 10 == 0:
            leases["b"] = MemberLease("b", f"b{second}", ("a", "b"), 1, TERMS.duration)
        _look(a, leases, second)
        if 60 <= second < 88:
            _look(c, leases, second)
        if second == 88:
            leases["c"] = replace(leases["c"], stamp="ends", left=True)
        assert not (a.owns(taken, second + 0.5) and 60 <= second < 88 and c.owns(taken, second + 0.5))
        owned[second] = a.owns(taken, second + 0.5)
    begun_last = 87.5
    back = min(second for second in range(88, 140) if owned[second])
    assert owned[50]
    assert begun_last + TERMS.write <= back <= 88 + TERMS.write + 2 * TERMS.retry


def _is_taken(group: str) -> bool:
    views = (("a", "b"), ("a", "b", "c"), ("a", "c"))
    return [winner(group, view) for view in views] == ["a", "c", "c"]


def _look(member: ShardView, leases: dict[str, MemberLease], now: float) -> None:
    """A list, the renewal where that is due, and a list after it."""
    member.saw(leases.values(), now)
    if member.due(now):
        leases[member.identity] = member.sends(f"{member.identity}{now}", now)
        member.saw(leases.values(), now)


async def test_renewals_are_no_changes_of_the_share() -> None:
    """At each change a tick runs: with ten members that would be one a second."""

    a, b = started(Api(), "a", "b")
    told: list[float] = []
    a.membership.changed = lambda: told.append(now())
    await until_shared(a, b)
    await asyncio.sleep(5.0)
    before = len(told)
    assert 0 < before < 10
    await asyncio.sleep(100.0)
    assert len(told) == before
    b.kill()
    await until_shared(a)
    taken = now()
    await asyncio.sleep(3.0)
    assert 0.0 <= told[-1] - taken <= 1.1, "once they are ours, a tick runs"


async def test_a_member_that_stops_is_not_waited_for() -> None:
    api, (a, b) = await shared("a", "b")
    await a.stop()
    stopped = now()
    await until_shared(b)
    assert now() - stopped < TERMS.write + 2 * TERMS.retry + 0.5, "a write may be under way, no more"
    assert not overlaps(api)


async def test_a_member_that_was_frozen_writes_nothing_when_it_wakes() -> None:
    api, (a, b) = await shared("a", "b")
    own = a.owned()
    a.freeze()
    await until_shared(b)
    a.thaw()
    assert not a.owned(), "by the clock alone, before it has asked anybody"
    await asyncio.sleep(20.0)
    assert a.owned() == own
    assert not overlaps(api)


async def test_a_member_whose_loop_hangs_loses_its_share_and_comes_back() -> None:
    """It lists the Leases as before, and its writes that hang may go on at any time."""

    api, (a, b) = await shared("a", "b")
    own = a.owned()
    a.membership.alive = lambda: False
    hung = now()
    await until_shared(b)
    assert now() - hung <= LONGEST_GAP
    assert not a.owned()
    a.membership.alive = lambda: True
    await asyncio.sleep(20.0)
    assert a.owned() == own
    assert not overlaps(api)


async def test_an_api_server_that_was_away_moves_nothing() -> None:
    _, members = await shared("a", "b", "c")
    own = [one.owned() for one in members]
    for one in members:
        one.lost = lambda: True
    await asyncio.sleep(120.0)
    assert not any(one.owned() for one in members)
    for one in members:
        one.lost = lambda: False
    await asyncio.sleep(4.0)
    assert [one.owned() for one in members] == own
    assert all(one.membership.holds(group) for one in members for group in one.owned()), "nobody took it"


async def test_an_heir_that_could_not_renew_for_a_while_gives_nothing_back_to_the_dead() -> None:
    a, b = started(Api(), "a", "b")
    await until_shared(a, b)
    b.kill()
    await until_shared(a)
    a.lost = lambda: True
    await asyncio.sleep(TERMS.duration)
    assert not a.owned()
    a.lost = lambda: False
    await asyncio.sleep(4.0)
    assert a.owned() == set(GROUPS)


async def test_a_lease_that_a_person_deletes_costs_nothing() -> None:
    api, (a, _) = await shared("a", "b")
    own = a.owned()
    (name,) = [name for name, raw in api.leases.items() if raw["spec"]["holderIdentity"] == "a"]
    del api.leases[name]
    for _ in range(600):
        await asyncio.sleep(0.1)
        assert a.owned() == own
    assert name in api.leases


async def test_leases_of_members_that_are_gone_are_deleted() -> None:
    api, members = await shared(*"abcd")
    members[1].kill()
    await members[2].stop()
    await asyncio.sleep(500.0)
    assert len(api.leases) == 4
    await asyncio.sleep(200.0)
    assert len(api.leases) == 2
    await until_shared(members[0], members[3], seconds=0.0)


class Faults:
    """Slow and lost answers, writes that are applied late, clocks 5% off, frozen and killed processes, joins, stops."""

    def __init__(self, seed: int) -> None:
        self.chance, self.api, self.members = random.Random(seed), Api(), list[Process]()

    def delay(self) -> float:
        return self.chance.choice([0.1, 1.0, 3.0, 6.0, LATE]) if self.chance.random() < 0.15 else 0.01

    def join(self) -> None:
        rate, lost = self.chance.choice([0.95, 1.0, 1.05]), self.chance.random() * 0.1
        name = f"m{len(self.members)}"
        one = Process(self.api, name, rate=rate, there=self.delay, back=self.delay)
        one.lost = lambda: self.chance.random() < lost
        self.members.append(one)
        self.members[-1].start()

    async def befall(self, one: Process) -> None:
        later = asyncio.get_running_loop().call_later
        match self.chance.choice(["kill", "stop", "freeze", "join", "cut off"]):
            case "kill":
                one.kill()
            case "stop":
                await one.stop()
            case "freeze":
                one.freeze()
                later(self.chance.uniform(5.0, 90.0), one.thaw)
            case "cut off":
                one.lost = lambda: True
                later(self.chance.uniform(5.0, 60.0), setattr, one, "lost", lambda: False)
            case "join":
                self.join()
        if sum(each.alive for each in self.members) < 2:
            self.join()


@pytest.mark.parametrize("seed", range(12))
async def test_never_two_members_write_for_one_group(seed: int) -> None:
    faults = Faults(seed)
    for _ in range(3):
        faults.join()
    while now() < 400.0:
        await asyncio.sleep(faults.chance.uniform(5.0, 40.0))
        await faults.befall(faults.chance.choice(faults.members))
    assert not overlaps(faults.api)
    assert len({member for _, _, member, _ in faults.api.written}) > 2, "groups moved"


@pytest.mark.parametrize("seed", range(6))
def test_no_group_is_without_a_member_for_long(seed: int) -> None:
    """From the death of its member on, where the API server answers the others within a second."""
    chance = random.Random(seed)

    async def story() -> None:
        api = Api()

        def begin(name: str) -> Process:
            one = Process(api, name, rate=chance.choice([0.95, 1.0]), there=delay, back=delay)
            one.start()
            return one

        members = [begin(name) for name in "abc"]
        await until_shared(*members)
        for number in range(6):
            died = members.pop(chance.randrange(len(members)))
            died.freeze() if number % 3 == 2 else died.kill()
            longest = await longest_gap(members, 45.0)
            assert longest <= LONGEST_GAP, longest
            members.append(begin(f"new-{number}"))
            assert await longest_gap(members, chance.uniform(15.0, 45.0)) <= LONGEST_GAP
        assert not overlaps(api)

    async def longest_gap(members: list[Process], seconds: float) -> float:
        since, longest, end = dict.fromkeys(GROUPS, now()), 0.0, now() + seconds
        while now() < end:
            owned = set().union(*(one.owned() for one in members))
            since |= dict.fromkeys(owned, now())
            longest = max(longest, now() - min(since.values()))
            await asyncio.sleep(0.5)
        return longest

    def delay() -> float:
        return chance.uniform(0.0, 0.5)

    run(story)
