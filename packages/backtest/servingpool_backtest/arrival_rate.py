"""When requests came between two scrapes of a pod, by what the others count, and how many nobody counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from servingpool.recording.format import Floats
from servingpool_backtest.intervals import Intervals

Ints = NDArray[np.int64]

ROUNDS = 3
"""Iterations that sharpen the rate: most of a burst's shape is found, and Poisson arrivals stay as even as they are."""
LEAST = 1e-6
"""Requests/s, so that each interval has a time at which its requests may have come."""


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """Requests/s of the whole fleet, second by second."""

    edges: Floats
    """Unix seconds."""
    so_far: Floats
    """Requests before each edge, as counted."""
    lost: Floats
    """Likewise of those that no scrape counted: before a pod's first scrape, and after its last one."""

    @classmethod
    def of(cls, intervals: Intervals, came: Ints, begin: float, end: float) -> Self:
        """The rate that explains all intervals' counts, each pod taking an equal share.

        Pods are scraped at different times, so the counts of several tell what happened within one's interval. Found by
        Richardson and Lucy's iteration.
        """
        if not len(came):
            nothing = np.zeros(2)
            return cls(np.array((begin, end)), nothing, nothing)
        origin = min(begin, float(intervals.begin.min()))
        size = int(max(end, float(intervals.end.max())) - origin) + 2
        edges = origin + np.arange(size + 1, dtype=np.float64)
        first, last = ((each - origin).astype(np.int64) for each in (intervals.begin, intervals.end))
        covered = around(first, last, np.ones(len(first)), size)
        share = 1.0 / np.maximum(1.0, covered)
        rate = np.full(size, max(LEAST, came.sum() / size))
        for _ in range(ROUNDS):
            low, high = np.interp([intervals.begin, intervals.end], edges, _summed(rate * share))
            rate = np.maximum(LEAST, rate * share * around(first, last, came / np.maximum(LEAST, high - low), size))
        half = 0.5 * intervals.scrape_interval
        lives = [(max(0.0, since - half - origin), until + half - origin) for _, since, until in intervals.pods]
        births, ends = np.minimum(np.array(lives).astype(np.int64), size - 1).T
        standing = around(births, ends, np.ones(len(births)), size)
        unseen = rate * share * np.where(covered > 0, np.maximum(0.0, standing - covered), 0.0)
        return cls(edges, _summed(rate), _summed(unseen))

    def times(self, begin: Floats, end: Floats, place: Floats) -> Floats:
        """Unix times of requests that came between `begin` and `end`, at these shares of what came then, 0 to 1."""
        low, high = np.interp([begin, end], self.edges, self.so_far)
        return np.asarray(np.interp(low + place * (high - low), self.so_far, self.edges))

    def unseen(self, random: np.random.Generator) -> Floats:
        """Unix times of the requests that nobody counted."""
        total = float(self.lost[-1])
        return np.asarray(np.interp(total * random.random(round(total)), self.lost, self.edges))


def around(first: Ints, last: Ints, weight: Floats, size: int) -> Floats:
    """Of each second the sum of the weights of the stretches around it."""
    steps = np.bincount(first, weight, size) - np.bincount(last, weight, size)
    return np.asarray(np.cumsum(steps), dtype=np.float64)


def _summed(each: Floats) -> Floats:
    return np.concatenate((np.zeros(1), np.cumsum(each)))
