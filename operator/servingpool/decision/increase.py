"""The rise of cumulative counters between two readings of one source: an engine's pod, or a gateway.

The only place that knows what a lower reading means:

- A restart, which is a counter reset: each counter that only a restart lowers is at most a quarter of what it was.
  All that it shows came since.
- Damage: a counter fell by less. That reading is left out, and the next one is compared with the one before it.

A figure that is not known is NaN, not 0. A figure that was never known rises by nothing when it appears. A figure that
is missing rises by nothing, and by all that came meanwhile once it is back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import lt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from servingpool.decision.params import LONGEST_GAP

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

RESTARTED = 0.25
"""Share of a counter's last value, below which it restarted: an engine that loaded its model anew has counted less.
Taken for a restart, a counter that was one token lower for one scrape made 15 s of all requests since its start."""


def change(before: Sequence[float], now: Sequence[float]) -> tuple[bool, bool]:
    """Whether a source restarted, and whether it is damaged, by counters that only a restart lowers."""
    fell = any(map(lt, now, before))
    many = fell and any(new > RESTARTED * old > 0.0 for new, old in zip(now, before, strict=True))
    return fell and not many, many


def resets(before: Floats, now: Floats) -> tuple[Flags, Flags]:
    """Of many sources, a row each: whether it restarted, and whether it is damaged, as `change` tells of one."""
    fell: Flags = np.logical_or.reduce(now < before, axis=1)
    damaged: Flags = fell & np.logical_or.reduce((now > RESTARTED * before) & (before > 0.0), axis=1)
    return fell & ~damaged, damaged


def increases(before: Floats, now: Floats) -> Floats:
    """`rises` of many sources, a row each."""
    return np.where(now > before, now - before, 0.0)


def rises(before: Iterable[float], now: Sequence[float]) -> list[float]:
    """Rise of each figure, never below 0: some engines tell a count as a difference, which falls by a little.

    `before`: zeros where the source restarted.
    """
    return [new - old if new > old else 0.0 for new, old in zip(now, before, strict=False)]


def risen(before: Floats, now: Floats) -> tuple[Floats, Flags]:
    """Rises of counters that only a restart lowers, of many sources, a row each; and which sources are damaged.

    0 where the readings cannot be compared.
    """
    restarted, damaged = resets(before, now)
    return np.where(damaged[:, None], 0.0, increases(np.where(restarted[:, None], 0.0, before), now)), damaged


class Counts(NamedTuple):
    """Figures that a source had counted when it was read; only a restart lowers them."""

    at: float
    """Unix time in seconds."""
    figures: tuple[float, ...]
    layout: Any = None
    """Layout of the figures, such as a histogram's buckets. Figures of two layouts cannot be compared."""


class Rise(NamedTuple):
    """Figures that a source counted between two readings."""

    figures: list[float]
    seconds: float
    restarted: bool


def follow(before: Counts | None, now: Counts, *, first: float = math.nan) -> tuple[Counts, Rise | None]:
    """The reading to compare the next reading with, and the rise since `before`; None where the rise is not known.

    `first`: what a figure that was never known had counted: 0 where a counter is created by its first event.
    """
    if before is None:
        return now, None
    seconds = now.at - before.at
    if seconds > 0.0 and now.layout != before.layout:
        return now, None
    restarted, damaged = change(before.figures, now.figures) if seconds > 0.0 else (False, True)
    if damaged:
        return (before if abs(seconds) <= LONGEST_GAP else now), None
    base = [0.0 if restarted else first if math.isnan(old) else old for old in before.figures]
    rose = rises(base, now.figures)
    figures = tuple(old if math.isnan(new) else new for new, old in zip(now.figures, base, strict=True))
    return now._replace(figures=figures), Rise(rose, seconds, restarted)
