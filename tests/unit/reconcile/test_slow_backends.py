"""Several Prometheus servers of which one is slow: the pools of the others are decided as if it did not exist."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from servingpool.adapters.cluster.objects import Workload
from servingpool.adapters.prometheus.samples import PodSamples
from servingpool.decision.observation import Unknown
from servingpool.loop import reconciler
from servingpool.loop.backfill import BACKENDS_AT_ONCE, Backfill, PendingPool
from servingpool.reconcile.plan.pool_plan import PoolPlan

from ..adapters.cluster.virtual_time import now, run  # noqa: TID252, one clock for all areas
from .fake_cluster import TICK, FakeCluster, Prometheus

TIMEOUT = 10.0
FOR_EVER = 1e9
LATE = f"Prometheus backend 'slow' did not answer within {TIMEOUT:g} s"


def world(*, history: float = 0.0) -> FakeCluster:
    """Pools `sound` and `slow`, each on a Prometheus of that name."""
    world = FakeCluster(history=history)
    for name in ("slow", "sound"):
        world.backend(name)
        world.serve(name, model=name, rate=6.0)
        world.pool(name, target=name, model=name, metrics={"backend": name})
    world.restart()
    return world


def decided(
    world: FakeCluster, ticks: int, at: Mapping[int, Callable[[], None]] | None = None
) -> dict[str, list[float]]:
    """When each pool was decided, in seconds since the first tick; ticks begin every 15 s, or when the last one ends.

    `at` is what happens ahead of a tick, by its number.
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    last: dict[str, PoolPlan | None] = {}

    async def look() -> None:
        while True:
            for (_, pool), state in world.loop.states.items():
                if state.plan is not None and state.plan is not last.get(pool):
                    found[pool].append(now())
                    last[pool] = state.plan
            await asyncio.sleep(0.5)

    async def story() -> None:
        looking = asyncio.create_task(look())
        due = 0.0
        for number in range(ticks):
            world.serve_on()
            (at or {}).get(number, lambda: None)()
            await world.loop.tick(world.now)
            due = max(due + TICK, now())
            await asyncio.sleep(due - now())
        looking.cancel()
        await world.loop.stop()
        assert asyncio.all_tasks() <= {asyncio.current_task(), looking}, "nothing is left behind"

    run(story)
    return found


def test_a_prometheus_that_hangs_does_not_delay_pools_of_others() -> None:
    """Every pool was decided when the last Prometheus had answered: 10 s late at every tick."""
    here = world()
    here.backends["slow"].takes, here.backends["slow"].silent = TIMEOUT, LATE
    times = decided(here, 4)
    assert times["sound"] == pytest.approx([0.0, 15.0, 30.0, 45.0], abs=0.5)
    assert times["slow"] == pytest.approx([10.0, 25.0, 40.0, 55.0], abs=0.5)
    assert here.condition("MetricsAvailable", "sound")[0] == "True"
    assert here.message("MetricsAvailable", "slow") == f"{LATE}. Replicas stay as they are."


def test_a_prometheus_that_takes_longer_than_a_tick_has_a_pace_of_its_own() -> None:
    here = world()
    here.backends["slow"].takes = 20.0
    times = decided(here, 7)
    assert times["sound"] == pytest.approx([15.0 * tick for tick in range(7)], abs=0.5)
    assert times["slow"] == pytest.approx([20.0, 50.0, 80.0], abs=0.5)
    assert here.backends["slow"].asked.count("read") == 4, "never twice at once"


def test_a_reading_that_never_ends_stops_neither_the_loop_nor_the_operator() -> None:
    here = world()
    here.backends["slow"].takes = FOR_EVER
    times = decided(here, 4)
    assert times["sound"] == pytest.approx([0.0, 15.0, 30.0, 45.0], abs=0.5)
    assert here.backends["slow"].asked.count("read") == 1, "and none piles up behind it"


@pytest.mark.parametrize("defect", [KeyError("le"), None])
def test_a_pool_that_goes_while_its_prometheus_is_read_stops_nobody(defect: Exception | None) -> None:
    here = world()
    here.backends["slow"].takes, here.backends["slow"].broken = 20.0, defect
    times = decided(here, 4, at={1: lambda: here.delete("slow")})
    assert times["slow"] == []
    assert times["sound"] == pytest.approx([0.0, 15.0, 30.0, 45.0], abs=0.5)


def test_history_that_does_not_arrive_delays_only_its_own_pools() -> None:
    """The backends were asked one after the other, each for up to 10 s, and all pools waited."""
    here = world(history=3600.0)
    for _ in range(40):
        here.serve_on()
        pages: PodSamples = here.samples()
        for prometheus in here.backends.values():
            prometheus.past.append((here.now, pages))
    here.backends["slow"].slow = FOR_EVER
    here.backends["slow"].__class__ = _WithoutPast
    times = decided(here, 5)
    assert times["sound"] == pytest.approx([0.0, 15.0, 30.0, 45.0, 60.0], abs=0.5)
    assert here.state("sound").memory.profile.learned > 500, "ten minutes of its past"
    assert times["slow"][0] == pytest.approx(40.0, abs=0.5), "given up after three answers that did not come"


class _WithoutPast(Prometheus):
    """Answers about the present, and not in time about the past."""

    async def history(self, *_: object, **__: object) -> Unknown:
        await asyncio.sleep(TIMEOUT)
        return Unknown(LATE)


def test_a_defect_in_a_round_ends_that_round_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(history=3600.0)

    async def run_(_: Backfill, backend: str, fresh: Sequence[PendingPool], __: float) -> None:
        if backend == "slow":
            raise KeyError("defect")
        for one in fresh:
            one.state.backfill_ended()

    monkeypatch.setattr(Backfill, "run", run_)
    here.serve_on()
    done = run(lambda: here.loop.tick(here.now))
    assert (done.decided, done.failed) == (1, 1)
    assert "A round over the pools of backend 'slow' failed; others continue." in caplog.text


def test_no_more_history_is_held_at_once_than_fits_into_memory() -> None:
    here = FakeCluster(history=3600.0)
    for number in range(3 * BACKENDS_AT_ONCE):
        name = f"backend-{number}"
        here.backend(name).__class__ = _Counted
        here.serve(name, model=name)
        here.pool(name, target=name, model=name, metrics={"backend": name})
    here.restart()
    _Counted.at_once, _Counted.most = 0, 0
    decided(here, 1)
    assert _Counted.most == BACKENDS_AT_ONCE
    assert all(state.backfilled for state in here.loop.states.values())


class _Counted(Prometheus):
    """Counts the answers about the past that are under way, on all backends."""

    at_once = most = 0

    async def history(self, *_: object, **__: object) -> list[tuple[float, PodSamples]]:
        _Counted.at_once += 1
        _Counted.most = max(_Counted.most, _Counted.at_once)
        await asyncio.sleep(2.0)
        _Counted.at_once -= 1
        return []


def test_marks_are_not_removed_while_their_scale_down_is_under_way() -> None:
    here = world()
    here.serve("many", replicas=6, rate=0.5, model="many")
    here.pool("many", target="many", model="many", metrics={"backend": "slow"}, behavior={"scaleDownWindow": "60s"})
    here.backends["slow"].takes = TIMEOUT
    here.__class__ = _SlowToScale
    decided(here, 80)
    order = here.writes.order
    first = next(place for place, write in enumerate(order) if write.startswith("scale 6"))
    assert [write.split()[0] for write in order[:first]] == ["cost"] * first
    assert first > 0


class _SlowToScale(FakeCluster):
    """An API server that answers a scale after two ticks."""

    async def scale(self, target: Workload, replicas: int) -> None:
        await asyncio.sleep(28.0)
        await super().scale(target, replicas)


def test_rounds_of_two_ticks_together_write_no_more_at_once_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "WRITES_AT_ONCE", 1)
    here = world()
    here.backends["slow"].takes = TIMEOUT
    write, under_way, most = here.write_status, 0, 0

    async def slowly(*given: Any) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(8.0)
        under_way -= 1
        await write(*given)

    monkeypatch.setattr(here, "write_status", slowly)
    decided(here, 4)
    assert most == 1
