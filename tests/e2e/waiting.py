"""Waiting for what comes in its own time: patient, and outspoken when it does not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from servingpool_lab.api_client import ApiError

from .shell import CommandError

T = TypeVar("T")
LEAST_ANSWERS, LONGEST_SILENCE = 3, 60.0


def eventually(check: Callable[[], T], seconds: float, what: str, *, every: float = 0.5) -> T:
    """The first truthy answer of `check`, asked again every `every` seconds.

    An API server that refuses or is away, or a command that fails, counts as not yet.

    Raises:
        AssertionError: none within `seconds`; has `what` and the last answer.
    """
    deadline = time.monotonic() + seconds
    while True:
        last: object
        try:
            found = check()
        except (ApiError, OSError, CommandError) as error:
            last = error
        else:
            if found:
                return found
            last = found
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s; last: {last!r}")
        time.sleep(every)


def throughout(check: Callable[[], bool], seconds: float, what: str, *, every: float = 1.0) -> None:
    """Ask `check` again and again for `seconds`, and at least three times with an answer.

    Raises:
        AssertionError: it was false once, or hardly ever answered; has `what` and when.
    """
    started, answers = time.monotonic(), 0
    while (elapsed := time.monotonic() - started) < seconds or answers < LEAST_ANSWERS:
        try:
            holds = check()
        except (ApiError, OSError, CommandError) as error:
            if elapsed > seconds + LONGEST_SILENCE:
                raise AssertionError(f"{what}: {answers} answers in {elapsed:.0f} s; last: {error!r}") from error
        else:
            answers += 1
            if not holds:
                raise AssertionError(f"{what}: no longer so after {elapsed:.0f} s")
        time.sleep(every)
