"""What processes share is started once, ends after its last user, and is started again for one that comes later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from servingpool_lab.processes import wait_until

from .one_for_all import shared
from .operators import PATIENCE


class User:
    """One that uses it from `enter` to `leave`. Locks are those of an open file, so a thread is as good as a process."""

    def __init__(self, directory: Path, start: Callable[[ExitStack], dict[str, str]]) -> None:
        self._directory, self._start, self._over = directory, start, threading.Event()
        self.found: dict[str, str] = {}
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with shared(self._directory, self._start) as found:
            self.found = dict(found)
            self._over.wait()

    def enter(self) -> str:
        self.thread.start()
        wait_until(lambda: self.found != {}, PATIENCE, "it is there")
        return self.found["number"]

    def leave(self) -> None:
        self._over.set()


def test_the_first_starts_it_and_it_ends_after_the_last(tmp_path: Path) -> None:
    running: list[int] = []
    ended: list[int] = []

    def start(until: ExitStack) -> dict[str, str]:
        running.append(len(running))
        until.callback(ended.append, running[-1])
        return {"number": str(running[-1])}

    first, second, later = (User(tmp_path, start) for _ in range(3))
    assert (first.enter(), second.enter()) == ("0", "0")
    first.leave()
    first.thread.join(1.0)
    assert first.thread.is_alive(), "it waits for the second"
    assert ended == []
    second.leave()
    second.thread.join(30)
    first.thread.join(30)
    assert ended == [0]
    assert later.enter() == "1"
    later.leave()
    later.thread.join(30)
    assert ended == [0, 1]


def test_one_that_cannot_be_started_is_tried_again_by_the_next(tmp_path: Path) -> None:
    def fails(_: ExitStack) -> dict[str, str]:
        raise OSError("no port is free")

    with pytest.raises(OSError, match="no port"), shared(tmp_path, fails):
        pass
    with shared(tmp_path, lambda _: {"number": "1"}) as found:
        assert found == {"number": "1"}
