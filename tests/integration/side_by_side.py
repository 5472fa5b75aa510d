"""Tests of one file that go on at the same time: each waits for the cluster for most of its time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

Begun = Mapping[tuple[Callable[..., None], str], "Future[None]"]


class SideBySide:
    """A decorator. The tests that it makes wait for their own story; the file's fixture `begun` begins all of them."""

    def __init__(self) -> None:
        self._stories: list[tuple[Callable[..., None], str]] = []

    def __call__(self, story: Callable[..., None]) -> Callable[..., None]:
        """The test of a story, which is called with what `begin` gives it."""
        self._stories.append((story, ""))

        def test(begun: Begun) -> None:
            begun[story, ""].result()

        test.__doc__ = story.__doc__
        return test

    def each(self, *values: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """A story for each value, which is called with the value as well."""

        def decorate(story: Callable[..., None]) -> Callable[..., None]:
            self._stories += [(story, value) for value in values]

            @pytest.mark.parametrize("value", values)
            def test(begun: Begun, value: str) -> None:
                begun[story, value].result()

            test.__doc__ = story.__doc__
            return test

        return decorate

    @contextlib.contextmanager
    def begin(self, given: Callable[[], Sequence[Any]]) -> Iterator[Begun]:
        """Each story in a thread, with what `given` returns for it. At the end all of them are waited for."""
        with ThreadPoolExecutor(len(self._stories)) as threads:
            yield {
                (story, value): threads.submit(story, *given(), *([value] if value else []))
                for story, value in self._stories
            }
