"""A router that forgets where prefixes are cached whenever replicas change, and all that only looks like it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from servingpool.catalogue.notes import Note
from servingpool.decision.decide import Outcome
from servingpool.decision.learn.lost_caches import LostCaches
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool

from ..reconcile.kept import kept  # noqa: TID252, tests are no package of an installed name
from .world import POOL, World

SAID = "the router loses its prefix caches; use consistent hashing"
MANY = replace(POOL, max_replicas=40)
PROMPT, NEW, REFILL = 4000.0, 500.0, 75.0
"""Tokens of a session's prompt, those of them that are never cached, and seconds until 1/e of the rest is not yet."""
RATE = 3.0


@dataclass
class Routed(World):
    """Sessions behind a router, and a fleet that the story sets: of what is not cached the engines compute all."""

    pool: Pool = field(default_factory=lambda: MANY)
    replicas: int = 8
    obey: bool = False
    lost: set[str] = field(default_factory=set)
    forgets: float = 1.0
    """Share of the prefixes whose cache a change costs, times the replicas that came or went where it is `fair`."""
    fair: bool = False
    shows_hits: bool = False
    """The engines count all prompt tokens, and those cached apart."""
    missing: float = 0.0
    """Share of the prefixes that are not where the router looks for them."""
    hits: dict[str, float] = field(default_factory=dict)

    def set(self, replicas: int) -> None:
        """Change the number of Ready replicas at once."""
        was = len(self.engines)
        self.engines = self.engines[:replicas] + [self._engine(self.now) for _ in range(replicas - was)]
        moved = self.forgets * (abs(replicas - was) / max(replicas, was) if self.fair else 1.0)
        self.missing = self.missing + (1.0 - self.missing) * min(1.0, moved)

    def serve(self, minutes: float, rate: float = RATE, longer: float = 1.0) -> Outcome:
        for _ in range(int(4 * minutes)):
            fade = math.exp(-15.0 / REFILL)
            mean, self.missing = self.missing * (1.0 - fade) * REFILL / 15.0, self.missing * fade
            computed = longer * (NEW + mean * (PROMPT - NEW))
            for engine in self.engines:
                cached = (longer * PROMPT - computed) * rate * 15.0 / len(self.engines)
                self.hits[engine.name] = self.hits.get(engine.name, 0.0) + cached
            outcome = self.tick(rate, prompt=computed)
        return outcome

    def observation(self) -> Observation:
        seen = super().observation()
        if not self.shows_hits or isinstance(seen.metrics, Unknown):
            return seen
        pages = [
            replace(one, prompt_tokens=one.prompt_tokens + hits, cached_prompt_tokens=hits)
            for one in seen.metrics
            if not isinstance(one.prompt_tokens, Unknown)
            for hits in (self.hits.get(one.replica, 0.0),)
        ]
        return replace(seen, metrics=tuple(pages))


CHANGES = (9, 8, 9, 8, 10, 8)


def served(longer: float = 1.0, **given: Any) -> Routed:
    """After 20 minutes."""

    def begun() -> Routed:
        world = Routed(**given)
        world.serve(20, longer=longer)
        return world

    return kept(f"routed {longer} {given}", begun)


def course(world: Routed) -> Iterator[Outcome]:
    """What is decided ten minutes after each change."""
    for replicas in CHANGES:
        world.set(replicas)
        yield world.serve(10)


@pytest.mark.parametrize("shows_hits", [False, True])
def test_a_router_that_loses_its_caches_is_told_after_a_few_changes(shows_hits: bool) -> None:
    world = served(shows_hits=shows_hits)
    told = [SAID in one.decision.reason for one in course(world)]
    assert told == [False, False, True, True, True, True]  # neither one change proves it, nor one direction
    rise = world.memory.profile.lost_caches.rise
    assert rise is not None
    assert Note.CACHES_LOST.message(rise=rise) in world.serve(1).decision.reason
    assert 1.0 < rise < 6.0  # over the first 90 s; at once it is sevenfold


def test_it_is_no_longer_said_once_the_router_keeps_its_caches() -> None:
    world = served()
    assert SAID in list(course(world))[-1].decision.reason
    world.forgets = 0.0
    for replicas in (9, 8, 9):
        world.set(replicas)
        last = world.serve(10)
    assert SAID not in last.decision.reason


@pytest.mark.parametrize("shows_hits", [False, True])
def test_consistent_hashing_is_not_told_to_use_consistent_hashing(shows_hits: bool) -> None:
    """It loses the sessions of the replicas that came or went, and of those alone."""
    assert not any(SAID in one.decision.reason for one in course(served(fair=True, shows_hits=shows_hits)))
    small = served(fair=True, shows_hits=shows_hits, replicas=3)
    for replicas in (4, 3, 4, 3, 4, 3):
        small.set(replicas)
        assert SAID not in small.serve(10, rate=1.0).decision.reason


def test_load_alone_is_not_taken_for_lost_caches() -> None:
    world = served(forgets=0.0)
    for replicas, rate in ((12, 6.0), (8, 3.0), (16, 9.0), (6, 2.0), (12, 6.0), (8, 3.0)):
        world.serve(2, rate)
        world.set(replicas)
        assert SAID not in world.serve(10, rate).decision.reason


@pytest.mark.parametrize("lag", [0.25, 1.0, 2.0, 5.0])
def test_longer_prompts_that_replicas_follow_are_not_taken_for_lost_caches(lag: float) -> None:
    """Traffic of two kinds in turn. More replicas come `lag` minutes after the long ones, and go after the short."""
    world = served(forgets=0.0)
    for _ in range(5):
        world.serve(lag, longer=4.0)
        world.set(12)
        assert SAID not in world.serve(12, longer=4.0).decision.reason
        world.serve(lag)
        world.set(8)
        assert SAID not in world.serve(12).decision.reason


def test_prompts_that_grow_all_day_are_not_taken_for_lost_caches() -> None:
    world = served(forgets=0.0)
    longer = 1.0
    for replicas in (9, 8) * 6:
        world.set(replicas)
        for _ in range(5):
            longer *= 1.05
            assert SAID not in world.serve(2, longer=longer).decision.reason


def test_traffic_that_grows_heavier_right_after_each_of_more_replicas_proves_nothing() -> None:
    """As where a schedule brings them before the day's work comes."""
    world = served(0.2, forgets=0.0, replicas=20)
    for replicas, longer in ((21, 0.7), (22, 2.0), (23, 6.0), (24, 18.0)):
        world.set(replicas)
        assert SAID not in world.serve(10, longer=longer).decision.reason


def test_work_that_rises_as_often_without_a_change_is_not_taken_for_lost_caches() -> None:
    """Long prompts come for two minutes of ten; with every second of them a replica comes or goes."""
    world = served(forgets=0.0, replicas=20)
    for replicas in (21, 20) * 4:
        world.serve(2, longer=6.0)
        world.serve(8)
        world.set(replicas)
        assert SAID not in world.serve(2, longer=6.0).decision.reason
        world.serve(8)


@pytest.mark.parametrize("seed", range(4))
def test_prompts_of_any_length_are_not_taken_for_lost_caches(seed: int) -> None:
    """The mean of a tick is one time a tenth of the usual, and another time ten times as much."""
    draw, world = random.Random(seed), Routed(forgets=0.0)
    for at in range(600):
        if at % 20 == 0:
            world.set(8 + at // 20 % 2)
        assert SAID not in world.serve(0.25, longer=math.exp(draw.gauss(0.0, 1.0))).decision.reason


@pytest.mark.parametrize("seed", range(4))
def test_a_mix_that_changes_by_itself_is_not_taken_for_lost_caches(seed: int) -> None:
    """Kinds of traffic take turns, and so do replicas, each at times of its own."""
    draw, world = random.Random(seed), Routed(forgets=0.0)
    longer, replicas = 1.0, 8
    for _ in range(600):
        if draw.random() < 0.03:
            longer = draw.choice((0.5, 1.0, 3.0))
        if draw.random() < 0.05:
            replicas = draw.randint(6, 12)
            world.set(replicas)
        assert SAID not in world.serve(0.25, longer=longer).decision.reason


def test_a_rollout_is_not_taken_for_lost_caches() -> None:
    """New pods have empty caches under any routing; while they come, replicas are one more and one fewer."""
    world = served(forgets=0.0)
    for _ in range(4):
        world.rollout = True
        for replicas in (9, 8, 9, 8):
            world.set(replicas)
            world.missing = 1.0
            assert SAID not in world.serve(3).decision.reason
        world.rollout = False
        assert SAID not in world.serve(10).decision.reason


def test_where_hits_are_known_longer_prompts_are_none_of_the_caches_doing() -> None:
    """Even if prompts were longer after each change."""
    world = served(shows_hits=True, forgets=0.0)
    for replicas in CHANGES:
        world.set(replicas)
        for longer in (6.0, 4.0, 2.0, 1.0):
            assert SAID not in world.serve(2.5, longer=longer).decision.reason


def test_nothing_is_learned_over_a_hole_or_a_clock_that_is_set_back() -> None:
    world = served()
    for replicas in CHANGES:
        world.now += 600.0
        world.set(replicas)
        world.serve(10)
    assert world.memory.profile.lost_caches.rise is None
    world.now -= 3600.0
    world.set(9)
    world.serve(1)
    assert world.memory.profile.lost_caches.change is None


def test_a_decision_is_the_same_to_the_digit_whatever_is_learned_of_the_router() -> None:
    """It is said, and nothing is decided by it: what was tried with it did not help."""
    one, other = served(), served()
    for _, _ in zip(course(one), course(other), strict=True):
        profile = replace(other.memory.profile, lost_caches=LostCaches())
        other.memory = replace(other.memory, profile=profile)
        first, second = one.serve(1).decision, other.serve(1).decision
        assert replace(first, reason="") == replace(second, reason="")
