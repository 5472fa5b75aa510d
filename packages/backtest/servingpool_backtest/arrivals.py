"""The requests of a history, one by one again: when they came and how long they were.

Counters tell how many began between two scrapes, and their tokens; the queue tells how many came and still wait. Within
an interval they come at the rate that all pods show together, and their lengths are drawn so that the interval's tokens
are met.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.params import LONGEST_GAP
from servingpool.recording.format import Floats
from servingpool_backtest.arrival_rate import Rate
from servingpool_backtest.intervals import Intervals
from servingpool_simulation.traces import Trace

Ints = NDArray[np.int64]

SINGLE_ENOUGH = 200
"""Intervals with one request, from which on their prompts are the sample that lengths are drawn from."""
LOCAL = 600.0
"""Seconds over which the mean length of answers is taken: their tokens are counted while they run."""
OUTPUT_SPREAD = 0.8
"""Standard deviation over mean of answers' lengths, which no recorded metric tells; 0.77 in Azure's conversations."""
WITHIN_CLUMP = 0.2
"""Seconds that the requests of a clump are apart, at the mean."""
LEAST_HOLE = 60.0
"""Seconds without a scrape of any pod that are filled."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """All requests, in order of arrival."""

    at: Floats
    """Unix seconds."""
    prompt: Floats
    output: Floats
    """Tokens, 1 or more."""
    holes: tuple[tuple[float, float], ...]
    """Unix seconds, (begin, end): no pod was scraped, so the traffic before them was put there."""
    uncertain: float
    """Share of requests in intervals so long that nobody knows when they came."""

    def trace(self, name: str, begin: float, end: float) -> Trace:
        """Those of [begin, end) Unix seconds."""
        first, last = np.searchsorted(self.at, (begin, end))
        part = slice(int(first), int(last))
        whole = (np.rint(self.prompt[part]).astype(np.int64), np.rint(self.output[part]).astype(np.int64))
        return Trace(name, self.at[part] - begin, np.maximum(1, whole[0]), np.maximum(1, whole[1]), end - begin)


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What counters tell of the requests between two Unix times, once for all draws of them."""

    intervals: Intervals
    begin: float
    end: float
    came: Ints
    """Requests that arrived in each interval."""
    rate: Rate
    usual: Floats
    """Mean prompt tokens around each interval."""
    mean: Floats
    """Of the interval itself, where a request began in it."""
    output: Floats
    """Mean tokens of an answer around each interval."""

    @classmethod
    def of(cls, intervals: Intervals, begin: float, end: float) -> Self:
        """Of a history."""
        began, asked = intervals.first_tokens, intervals.increase["prompt"]
        came = _came(began, intervals.increase["waiting"])
        usual = _local_mean(intervals, asked)
        mean = np.where(began > 0, asked / np.maximum(began, 1.0), usual)
        output = _local_mean(intervals, intervals.increase["generated"])
        return cls(intervals, begin, end, came, Rate.of(intervals, came, begin, end), usual, mean, output)

    def drawn(self, seed: int = 0, clump: float = 1.0) -> Arrivals:
        """The requests one by one, the same for the same seed. `clump`: how many come together, 1 or more."""
        random = np.random.default_rng(seed)
        intervals, came = self.intervals, self.came
        holes = _holes(intervals, self.begin, self.end)
        interval = np.repeat(np.arange(len(came)), came)
        at = self.rate.times(intervals.begin[interval], intervals.end[interval], _places(came, clump, random))
        if clump > 1.0:
            at = np.minimum(at + random.exponential(WITHIN_CLUMP, len(at)), intervals.end[interval])
        unseen = self.rate.unseen(random)
        for since, until in holes:
            unseen = unseen[(unseen < since) | (unseen >= until)]
        counted, at = len(at), np.concatenate((at, unseen))
        nearest = np.minimum(np.searchsorted(intervals.end, unseen), len(came) - 1)
        interval = np.concatenate((interval, nearest))
        asked = intervals.increase["prompt"]
        prompt = self.mean[interval] * _shape(intervals, self.mean / self.usual, random, len(interval))
        # Each interval's tokens are met, but where requests began that had come in another.
        drawn = np.bincount(interval[:counted], weights=prompt[:counted], minlength=len(came))
        even = (came > 0) & (asked > 0) & (came == intervals.first_tokens)
        prompt *= np.where(even, asked / np.maximum(drawn, 1e-9), 1.0)[interval]
        spread = random.gamma(OUTPUT_SPREAD**-2, OUTPUT_SPREAD**2, len(interval))
        output = self.output[interval] * spread
        uncertain = float(came[intervals.seconds > LONGEST_GAP].sum() / max(1, came.sum()))
        order = np.argsort(at, kind="stable")
        at, prompt, output = at[order], prompt[order], output[order]
        for since, until in holes:
            first, last = np.searchsorted(at, (since - (until - since), since))
            copied = slice(int(first), int(last))
            place = int(np.searchsorted(at, since))
            at = np.insert(at, place, at[copied] + (until - since))
            prompt, output = np.insert(prompt, place, prompt[copied]), np.insert(output, place, output[copied])
        inside = (at >= self.begin) & (at < self.end)
        return Arrivals(at[inside], prompt[inside], output[inside], holes, uncertain)


def _came(began: Floats, queued: Floats) -> Ints:
    """Requests that arrived in each interval: those that began, and what the queue grew by."""
    return np.maximum(0, np.rint(began + queued)).astype(np.int64)


def _places(came: Ints, clump: float, random: np.random.Generator) -> Floats:
    """Of each request, where in its interval it comes, 0 to 1."""
    if clump <= 1.0:
        return random.random(int(came.sum()))
    clumps = np.maximum(1, np.rint(came / clump)).astype(np.int64)
    first = np.cumsum(clumps) - clumps
    which = np.repeat(first, came) + (random.random(int(came.sum())) * np.repeat(clumps, came)).astype(np.int64)
    place: Floats = random.random(int(clumps.sum()))[which]
    return place


def _local_mean(intervals: Intervals, total: Floats) -> Floats:
    """Tokens a request, 1 or more, in the half hour around each interval; of all where none began."""
    if not len(total):
        return total
    place = ((intervals.end - intervals.end[0]) // LOCAL).astype(np.int64)
    tokens, requests = (
        np.convolve(np.bincount(place, each), np.ones(3))[1:-1] for each in (total, intervals.first_tokens)
    )
    overall = total.sum() / max(1.0, intervals.first_tokens.sum())
    means: Floats = np.where(requests >= 1.0, tokens / np.maximum(requests, 1.0), overall)
    return np.asarray(np.maximum(1.0, means[place]), dtype=np.float64)


def _shape(intervals: Intervals, ratio: Floats, random: np.random.Generator, size: int) -> Floats:
    """Prompt lengths over the mean: as those of single requests, or lognormal with the spread that means show.

    `ratio`: each interval's mean length over the usual one.
    """
    single = ratio[(intervals.first_tokens == 1) & (ratio > 0)]
    if len(single) >= SINGLE_ENOUGH:
        return random.choice(single, size)
    spread = np.sqrt(np.log1p(_variance(intervals)))
    return random.lognormal(-0.5 * spread**2, spread, size)


def _variance(intervals: Intervals) -> float:
    """Of prompts' lengths over their mean, by how far two intervals that follow each other on a pod lie apart.

    The mean of n lengths varies n times less than a length does; what all lengths share, such as the hour, cancels out.
    """
    began, asked = intervals.first_tokens, intervals.increase["prompt"]
    order = np.argsort(intervals.begin, kind="stable")
    after = order[np.minimum(np.searchsorted(intervals.begin[order], intervals.end), len(order) - 1)]
    pairs = (intervals.begin[after] == intervals.end) & (began >= 1) & (began[after] >= 1)
    if not pairs.any():
        return 0.0
    n, tokens, n_after, tokens_after = (each[pairs] for each in (began, asked, began[after], asked[after]))
    apart = tokens / n - tokens_after / n_after
    mean = np.maximum(1.0, (tokens + tokens_after) / (n + n_after))
    return float(np.mean((apart / mean) ** 2 / (1.0 / n + 1.0 / n_after)))


def _holes(intervals: Intervals, begin: float, end: float) -> tuple[tuple[float, float], ...]:
    """Stretches that no interval covers."""
    order = np.argsort(intervals.begin)
    covered = np.maximum.accumulate(np.append(begin, intervals.end[order]))
    since = np.append(intervals.begin[order], end)
    hole = since - covered > LEAST_HOLE
    return tuple(zip(covered[hole].tolist(), since[hole].tolist(), strict=True))
