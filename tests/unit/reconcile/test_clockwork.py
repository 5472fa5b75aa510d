"""The loop on its clock, the election beside it, and what a liveness probe is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from servingpool.loop.metrics import LoopMetrics
from servingpool.loop.operator import DEAD_AFTER, LEAST_TENURE, Heartbeat, Operator
from servingpool.loop.reconciler import Tick

from ..adapters.cluster.virtual_time import event_loop_policy, now, run  # noqa: F401, TID252, a fixture; one clock for all areas

INTERVAL = 15.0
NEVER = 1e9


@dataclass
class Parts:
    """Stand-ins for what an Operator is made of. `takes` is how long each tick lasts."""

    takes: Callable[[int], float] = lambda _: 0.1
    ticks: list[float] = field(default_factory=list)
    saved: int = 0
    forgotten: int = 0
    looked: list[float] = field(default_factory=list)
    unreadable_groups: int = 0
    compared: list[float] = field(default_factory=list)
    """When the cache was compared with the cluster, each time for `compares` seconds; at first the answer is
    `unreadable` so many times."""
    compares: float = 0.0
    unreadable: int = 0
    shown: bool = True
    listed_at: float = 0.0
    lost: int = 0
    leading: bool = True
    released: int = 0
    silence: float = 0.0
    elects: Callable[[], Coroutine[Any, Any, None]] = lambda: asyncio.sleep(NEVER)

    def complete(self) -> bool:
        return self.shown

    async def forget_deleted(self) -> None:
        self.compared.append(now())
        await asyncio.sleep(self.compares)
        if self.unreadable:
            self.unreadable -= 1
            raise KeyError("items")

    async def tick(self, _: float) -> Tick:
        self.ticks.append(now())
        await asyncio.sleep(self.takes(len(self.ticks) - 1))
        return Tick(pools=3, queries=2)

    def look(self) -> None:
        self.looked.append(now())
        if self.unreadable_groups:
            self.unreadable_groups -= 1
            raise KeyError("metadata")

    def forget_moved(self) -> None:
        self.forgotten += 1

    async def stop(self) -> None:
        self.saved += 1

    async def run(self) -> None:
        await self.elects()

    async def release(self) -> None:
        self.released += 1

    def leave(self) -> None:
        self.lost += 1

    def operator(self, *, elected: bool = True) -> Operator:
        self.registry = CollectorRegistry()
        parts: Any = self
        return Operator(
            parts,
            parts,
            parts if elected else None,
            LoopMetrics(self.registry),
            Heartbeat(now),
            interval=INTERVAL,
            now=now,
            lost=self.leave,
        )


def lives(parts: Parts, seconds: float, *, elected: bool = True) -> Operator:
    """The operator, started, and stopped after so long."""

    async def story() -> Operator:
        operator = parts.operator(elected=elected)
        operator.start()
        await asyncio.sleep(seconds)
        await operator.stop()
        return operator

    return run(story)


def test_ticks_on_the_grid() -> None:
    parts = Parts(takes=lambda _: 3.0)
    lives(parts, 50.0)
    assert parts.ticks == pytest.approx([0.0, 15.0, 30.0, 45.0])
    assert parts.registry.get_sample_value("servingpool_prometheus_queries_total") == 8
    assert parts.registry.get_sample_value("servingpool_tick_lateness_seconds_sum") == pytest.approx(0.0)


async def test_a_share_that_changes_is_decided_at_once_and_the_grid_stays() -> None:
    parts = Parts()
    operator = parts.operator()
    operator.start()
    await asyncio.sleep(20.0)
    operator.share_changed()
    assert parts.forgotten == 1
    await asyncio.sleep(30.0)
    assert parts.ticks == pytest.approx([0.0, 15.0, 20.0, 30.0, 45.0])
    await operator.stop()


def test_groups_are_looked_at_every_second_whatever_a_tick_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts(takes=lambda _: 25.0, unreadable_groups=1)
    lives(parts, 20.5)
    assert parts.looked == pytest.approx([float(second) for second in range(26)]), "until the tick has ended"
    assert "The groups of the pools could not be read" in caplog.text


async def test_a_loop_that_hangs_gives_its_pools_to_others_before_it_is_restarted() -> None:
    parts = Parts(takes=lambda number: NEVER if number == 4 else 25.0)
    operator = parts.operator()
    operator.start()
    for _ in range(100):  # slow ticks are none that hang
        assert operator.alive
        await asyncio.sleep(1.0)
    await asyncio.sleep(max(DEAD_AFTER * INTERVAL, LEAST_TENURE) + 1.0)
    assert not operator.alive
    assert operator.problem is None
    await operator.stop()


def test_a_loop_whose_ticks_fail_is_restarted_with_its_lease() -> None:
    """A member that loses its share has nothing to do, so that its next tick does not fail: it would look well."""

    def failing(_: int) -> float:
        raise ZeroDivisionError

    async def story() -> None:
        operator = Parts(takes=failing).operator()
        operator.start()
        await asyncio.sleep(250.0)
        assert operator.alive
        assert operator.problem is not None
        await operator.stop()

    run(story)


def test_a_slow_tick_is_not_followed_by_a_burst_of_ticks() -> None:
    parts = Parts(takes=lambda number: 50.0 if number == 0 else 0.1)
    lives(parts, 100.0)
    assert parts.ticks[1] == pytest.approx(50.0)
    assert min(later - earlier for earlier, later in zip(parts.ticks[1:], parts.ticks[2:], strict=False)) > 5.0
    assert len(parts.ticks) <= 6


def test_an_api_server_that_counts_slowly_holds_up_no_tick() -> None:
    parts = Parts(compares=50.0)
    lives(parts, 200.0)
    assert parts.compared == pytest.approx([60.0, 170.0])
    assert parts.ticks == pytest.approx([15.0 * number for number in range(14)])


def test_a_failed_comparison_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts(unreadable=1)
    lives(parts, 130.0)
    assert len(parts.compared) == 2
    assert "Comparing the cache with the cluster failed" in caplog.text


def test_a_follower_checks_every_second_whether_it_leads() -> None:
    parts = Parts(leading=False, takes=lambda _: 0.0)
    lives(parts, 10.5)
    assert len(parts.ticks) == 11
    assert parts.registry.get_sample_value("servingpool_leader") == 0


def test_checks_of_a_follower_do_not_hide_the_lateness_of_a_leader() -> None:
    """Ten of them to each tick of the leader: summed over all, the 90th percentile was theirs."""
    for leading, ticks in ((False, 0), (True, 1)):
        parts = Parts(leading=leading, takes=lambda _: 0.0)
        lives(parts, 10.5)
        for name in ("lateness", "duration"):
            assert parts.registry.get_sample_value(f"servingpool_tick_{name}_seconds_count") == ticks


def test_a_failed_tick_is_followed_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    def failing(number: int) -> float:
        if number == 0:
            raise ZeroDivisionError
        return 0.1

    parts = Parts(takes=failing)
    lives(parts, 20.0)
    assert len(parts.ticks) == 2
    assert "The tick failed" in caplog.text


async def test_nothing_is_decided_before_the_watches_have_listed_all_objects() -> None:
    parts = Parts(shown=False)
    operator = parts.operator()
    operator.start()
    for _ in range(30):  # a list of many chunks
        await asyncio.sleep(2.0)
        parts.listed_at = now()
        assert parts.ticks == []
    parts.shown = True
    await asyncio.sleep(1.0)
    assert len(parts.ticks) == 1
    await operator.stop()


def test_an_incomplete_list_is_not_awaited_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts(shown=False)
    lives(parts, 30.0)
    assert parts.ticks
    assert 9.0 <= parts.ticks[0] <= 12.0
    assert "The watches did not show all objects in time" in caplog.text


async def test_stopping_ends_the_tick_keeps_what_was_learned_and_gives_the_lease_back() -> None:
    finished = []

    async def tick(_: float) -> Tick:
        await asyncio.sleep(3.0)
        finished.append(now())
        return Tick()

    parts = Parts()
    parts.tick = tick  # type: ignore[method-assign]
    operator = parts.operator()
    operator.start()
    await asyncio.sleep(1.0)
    await operator.stop()
    assert finished == [3.0]
    assert (parts.saved, parts.released) == (1, 1)


def test_stopping_takes_no_longer_than_a_pod_is_given() -> None:
    async def story() -> float:
        parts = Parts(takes=lambda _: NEVER)

        async def hanging() -> None:
            await asyncio.sleep(NEVER)

        parts.stop = hanging  # type: ignore[method-assign]
        operator = parts.operator()
        operator.start()
        await asyncio.sleep(1.0)
        began = now()
        await operator.stop()
        assert parts.released == 1
        return now() - began

    assert run(story) < 20.0


@pytest.mark.parametrize("how", ["another leads", "a defect"])
def test_an_operator_whose_election_ended_exits(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def ends() -> None:
        await asyncio.sleep(5.0)
        if how == "a defect":
            raise KeyError("spec")

    parts = Parts(elects=ends)
    lives(parts, 10.0)
    assert parts.lost == 1, "else it would follow for ever, and look well doing so"
    assert ("Traceback" in caplog.text) == (how == "a defect")


def test_without_an_election_it_leads() -> None:
    parts = Parts()
    lives(parts, 10.0, elected=False)
    assert (parts.released, parts.lost) == (0, 0)
    assert parts.registry.get_sample_value("servingpool_leader") == 1


@pytest.mark.parametrize(("hangs", "said"), [(False, None), (True, "No tick for ")])
def test_liveness_means_that_the_loop_ticks(hangs: bool, said: str | None) -> None:
    async def story() -> str | None:
        parts = Parts(takes=lambda number: NEVER if hangs and number == 2 else 0.1)
        operator = parts.operator()
        operator.start()
        await asyncio.sleep(300.0)
        found = operator.problem
        await operator.stop()
        return found

    found = run(story)
    assert found is None if said is None else said in str(found)


async def test_a_tick_that_waits_for_a_slow_prometheus_is_no_reason_to_restart() -> None:
    parts = Parts(takes=lambda _: 100.0)
    operator = parts.operator()
    operator.start()
    for _ in range(60):
        await asyncio.sleep(10.0)
        assert operator.problem is None
    await operator.stop()


async def test_a_lease_that_cannot_be_read_for_long_is_a_reason_to_restart() -> None:
    parts = Parts()
    operator = parts.operator()
    operator.start()
    await asyncio.sleep(1.0)
    parts.silence = 299.0
    assert operator.problem is None
    parts.silence = 301.0
    assert "The lease could not be read for 301 s" in str(operator.problem)
    await operator.stop()
