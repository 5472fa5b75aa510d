"""How many requests come together within a scrape interval: as many as explain the TTFT that was observed.

Counters show no bursts shorter than the scrape interval, but TTFT does: requests that come together wait for each
other's prefill. The history's own fleet is replayed with ever larger bursts until its mean TTFT is the observed one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from servingpool.backtest.arrivals import reconstruct
from servingpool.backtest.intervals import Intervals
from servingpool.backtest.replay import AsItWas, World, replay_as_it_was

CLUMPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
WINDOW = 2 * 3600.0
"""Seconds of history, the busiest, that they are fitted to."""


def burstiness(world: World, fleet: AsItWas, intervals: Intervals) -> float:
    """Requests in a burst, 1 for none."""
    begin = _busiest(intervals, world.begin, world.end)
    end = min(world.end, begin + WINDOW)
    inside = (intervals.end > begin) & (intervals.end <= end)
    count = float(intervals.increase["ttft_count"][inside].sum())
    if count <= 0.0:
        return 1.0
    observed = float(intervals.increase["ttft_sum"][inside].sum()) / count
    before: tuple[float, float] | None = None
    for clump in CLUMPS:
        arrivals = reconstruct(intervals, begin, end, world.seed, clump)
        part = replace(world, arrivals=arrivals, begin=begin, end=end, warm_up=0.0, initial=fleet.number(begin))
        mean = replay_as_it_was(part, fleet).mean_ttft
        if mean is None or mean >= observed:
            if before is None or mean is None or mean <= before[1]:
                return clump
            # Between the two sizes, on logarithmic scales.
            share = math.log(observed / before[1]) / math.log(mean / before[1])
            return float(before[0] * (clump / before[0]) ** share)
        before = clump, mean
    return CLUMPS[-1]


def _busiest(intervals: Intervals, begin: float, end: float) -> float:
    """When the window with the most requests begins."""
    if end - begin <= WINDOW:
        return begin
    starts = np.arange(begin, end - WINDOW + 1.0, WINDOW / 4.0)
    so_far = np.concatenate(([0.0], np.cumsum(intervals.first_tokens)))
    inside = so_far[np.searchsorted(intervals.end, starts + WINDOW)] - so_far[np.searchsorted(intervals.end, starts)]
    return float(starts[int(np.argmax(inside))])
