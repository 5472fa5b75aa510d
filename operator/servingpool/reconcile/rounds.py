"""Rounds that run in parallel, each at its own pace: one of each name at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Rounds(Generic[T]):
    """Rounds by name. A slow round delays only the next round of its name."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[T]] = {}

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Begin a round, unless the last one of that name is under way or `ended` has not returned it."""
        if name not in self._under_way:
            self._under_way[name] = asyncio.create_task(work())

    async def wait(self, seconds: float) -> None:
        """Wait until all have ended, or this long."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)

    def ended(self) -> dict[str, T | BaseException]:
        """Results of the rounds that have ended since the last call, or the exception that ended them."""
        done = {name: task for name, task in self._under_way.items() if task.done()}
        self._under_way = {name: task for name, task in self._under_way.items() if name not in done}
        return {name: task.exception() or task.result() for name, task in done.items() if not task.cancelled()}

    async def cancel(self) -> None:
        """Cancel all rounds."""
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
