"""Late requests, and TTFT and TPOT at the percentile, from histogram buckets that need not end where the SLO does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from servingpool.decision.increase import risen
from servingpool.decision.observation import EPSILON, Histogram, Reading, Unknown

SPREAD = 0.2
"""Standard deviation of the logarithm of the times per output token of one minute."""


@dataclass(frozen=True, slots=True)
class Misses:
    """Requests, and how many of them were late."""

    requests: float
    late: float

    @property
    def share(self) -> float:
        """Share that was late; 0 without requests."""
        return self.late / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class LatencyCount:
    """Observations of a histogram, split at an SLO bound as far as the buckets can tell."""

    within: float = 0.0
    """Observations in a bucket wholly at or under the bound."""
    straddling: float = 0.0
    """Observations in the bucket that the bound cuts in two."""
    late: float = 0.0
    """Observations in a bucket wholly above the bound."""

    @classmethod
    def split(cls, total: float, within: float, up_to: float) -> LatencyCount:
        """The split by cumulative counts: all, up to the lower and up to the upper end of the bound's bucket."""
        return cls(within, max(0.0, up_to - within), max(0.0, total - up_to))

    @property
    def total(self) -> float:
        """All observations."""
        return self.within + self.straddling + self.late

    def misses(self, pooled: LatencyCount, bucket: Sequence[float], bound: float | None, mean: float = 0.0) -> Misses:
        """Late requests, with the straddling bucket divided as in the longer window `pooled`.

        `mean`: seconds that those in it took on average at least.
        """
        if bound is None:
            return Misses(self.total, 0.0)
        share = late_share_of_straddling(pooled, bucket, bound, mean) if self.straddling > 0.0 else 0.0
        return Misses(self.total, self.late + self.straddling * share)


def late_share_of_straddling(pooled: LatencyCount, bucket: Sequence[float], bound: float, mean: float = 0.0) -> float:
    """Share of the straddling bucket's requests that were late. `bucket` holds its two ends in seconds.

    Latency tails fall about exponentially, so the logarithm of the survival is interpolated, not the count: with 100
    requests over 1 s and 10 over 2.5 s, a bound of 2 s is passed by 22, where a straight line says 40 and would buy
    GPUs against misses that did not happen. `pooled` should cover minutes. Half a request is added to the bucket and
    half beyond it, so that an empty tail does not read as certainty.

    Where most requests lie in the bucket it is no tail. If their `mean` is beyond the bound, most of them were late:
    90 requests of 2.15 s lie in the bucket of 1 to 2.5 s, and none beyond it. A mean within the bound tells nothing,
    for all may take the same time.

    While an upgrade replaces the buckets, requests lie in one that the newest replicas do not have: half were late.
    """
    lower, upper = bucket
    if not math.isfinite(upper):
        return 1.0
    if not lower < upper:
        return 0.5
    fall = math.log((pooled.straddling + pooled.late + 1.0) / (pooled.late + 0.5))
    if bound < mean < upper:
        # From -1 at the lower end to 1: Cohen's approximation of the inverse Langevin function gives the fall.
        centre = min(0.98, 2.0 * (mean - lower) / (upper - lower) - 1.0)
        fall = min(fall, -2.0 * centre * (3.0 - centre**2) / (1.0 - centre**2))
    beyond = min(1.0, max(0.0, (upper - bound) / (upper - lower)))
    return beyond if abs(fall) < EPSILON else math.expm1(fall * beyond) / math.expm1(fall)


def late_share_by_mean(mean: float, bucket: Sequence[float], bound: float) -> float:
    """Share of the straddling bucket's requests that were late, where their mean is known.

    Times per output token lie close together, all of them in one of an engine's wide buckets: with a bound of 20 ms in
    the bucket of 10 to 25 ms, counts alone cannot tell a fleet at 12 ms from one at 24 ms. The mean can, with the
    usual spread around it.
    """
    lower, upper = bucket
    if lower > 0.0 and math.isinf(upper):
        return 1.0  # as for TTFT; the status says so
    if not lower < upper:
        return 0.5
    centre = math.log(min(upper, max(lower, mean, EPSILON))) - SPREAD**2 / 2.0
    below, up_to_bound, up_to = (
        0.5 * (1.0 + math.erf((math.log(end) - centre) / SPREAD / math.sqrt(2.0))) if end > 0.0 else 0.0
        for end in (lower, bound, upper)
    )
    return (up_to - up_to_bound) / (up_to - below)


LEAST_REQUESTS = 5.0
"""Requests, of which fewer tell of no percentile."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A histogram of about the last five minutes, with each replica's last counts to take the next difference with.

    It is that of the replicas whose buckets are the most frequent: others are left out.
    """

    bounds: tuple[float, ...] = ()
    """Seconds, ending with +Inf."""
    counts: tuple[float, ...] = ()
    """Cumulative."""
    previous: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def update(self, read: Mapping[str, Histogram | Unknown], elapsed: float, memory: float) -> Tail:
        """The tail with what each replica observed since it was last read. A replica that was not read begins anew.

        `memory`: seconds after which an observation counts 1/e.
        """
        histograms = {name: one for name, one in read.items() if type(one) is Histogram}
        layouts, keep = [one.bounds for one in histograms.values()], math.exp(-elapsed / memory)
        if not layouts:
            return Tail(self.bounds, tuple([keep * count for count in self.counts]))
        common = max(dict.fromkeys(layouts), key=lambda one: (layouts.count(one), one == self.bounds[:-1]))
        bounds = (*common, math.inf)
        known = self if self.bounds == bounds else Tail(bounds, (0.0,) * len(bounds))
        now = {name: (*one.counts, one.count) for name, one in histograms.items() if one.bounds == common}
        before = now | {name: counts for name, counts in known.previous.items() if name in now}
        rose, damaged = risen(np.array(list(before.values())), np.array(list(now.values())))
        counts, each = keep * np.array(known.counts) + np.add.reduce(rose), zip(now.items(), damaged, strict=True)
        return Tail(bounds, tuple(counts.tolist()), {name: one for (name, one), lost in each if not lost})

    def at(self, share: float) -> Reading:
        """Seconds that `share` of the requests stay within, interpolated inside the bucket as late requests are.

        The last finite bound where it lies beyond: the histogram cannot tell more.
        """
        total = self.counts[-1] if self.counts else 0.0
        if total < LEAST_REQUESTS:
            return Unknown("fewer than five requests in five minutes")
        if len(self.bounds) == 1:
            return Unknown("the engine exports no buckets of it")
        wanted, below, lower = share * total, 0.0, 0.0
        for bound, count in zip(self.bounds[:-1], self.counts, strict=False):
            if count >= wanted:
                part, high, low = (wanted - below) / (count - below), total - below, total - count
                if low > 0.0:  # the logarithm of those that took longer falls evenly
                    part = math.log((total - wanted) / high) / math.log(low / high)
                return lower + (bound - lower) * part
            below, lower = count, bound
        return lower
