"""How many statuses are written, and whose come first, where many pools change at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import Key
from servingpool.api.conditions import Reason, condition_of, updated
from servingpool.api.serving_pool import Metadata
from servingpool.api.status import Status, Throughput
from servingpool.reconcile.keep.state import PoolState
from servingpool.status.report import Reporter, headline
from servingpool.status.write_rate import WriteRate, rest_after

TICK = 15.0
ROOM = 10
"""Writes in a tick, here: so a few pools are many."""


def slow() -> WriteRate:
    return WriteRate(ROOM / TICK)


class Crowd:
    """Pools whose statuses change at random, told one after the other at each tick."""

    def __init__(self, random: Random, pools: int) -> None:
        self.random, self.now = random, 1_790_000_000.0
        self.reporter = Reporter(self, ClusterCache())
        self.reporter.rate = slow()
        self.metas = [Metadata(namespace="chat", name=f"{number}", uid=f"{number}") for number in range(pools)]
        self.latest = [self._said(Status(replicas=2), Reason.SUCCEEDED_GET_SCALE) for _ in self.metas]
        self.states = [PoolState.of_status(*each) for each in zip(self.metas, "m" * pools, self.latest, strict=True)]
        for state in self.states:
            state.written_at = self.now
        self.waits = dict.fromkeys(range(pools), 0)
        """Ticks that an urgent change of each pool has waited."""

    async def write_status(self, pool: Key, _: dict[str, Any]) -> None:
        self.writes.append(int(pool[1]))

    async def post_event(self, *_: Any, **__: Any) -> None:
        """Not of interest."""

    async def step(self, *, conditions: float = 0.0, scales: float = 0.0, figures: float = 0.0) -> tuple[int, int]:
        """A tick in which these shares of the pools change. How many were written for a scale, and for all else."""
        self.now += TICK
        self.writes: list[int] = []
        self.reporter.rate.begin(self.now, TICK, {meta.key for meta in self.metas}, of=len(self.metas))
        turns = self.random.sample(range(len(self.metas)), len(self.metas))
        ordered = {number for number in turns if self.random.random() < scales}
        for number in turns:
            self._change(number, conditions, figures, ordered)
            state, latest = self.states[number], self.latest[number]
            await self.reporter.tell(self.metas[number], state, latest, self.now, lambda: True)
            waits = headline(state.status) != headline(latest)
            self.waits[number] = self.waits[number] + 1 if waits else 0
        assert ordered <= set(self.writes), "a scale is told at once"
        return len(ordered), len(self.writes) - len(ordered)

    def _change(self, number: int, conditions: float, figures: float, ordered: set[int]) -> None:
        latest = self.latest[number]
        if self.random.random() < figures:
            tokens = Throughput(generation_tokens_per_second=self.random.choice([100.0, 1000.0]))
            latest = latest.model_copy(update={"throughput": tokens})
        if self.random.random() < conditions:
            latest = self._said(latest, self.random.choice([Reason.SUCCEEDED_GET_SCALE, Reason.WAITING_FOR_NODE]))
        if number in ordered:
            replicas, at = (latest.replicas or 0) + 1, datetime.fromtimestamp(self.now, UTC)
            latest = latest.model_copy(update={"replicas": replicas, "last_scale_time": at})
        self.latest[number] = latest

    def _said(self, status: Status, reason: Reason) -> Status:
        told = condition_of(reason, "", generation=1, at=self.now)
        return status.model_copy(update={"conditions": updated(status.conditions, [told])})


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_no_load_writes_more_than_the_limit_and_no_change_waits_for_ever(
    seed: int, pools: int, conditions: float
) -> None:
    asyncio.run(turmoil(Crowd(Random(seed), pools), conditions))


async def turmoil(crowd: Crowd, conditions: float) -> None:
    pools = len(crowd.metas)
    for _ in range(25):
        _, others = await crowd.step(conditions=conditions, scales=0.02, figures=0.5)
        assert others <= ROOM, "whatever happens"
        assert max(crowd.waits.values()) <= pools / ROOM + 1, "the oldest change comes first"
    for _ in range(4 + 2 * (pools // ROOM) + 2):
        await crowd.step()
    assert await crowd.step() == (0, 0), "all is written in the end"


def turn(rate: WriteRate, pools: list[Key], now: float) -> list[Key]:
    """The pools whose statuses were written."""
    written = [pool for pool in pools if rate.admits(pool, now)]
    for pool in written:
        rate.done(pool)
    return written


@pytest.mark.parametrize("every", [3, 4])
def test_a_backend_that_answers_last_and_rarely_is_served_as_the_others_are(every: int) -> None:
    """Whoever is first in a tick could take all its room: 200 pools that change again at each tick.

    A turn stays until the backend's round comes: else the room of the ticks between would be nobody's.
    """
    rate, quick, late = slow(), [("quick", f"{n}") for n in range(200)], [("late", f"{n}") for n in range(100)]
    unwritten = set(late)
    for tick in range(400):
        now = TICK * tick
        rate.begin(now, TICK, {*quick, *late}, of=300)
        turn(rate, quick, now)
        if tick % every == every - 1:
            unwritten -= set(turn(rate, sorted(unwritten), now))
        if not unwritten:
            break
    assert tick <= 2 * (len(quick) + len(late)) / ROOM


def test_a_pool_that_is_deleted_while_it_waits_gives_its_place_up() -> None:
    rate, gone, others = slow(), [("a", f"{n}") for n in range(100)], [("b", f"{n}") for n in range(10)]
    rate.begin(0.0, TICK, {*gone, *others}, of=110)
    turn(rate, gone, 0.0)
    written: list[Key] = []
    for tick in range(1, 8):
        rate.begin(TICK * tick, TICK, others, of=10)
        written += turn(rate, [each for each in others if each not in written], TICK * tick)
    assert sorted(written) == others


def test_ticks_that_follow_each_other_closely_share_one_room_and_a_quarter_of_the_pools_has_a_quarter_of_it() -> None:
    """After a tick that took long the next one comes early, on the grid."""
    rate, pools = WriteRate(), [("chat", f"{n}") for n in range(1000)]
    written = []
    for now, of in ((0.0, 1000), (20.0, 1000), (30.0, 1000), (45.0, 4000)):
        rate.begin(now, TICK, set(pools), of=of)
        written.append(len(turn(rate, pools, now)))
    assert written == [300, 300, 200, 75]


def test_pools_whose_writes_always_fail_hold_nobody_up() -> None:
    """A webhook refuses each status of one namespace."""
    rate, failing, well = slow(), [("refused", f"{n}") for n in range(100)], [("chat", f"{n}") for n in range(10)]
    written: list[Key] = []
    for tick in range(12):
        now = TICK * tick
        rate.begin(now, TICK, {*failing, *well}, of=110)
        tried = [pool for pool in failing if rate.admits(pool, now)]
        assert tick == 0 or len(tried) <= ROOM
        written += turn(rate, [pool for pool in well if pool not in written], now)
    assert sorted(written) == well


@pytest.mark.parametrize(("pools", "seconds"), [(0, 60.0), (240, 60.0), (1200, 300.0), (5000, 600.0)])
def test_the_more_pools_there_are_the_later_is_what_nobody_waits_for(pools: int, seconds: float) -> None:
    assert rest_after(pools) == seconds
