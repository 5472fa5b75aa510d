"""What the history itself shows: replicas over time, and how well the SLO was kept, by the engine's own buckets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servingpool.decision.observe.latency import LatencyCount, late_share_by_mean
from servingpool.decision.pool import Slo
from servingpool.recording.format import Floats
from servingpool_backtest.intervals import Intervals

POOLED = 12
"""Bins whose shape of the latency tail is taken together, as the core does over ten minutes."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """By bins of equal width."""

    at: Floats
    """Unix seconds at which each bin begins."""
    width: float
    requests: Floats
    late: Floats
    """Those that broke a bound, the two taken as independent."""
    ttft: Floats
    """Mean seconds to the first token; NaN without a request, as in `tpot`."""
    tpot: Floats
    """Mean seconds of a token."""
    serving: Floats
    """Mean number of pods that were scraped."""
    requested: Floats | None
    """Mean spec.replicas; None where no metric tells."""

    def attainment(self, begin: float) -> float | None:
        """Of the requests since a Unix time; None without any."""
        part = self.at >= begin
        requests = float(self.requests[part].sum())
        return 1.0 - float(self.late[part].sum()) / requests if requests else None

    def replica_hours(self, begin: float) -> float:
        """From a Unix time on: as requested, or where that is not known as scraped."""
        part = self.at >= begin
        counted = self.serving if self.requested is None else np.maximum(self.serving, self.requested)
        return float(counted[part].sum()) * self.width / 3600.0


def observe(intervals: Intervals, slo: Slo, begin: float, end: float, width: float) -> Observed:
    """The history in bins of `width` seconds."""
    bins = max(1, int(np.ceil((end - begin) / width)))
    inside = (intervals.end > begin) & (intervals.end <= end)
    place = np.clip(((intervals.end - begin) // width).astype(np.int64), 0, bins - 1)

    def total(name: str) -> Floats:
        return np.bincount(place[inside], intervals.increase[name][inside], bins).astype(np.float64)

    first, first_sum, itl, itl_sum = (total(f"{name}_{what}") for name in ("ttft", "itl") for what in ("count", "sum"))
    slow = total("tpot_count")
    late_first = _late(slo.time_to_first_token, intervals.ttft_bucket, first, total("ttft_lower"), total("ttft_upper"))
    per_token = itl_sum / np.maximum(itl, 1.0)
    late_token = _slow(
        slo.time_per_output_token, intervals.tpot_bucket, slow, total("tpot_lower"), total("tpot_upper"), per_token
    )
    late = late_first + late_token - late_first * late_token
    return Observed(
        at=begin + width * np.arange(bins, dtype=np.float64),
        width=width,
        requests=first,
        late=late * first,
        ttft=np.where(first > 0, first_sum / np.maximum(first, 1.0), np.nan),
        tpot=np.where(itl > 0, per_token, np.nan),
        serving=serving(intervals, begin, bins, width),
        requested=requested(intervals, begin, bins, width),
    )


def _late(bound: float | None, bucket: tuple[float, float], count: Floats, lower: Floats, upper: Floats) -> Floats:
    """Share of each bin's requests with a late first token."""
    if bound is None:
        return np.zeros(len(count))
    window = np.ones(POOLED)
    pooled = [np.convolve(each, window, "same")[: len(each)] for each in (count, lower, upper)]
    share = np.zeros(len(count))
    for place in np.flatnonzero(count > 0).tolist():
        one = LatencyCount.split(count[place], lower[place], upper[place])
        shape = LatencyCount.split(*(float(each[place]) for each in pooled))
        share[place] = min(1.0, one.misses(shape, bucket, bound).share)
    return share


def _slow(
    bound: float | None, bucket: tuple[float, float], count: Floats, lower: Floats, upper: Floats, mean: Floats
) -> Floats:
    """Share of each bin's requests whose tokens came too slowly."""
    share = np.zeros(len(count))
    if bound is None:
        return share
    for place in np.flatnonzero(count > 0).tolist():
        one = LatencyCount.split(count[place], lower[place], upper[place])
        cut = one.straddling * late_share_by_mean(float(mean[place]), bucket, bound) if one.straddling > 0 else 0.0
        share[place] = min(1.0, (one.late + cut) / count[place])
    return share


def serving(intervals: Intervals, begin: float, bins: int, width: float) -> Floats:
    """Mean number of pods in each bin: from half an interval before their first scrape to as long after the last."""
    edges, total = begin + width * np.arange(bins + 1), np.zeros(bins)
    half = 0.5 * intervals.scrape_interval
    for _, first, last in intervals.pods:
        total += np.clip(np.minimum(edges[1:], last + half) - np.maximum(edges[:-1], first - half), 0.0, None)
    return total / width


def requested(intervals: Intervals, begin: float, bins: int, width: float) -> Floats | None:
    """spec.replicas in each bin; None where it is not known."""
    if not intervals.requested:
        return None
    at, count = np.array(intervals.requested).T
    middle = begin + width * (np.arange(bins) + 0.5)
    return np.asarray(count[np.clip(np.searchsorted(at, middle, side="right") - 1, 0, len(at) - 1)])
