"""TTFT and TPOT at the SLO's percentile, from whatever buckets were read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from servingpool.decision.observation import Histogram
from servingpool.decision.unknown import Reading, Unknown

WINDOW = 300.0
"""Seconds after which an observation counts 1/e."""
LEAST_REQUESTS = 5.0

Buckets = tuple[tuple[float, ...], tuple[float, ...]]
"""Bounds in seconds ending with +Inf, and cumulative counts."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A histogram of about the last five minutes, and each replica's last page to take the next difference with."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    previous: Mapping[str, Buckets] = field(default_factory=dict)

    def learn(self, pages: Mapping[str, Histogram], *, elapsed: float) -> Tail:
        """Add what each replica observed since its last page. One that was not read begins anew."""
        latest = {name: (*page.bounds, math.inf) for name, page in pages.items()}
        bounds = next(iter(latest.values()), self.bounds)
        keep = math.exp(-elapsed / WINDOW)
        sums = [count * keep for count in self.counts] if bounds == self.bounds else [0.0] * len(bounds)
        previous: dict[str, Buckets] = {}
        for name, page in pages.items():
            now = (*page.counts, page.count)
            previous[name] = (latest[name], now)
            before = self.previous.get(name)
            if before is None or before[0] != latest[name] or latest[name] != bounds or before[1][-1] > now[-1]:
                continue
            sums = [total + new - old for total, new, old in zip(sums, now, before[1], strict=True)]
        return Tail(bounds, tuple(sums), previous)

    def at(self, share: float) -> Reading:
        """Seconds that `share` of the requests stay within, interpolated inside the bucket.

        The last finite bound where it lies beyond: the histogram cannot tell more.
        """
        total = self.counts[-1] if self.counts else 0.0
        if total < LEAST_REQUESTS:
            return Unknown("fewer than five requests in five minutes")
        wanted, below, lower = share * total, 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= wanted:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (wanted - below) / max(count - below, 1e-9)
            below, lower = count, bound
        return lower
