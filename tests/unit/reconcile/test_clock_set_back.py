"""The operator's clock is set back, or forward, in the middle of a miss."""

from __future__ import annotations

import asyncio
from functools import cache

import pytest

from servingpool.loop.operator import BORNE, SteadyClock

from .fake_cluster import TICK
from .stories import serving


@cache
def fleet(skew: float, *, after: float = 0.0) -> list[int]:
    """Replicas at each tick of an hour from where the load is four times as high, `after` seconds after which it is."""
    world = serving(minutes=30, targets=[{"name": "vllm", "min": 1, "max": 20}])
    world.services["vllm"].rate = 24.0
    found = []
    for number in range(240):
        world.serve_on()
        asyncio.run(world.loop.tick(world.now + (skew if TICK * number >= after else 0.0)))
        service = world.services["vllm"]
        found.append(len(service.engines) + len(service.orders))
    return found


@pytest.mark.parametrize("back", [180.0, 600.0, 86_400.0], ids=["3 min", "10 min", "a day"])
@pytest.mark.parametrize("after", [0.0, 300.0])
def test_nothing_is_removed_that_is_needed_and_the_load_is_followed_as_without_it(back: float, after: float) -> None:
    expected, found = fleet(0.0), fleet(-back, after=after)
    assert min(found[20:]) >= min(expected[20:])
    assert max(found) <= max(expected)
    assert next(tick for tick, one in enumerate(found) if one >= 4) <= 4


@pytest.mark.parametrize("after", [0.0, 300.0])
def test_an_hour_forward_costs_no_replica_that_is_needed(after: float) -> None:
    """All that was seen is then over an hour old."""
    found = fleet(3600.0, after=after)
    assert min(found[20:]) >= 3, "which serve it at a load of 0.7"
    assert max(found) <= 6
    assert next(tick for tick, one in enumerate(found) if one >= 4) <= 4


class Clocks:
    """A system's clock and a monotonic one."""

    def __init__(self) -> None:
        self.system, self.monotonic = 1_700_000_000.0, 50.0
        self.steady = SteadyClock(lambda: self.system, lambda: self.monotonic)

    def after(self, seconds: float, *, step: float = 0.0) -> float:
        self.system += seconds + step
        self.monotonic += seconds
        return self.steady() - 1_700_000_000.0


def test_time_passes_on_when_the_clock_is_set_back_and_follows_it_forward() -> None:
    clocks = Clocks()
    assert clocks.after(15.0) == 15.0
    assert clocks.after(15.0, step=-600.0) == 30.0
    assert clocks.after(15.0) == 45.0
    assert clocks.after(15.0, step=600.0) == 60.0
    assert clocks.after(15.0, step=86_400.0) == 86_475.0


def test_a_clock_that_stays_back_is_followed_once() -> None:
    clocks = Clocks()
    clocks.after(15.0, step=-7200.0)
    assert clocks.after(BORNE - 1.0) == BORNE + 14.0
    assert clocks.after(1.0) == BORNE + 15.0 - 7200.0
    assert clocks.after(15.0) == BORNE + 30.0 - 7200.0
