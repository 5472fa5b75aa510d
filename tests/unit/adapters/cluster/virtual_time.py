"""An event loop that does not wait for its timers but sets its clock to them: an hour of sleep takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class _Clock(selectors.DefaultSelector):
    now = 0.0

    def __init__(self, turn: float) -> None:
        super().__init__()
        self._turn = turn

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += self._turn
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select(None)  # no timer is set: only another thread can go on
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, turn: float = 0.0) -> None:
        """`turn`: seconds that a turn of the loop takes, for code that looks at the clock until it has moved."""
        self._clock = _Clock(turn)
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def hold_up(self, seconds: float) -> None:
        """As time.sleep would: its time passes, and nothing happens on it meanwhile."""
        self._clock.now += seconds


def run(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(holds: Callable[[], object]) -> None:
    """Waits until it is so."""
    while not holds():  # noqa: ASYNC110, nobody tells
        await asyncio.sleep(0.5)


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualLoop()


@pytest.fixture
def event_loop_policy() -> _Policy:
    """A module that imports it has its async tests on virtual time."""
    return _Policy()
