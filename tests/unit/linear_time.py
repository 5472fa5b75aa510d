"""Whether code takes linear time, by the CPU time of its own thread."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping

import pytest

SIZES = {4_000: 0.002, 50_000: 0.05}
"""Within the limits of what is read and beyond them: for a size, the seconds of CPU in which an input of four times the
size may always be read. Quadratic code takes longer. Below, linear code may take 12 times as long instead of 4, since the
larger input does not fit into the CPU's caches."""


def in_about_linear_time(walk: Callable[[int], object], sizes: Mapping[int, float] = SIZES) -> None:
    """Fail unless an input of four times the size takes about four times the time. Quadratic code takes 16 times."""
    for size, harmless in sizes.items():
        measured = []
        for _ in range(3):  # the machine may be busy with other work during one of the two
            small, large = seconds(walk, size), seconds(walk, 4 * size)
            measured.append(f"{size}: {small:.4f} s, {4 * size}: {large:.4f} s")
            if large < 9.0 * small or large < harmless:
                break
        else:
            pytest.fail("; ".join(measured))


def seconds(walk: Callable[[int], object], size: int) -> float:
    """CPU time of the fastest of three calls. Python's garbage collector is off: it looks at all objects of the test run."""
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
