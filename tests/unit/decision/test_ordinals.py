"""A scale-down of a StatefulSet removes the highest ordinals, Ready or not: it is judged by what stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.allocate import Fleet, fewest, lowest, not_ready
from servingpool.decision.decision import Limited, Part
from servingpool.decision.learn.kinds import Shortage
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Observation, Replica
from servingpool.decision.params import DEFAULT
from servingpool.decision.pool import ONLY, Window

from .world import POOL, START, Engine, World

START_TAKES = 100.0
BUSY = 22.0
"""Requests/s for which three replicas are wanted."""


def standing(text: str) -> list[Replica]:
    """By ordinal: r for Ready, s for starting, d for one that has not been Ready for an hour."""
    made = {"r": (4000.0, 3900.0), "s": (50.0, None), "d": (3600.0, None)}
    return [Replica(f"s-{at}", *made[each], ordinal=at) for at, each in enumerate(text)]


@pytest.mark.parametrize(
    ("replicas", "wanted", "order"),
    [
        ("drrr", 3, 4),
        ("rrrd", 3, 3),
        ("drrs", 3, 4),  # the youngest is on its way in the place of the first
        ("srrr", 3, 4),  # a replica that was evicted loads again: those that serve stay as long
        ("rrss", 3, 3),
        ("rrrddd", 4, 4),
        ("drrr", 0, 0),
    ],
)
def test_as_many_serve_after_a_scale_down_as_are_wanted(replicas: str, wanted: int, order: int) -> None:
    assert fewest(lowest(reversed(standing(replicas))), wanted, START_TAKES) == order


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_of_any_fleet_a_kind_that_removes_the_highest_keeps_what_one_that_chooses_keeps(size: int) -> None:
    for marks in product("rsd", repeat=size):
        for wanted in range(size + 1):
            order = fewest(standing("".join(marks)), wanted, START_TAKES)
            assert wanted <= order <= size
            left, all_ = Counter(marks[:order]), Counter(marks)
            assert left["r"] >= min(wanted, all_["r"])
            assert left["r"] + left["s"] >= min(wanted, all_["r"] + all_["s"])


def test_those_that_are_not_ready_are_named() -> None:
    assert not_ready(standing("drr")) == "s-0 is"
    assert not_ready(standing("drd")) == "s-0, s-2 are"


@dataclass
class Numbered(World):
    """A StatefulSet: `dead` are its lowest ordinals, which are not Ready, and the highest go first."""

    dead: list[Engine] = field(default_factory=list)
    target: str = ONLY

    @property
    def requested(self) -> int:
        return len(self.dead) + super().requested

    def kill(self) -> None:
        self.dead.append(self.engines.pop(0))

    def revive(self) -> None:
        self.engines[:0] = [replace(each, ready_at=self.now) for each in self.dead]
        self.dead.clear()

    def observation(self) -> Observation:
        seen = super().observation()
        dead = [Replica(each.name, age=self.now - each.ready_at + self.cold_start) for each in self.dead]
        unready = self._numbered(dead, 0)
        ready = self._numbered(seen.ready, len(dead))
        starting = self._numbered(seen.starting, len(dead) + len(ready))
        return replace(seen, ready=ready, starting=unready + starting)

    def _numbered(self, replicas: Sequence[Replica], first: int) -> tuple[Replica, ...]:
        return tuple(replace(one, ordinal=first + at, target=self.target) for at, one in enumerate(replicas))


def test_a_fleet_whose_first_ordinal_is_dead_is_not_shrunk_into_those_that_serve() -> None:
    world = Numbered(replicas=3, pool=replace(POOL, min_replicas=3))
    world.run(BUSY, 90)
    assert world.requested == 4
    world.kill()
    outcomes = world.run(BUSY, 240)
    assert {outcome.decision.replicas for outcome in outcomes} == {4}
    assert len(world.engines) == 3, "none that serves was removed"
    limits = {limit.name: limit for limit in outcomes[-1].decision.limits}
    assert limits[LimitName.LOWEST_STAY].reason == (
        "scale-down limited to 4: of the 3 lowest ordinals, which stay, vllm-1 is not Ready"
    )
    assert "vllm-1 is not Ready" in outcomes[-1].decision.reason
    world.revive()
    world.run(BUSY, 60)
    assert world.requested == 3


def test_of_several_targets_one_that_removes_the_highest_keeps_as_many_that_serve() -> None:
    numbered, other = line("numbered", "drrr"), line("other", "")._replace(price=3.0)
    pool = replace(POOL, min_replicas=1, max_replicas=10)

    def orders(*lines: Part, most: int = 10) -> list[int]:
        fleet = Fleet(lines, replace(pool, max_replicas=most))
        return [part.replicas for part in fleet.split(Limited(3.0), move=False, trial=False)[0]]

    assert orders(numbered, other) == [4, 0]
    assert orders(numbered._replace(lowest=()), other) == [3, 0]
    assert orders(numbered, other, most=3) == [3, 0]


def line(target: str, replicas: str) -> Part:
    count = len(replicas)
    return Part(
        target, count, count, replicas.count("r"), 1.0, START_TAKES, delivered=count, lowest=tuple(standing(replicas))
    )


def test_starts_one_after_another_take_as_many_cold_starts() -> None:
    memory = Memory()
    together = memory.horizon(POOL)
    assert memory.horizon(replace(POOL, starts=4)) == 4 * together - 3 * memory.interval
    assert memory.horizon(replace(POOL, starts=400)) == 3600.0 + memory.interval
    assert memory.start(replace(POOL, starts=400)) == together


def test_replicas_that_start_one_after_another_are_ordered_so_much_before_a_window() -> None:
    window = Window("day", START + 300.0, START + 3600.0, 4, None, ahead=3.0)
    assert replace(POOL, windows=(window,)).bounds(START, 120.0).least.replicas == 4
    assert replace(POOL, windows=(replace(window, ahead=1.0),)).bounds(START, 120.0).least.replicas == 1


def test_those_that_have_no_pod_because_another_starts_are_missed_once_that_one_never_comes() -> None:
    shortage, refused = Shortage("sts"), []
    for at in range(0, 2400, 15):  # a replica of two days loads again, and then one more becomes Ready
        shortage = shortage.seen(5, 1 + (at >= 600), 1, START + at, in_turn=True)
        refused.append(shortage.refused(START + at, DEFAULT))
    assert not any(refused)
    for at in range(2400, 2550, 15):
        shortage = shortage.seen(5, 2, 1, START + at, in_turn=True)
    assert shortage.refused(START + 2550.0, DEFAULT)
    assert shortage.seen(5, 2, 0, START + 2550.0).uncreated_since is not None
