"""TTFT and TPOT at the SLO's percentile, from whatever buckets were read."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from servingpool.decision.increase import Change, change, rises
from servingpool.decision.observation import Histogram, Reading, Unknown

MEMORY = 300.0
"""Seconds after which an observation counts 1/e."""
LEAST_REQUESTS = 5.0

Cumulative = tuple[tuple[float, ...], tuple[float, ...]]
"""Bounds in seconds ending with +Inf, and cumulative counts."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A histogram of about the last five minutes, and each replica's last one to take the next difference with."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    previous: Mapping[str, Cumulative] = field(default_factory=dict)

    def update(self, histograms: Mapping[str, Histogram], *, elapsed: float) -> Tail:
        """Add what each replica observed since it was last read. One that was not read begins anew."""
        latest = {name: (*one.bounds, math.inf) for name, one in histograms.items()}
        bounds = _common(set(latest.values())) or self.bounds
        keep = math.exp(-elapsed / MEMORY)
        sums = [count * keep for count in _at_bounds(bounds, (self.bounds, self.counts))]
        previous: dict[str, Cumulative] = {}
        for name, one in histograms.items():
            now = (*one.counts, one.count)
            layout, before = self.previous.get(name, (latest[name], now))
            between = change(before, now) if layout == latest[name] else Change.CONTINUED
            if between is Change.DAMAGED:
                continue  # as if it had not been read
            previous[name] = (latest[name], now)
            if layout != latest[name]:
                continue
            increase = rises(repeat(0.0) if between is Change.RESTARTED else before, now)
            at_bounds = _at_bounds(bounds, (latest[name], tuple(increase)))
            sums = [total + more for total, more in zip(sums, at_bounds, strict=True)]
        return Tail(bounds, tuple(sums), previous)

    def at(self, share: float) -> Reading:
        """Seconds that `share` of the requests stay within, interpolated inside the bucket.

        The last finite bound where it lies beyond: the histogram cannot tell more.
        """
        total = self.counts[-1] if self.counts else 0.0
        if total < LEAST_REQUESTS:
            return Unknown("fewer than five requests in five minutes")
        if len(self.bounds) == 1:
            return Unknown("the engine exports no buckets of it")
        wanted, below, lower = share * total, 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= wanted:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (wanted - below) / max(count - below, 1e-9)
            below, lower = count, bound
        return lower


def _common(layouts: Collection[tuple[float, ...]]) -> tuple[float, ...]:
    """Bounds for replicas with these: all that there are, up to the last finite one that each replica reaches."""
    if len(layouts) <= 1:
        return next(iter(layouts), ())
    end = min(_last(bounds) for bounds in layouts)
    return (*sorted({bound for bounds in layouts for bound in bounds if bound <= end}), math.inf)


def _at_bounds(wanted: tuple[float, ...], known: Cumulative) -> tuple[float, ...]:
    """The counts at other bounds, interpolated inside a bucket as `at` does.

    None at all where requests lie beyond the last known bound and `wanted` goes on: nobody knows where they belong.
    """
    bounds, counts = known
    if wanted == bounds:
        return counts
    finite = bounds[:-1]
    beyond = counts[-1] - (counts[-2] if finite else 0.0) if counts else 0.0
    if not counts or (_last(wanted) > _last(bounds) and beyond >= 1.0):
        return (0.0,) * len(wanted)
    ends, shown = (0.0, *finite), (0.0, *counts[:-1])
    return (*(float(np.interp(bound, ends, shown)) for bound in wanted[:-1]), counts[-1])


def _last(bounds: tuple[float, ...]) -> float:
    """The last finite bound; 0 where there is none."""
    return bounds[-2] if len(bounds) > 1 else 0.0
