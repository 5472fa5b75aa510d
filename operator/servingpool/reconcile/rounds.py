"""Work that goes on side by side and at its own pace: one round of each kind at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Rounds(Generic[T]):
    """Rounds by name. One that is slow holds up only the next one of its name."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[T]] = {}

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Begin a round, unless the last one of that name is under way or was not asked for by `ended`."""
        if name not in self._under_way:
            self._under_way[name] = asyncio.create_task(work())

    async def wait(self, seconds: float) -> None:
        """Until all have ended, or so long."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)

    def ended(self) -> dict[str, T | BaseException]:
        """What those gave that have ended since this was asked for, or the exception that ended them."""
        done = {name: task for name, task in self._under_way.items() if task.done()}
        self._under_way = {name: task for name, task in self._under_way.items() if name not in done}
        return {name: task.exception() or task.result() for name, task in done.items() if not task.cancelled()}

    async def cancel(self) -> None:
        """End them all."""
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
