"""How many requests come together within a scrape interval: as many as explain the TTFT that was observed.

Counters show no bursts shorter than the scrape interval, but TTFT does: requests that come together wait for each
other's prefill. The history's own fleet is replayed with ever larger bursts until TTFT is the observed one, minute by
minute on a logarithmic scale: minutes of overload, whose TTFT tells of the fleet and not of bursts, count no more than
others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from servingpool.recording.format import Floats
from servingpool_backtest.arrivals import Traffic
from servingpool_backtest.intervals import Intervals
from servingpool_backtest.replay import AsItWas, World, replay_as_it_was

CLUMPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
WINDOW = 2 * 3600.0
"""Seconds of history, the busiest, that they are fitted to."""
MINUTE = 60.0
"""Seconds."""
LEAST = 10
"""Minutes with requests, below which bursts are unknown."""


def burstiness(world: World, fleet: AsItWas, intervals: Intervals) -> float:
    """Requests in a burst at the mean, 1 for none."""
    begin = _busiest(intervals, world.begin, world.end)
    end = min(world.end, begin + WINDOW)
    at = np.arange(begin, end - MINUTE + 1.0, MINUTE)
    if len(at) < LEAST:
        return 1.0
    observed = _by_minute(intervals, at)
    part, traffic = replace(world, begin=begin, end=end, warm_up=0.0), Traffic.of(intervals, begin, end)
    before: tuple[float, float] | None = None
    for clump in CLUMPS:
        replayed = replay_as_it_was(part, traffic.drawn(world.seed, clump), fleet).by_bin(at, MINUTE)
        known = (replayed.ttft > 0.0) & (observed > 0.0)  # NaN is not
        if known.sum() < LEAST:
            return 1.0
        # Over 0 where the model is slower.
        log = np.log(replayed.ttft[known] / observed[known])
        excess = float(np.average(log, weights=replayed.requests[known]))
        if excess >= 0.0:
            if before is None:
                return clump
            share = before[1] / (before[1] - excess)
            return float(before[0] * (clump / before[0]) ** share)
        before = clump, excess
    return CLUMPS[-1]


def _by_minute(intervals: Intervals, at: Floats) -> Floats:
    """Mean TTFT in seconds of each minute that begins `at` these Unix times; NaN without a request."""
    place = np.floor((intervals.end - at[0]) / MINUTE).astype(np.int64)
    inside = (place >= 0) & (place < len(at))
    count, seconds = (
        np.bincount(place[inside], intervals.increase[name][inside], len(at)) for name in ("ttft_count", "ttft_sum")
    )
    return np.where(count > 0, seconds / np.maximum(count, 1.0), np.nan)


def _busiest(intervals: Intervals, begin: float, end: float) -> float:
    """When the window with the most requests begins."""
    if end - begin <= WINDOW:
        return begin
    starts = np.arange(begin, end - WINDOW + 1.0, WINDOW / 4.0)
    so_far = np.concatenate(([0.0], np.cumsum(intervals.first_tokens)))
    inside = so_far[np.searchsorted(intervals.end, starts + WINDOW)] - so_far[np.searchsorted(intervals.end, starts)]
    return float(starts[int(np.argmax(inside))])
