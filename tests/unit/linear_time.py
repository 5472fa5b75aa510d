"""Whether code takes linear time: of its own CPU time only, and with no margin for what the machine does beside it."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable

import pytest

HARMLESS = 0.05
"""Seconds of CPU. Below it caches alone may make twelve of four; quadratic code takes longer for 200,000 characters."""


def in_about_linear_time(walk: Callable[[int], object], sizes: Iterable[int] = (4_000, 50_000)) -> None:
    """Fail unless an input of four times the size takes about four times the time. Quadratic code takes 16 times."""
    for size in sizes:
        measured = []
        for _ in range(3):  # the machine may be busy with other work during one of the two
            small, large = seconds(walk, size), seconds(walk, 4 * size)
            measured.append(f"{size}: {small:.4f} s, {4 * size}: {large:.4f} s")
            if large < 9.0 * small or large < HARMLESS:
                break
        else:
            pytest.fail("; ".join(measured))


def seconds(walk: Callable[[int], object], size: int) -> float:
    """Of this thread's own CPU time, in the fastest of three calls. Without the collector, which looks at all objects of
    the test run."""
    found = math.inf
    gc.disable()
    try:
        for _ in range(3):
            began = time.thread_time()
            walk(size)
            found = min(found, time.thread_time() - began)
    finally:
        gc.enable()
    return found
