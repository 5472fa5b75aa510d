"""Cumulative figures of one replica at one scrape, by `Column`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from servingpool.decision.increase import Floats
from servingpool.decision.observation import (
    NOT_EXPOSED,
    Bucket,
    Histogram,
    Replica,
    ReplicaMetrics,
    Unknown,
    bucket_with,
)
from servingpool.decision.observe.columns import FIGURES, Column
from servingpool.decision.observe.confirm import Level
from servingpool.decision.observe.queueing import Queue
from servingpool.decision.pool import Pool, Slo

COUNTERS = np.array([Column.TTFT_COUNT, Column.ITL_COUNT, Column.GENERATED, Column.PROMPTS])
"""Figures that no engine lowers but by a restart. Whole numbers: a sum over ranks may differ in its last digit."""
PROGRESS = np.array([Column.BEGUN, *COUNTERS])
"""Figures at least one of which rises whenever an engine does anything for a request."""
NEEDED = np.array([*PROGRESS, Column.TPOT_COUNT])
"""Figures that begin with the first request, and some that no decision can do without."""
OPTIONAL = {Column.TPOT_COUNT: "requests finished", Column.CACHED: "cached tokens", Column.REJECTED: "rejections"}
"""Figures that a whole sample may lack, in words."""
NO_ARRIVALS = "a count of requests, and the gateway tells none either"
EMPTY = Histogram((), (), 0.0, 0.0)
NOT_KNOWN = Histogram((), (), math.nan, math.nan)


class Buckets(NamedTuple):
    """Buckets that hold the SLO's bounds; `client` holds that of TTFT."""

    ttft: Bucket = Bucket()
    tpot: Bucket = Bucket()
    client: Bucket = Bucket()
    """Bucket of the gateway's TTFT histogram."""


NO_BUCKETS = Buckets()


class Sample(NamedTuple):
    """Cumulative figures of one replica at one scrape."""

    at: float
    """Unix time in seconds of the scrape."""
    buckets: Buckets
    figures: tuple[float, ...]
    """Figures by `Column`; NaN where an optional figure was absent."""
    queue: Queue | None = None
    """The engine's queue; None where it was never exposed."""
    running: float = math.nan
    """Requests in the batch; NaN where it was not exposed."""
    held: float = 0.0
    """Requests that its gauges show in the engine, running and waiting."""
    level: Level | None = None
    """The queue as its gauge shows it; None where it shows none."""
    doubted: Sample | None = None
    """The sample after this sample, if it was not believed; else None."""
    sources: float = 0.0
    """Parts that the figures are the sums of."""
    moved_at: float = 0.0
    """Unix time in seconds of the last scrape at which a counter had moved, or no request was held."""
    most_prompts: float = math.inf
    """Prompt tokens counted beyond which requests must have begun: more than those bring that were held when the last
    one began, or have come since."""


NO_SAMPLE = Sample(-math.inf, NO_BUCKETS, (math.nan,) * FIGURES, held=math.nan)
"""Of a replica that was not read before."""


class Standing(NamedTuple):
    """A replica that hangs: for minutes it has held requests, and no counter has moved.

    Or its gauges were left behind by requests that were aborted. What they show is no queue that anybody works off, and
    no proof of demand; the replica serves nothing, so another one is added.
    """

    replica: str
    """The pod's name."""
    since: float
    """Unix time in seconds, by Prometheus' clock, of the scrape at which it was last seen to move."""
    requests: float
    """Requests that its gauges show, running and waiting."""


def standing_still(samples: Mapping[str, Sample], ready: Iterable[Replica], pool: Pool) -> tuple[Standing, ...]:
    """The `ready` replicas that hang. To compute a prompt for as long as the TTFT bound allows is no hang."""
    after = max(pool.params.stands_still, pool.slo.time_to_first_token or 0.0)
    found = [(replica.name, samples[replica.name]) for replica in ready if replica.name in samples]
    still = ((name, one) for name, one in found if one.held > 0.0 and one.at - one.moved_at >= after)
    return tuple(Standing(name, one.moved_at, one.held) for name, one in still)


def missing_series(metrics: ReplicaMetrics, slo: Slo) -> str | None:
    """Name of a series that no decision can do without; None where all such series are there.

    A series that relabelling drops or an upgrade renames is not a series of zeros: with TTFT gone, arrivals would read
    zero under full load and the fleet would go.
    """
    counted = metrics.prefill_seconds is NOT_EXPOSED
    essential = {
        "time to first token" if counted else NO_ARRIVALS: metrics.time_to_first_token,
        "inter-token latency": metrics.inter_token_latency,
        "generation tokens": metrics.generation_tokens,
        "prompt tokens": metrics.prompt_tokens,
    }
    if slo.time_per_output_token is not None:
        essential["time per output token"] = metrics.time_per_output_token
    if metrics.begun is not NOT_EXPOSED:
        essential["requests begun"] = metrics.begun
    return next((name for name, figure in essential.items() if isinstance(figure, Unknown)), None)


def with_empty_series(metrics: ReplicaMetrics, *, used: bool = False) -> ReplicaMetrics:
    """The sample with zero for series that begin with the first request; `used`: the engine had a request before.

    With nothing running, waiting or counted, what is absent has counted nothing. While no more requests got their first
    token than are running, none has finished, so what is counted at the end is absent for that reason.
    """
    ttft, between, mean = metrics.time_to_first_token, metrics.inter_token_latency, metrics.time_per_output_token
    generated, prompts = metrics.generation_tokens, metrics.prompt_tokens
    if all(one is not NOT_EXPOSED for one in (ttft, between, mean, generated, prompts)):  # `in` compares by value
        return metrics
    if ttft is NOT_EXPOSED and not used and _idle(metrics):
        ttft = EMPTY
    if isinstance(ttft, Unknown) or isinstance(metrics.running, Unknown) or ttft.count > metrics.running:
        return metrics
    return replace(
        metrics,
        time_to_first_token=ttft,
        generation_tokens=0.0 if generated is NOT_EXPOSED else generated,
        prompt_tokens=0.0 if prompts is NOT_EXPOSED else prompts,
        inter_token_latency=EMPTY if between is NOT_EXPOSED else between,
        time_per_output_token=EMPTY if mean is NOT_EXPOSED else mean,
    )


def _idle(metrics: ReplicaMetrics) -> bool:
    histograms = (metrics.inter_token_latency, metrics.time_per_output_token)
    counted = [metrics.generation_tokens, metrics.prompt_tokens]
    counted += [one.count if isinstance(one, Histogram) else one for one in histograms]
    return metrics.running == 0.0 == metrics.waiting and all(one is NOT_EXPOSED or one == 0.0 for one in counted)


def table_of(metrics: Sequence[ReplicaMetrics], slo: Slo) -> tuple[Floats, list[Buckets]]:
    """Figures of samples, [replica, column], NaN where one is not known; and each one's buckets."""
    ttft, ttft_buckets = _around([one.time_to_first_token for one in metrics], slo.time_to_first_token)
    tpot, tpot_buckets = _around([one.time_per_output_token for one in metrics], slo.time_per_output_token)
    between = _known([one.inter_token_latency for one in metrics])
    rows = [
        (
            *first,
            *last[:3],
            itl.total,
            itl.count,
            one.generation_tokens,
            one.prompt_tokens,
            one.cached_prompt_tokens,
            one.admission_rejections,
            first[0] if one.begun is NOT_EXPOSED else one.begun,
        )
        for one, first, last, itl in zip(metrics, ttft, tpot, between, strict=True)
    ]
    table = np.array(rows, dtype=np.float64).reshape(-1, FIGURES)
    table[:, Column.BEGUN] = np.maximum(table[:, Column.BEGUN], table[:, Column.TTFT_COUNT])
    pairs = list(zip(ttft_buckets, tpot_buckets, strict=True))
    buckets = {each: Buckets(*each) for each in set(pairs)}
    return table, [buckets[each] for each in pairs]


def bucket_changed(before: Sample, now: Sample) -> bool:
    """Whether a bound of the SLO lies in another bucket than before; not where nothing was observed before."""
    counts = (Column.TTFT_COUNT, Column.TPOT_COUNT)
    return any(
        old != new and before.figures[count] > 0.0
        for count, old, new in zip(counts, before.buckets, now.buckets, strict=False)
    )


def _known(read: Sequence[Histogram | Unknown]) -> list[Histogram]:
    return [one if type(one) is Histogram else NOT_KNOWN for one in read]


def _around(
    read: Sequence[Histogram | Unknown], bound: float | None
) -> tuple[list[tuple[float, float, float, float, float]], list[Bucket]]:
    """Of each: count, count up to both ends of the bucket with the bound, and sum; and that bucket."""
    known = _known(read)
    at = {bounds: bucket_with(bound, bounds) for bounds in {one.bounds for one in known}}
    each = [(one, (0.0, *one.counts, one.count), *at[one.bounds]) for one in known]
    rows = [
        (one.count, counts[lower], counts[upper], one.total, _most(one, lower)) for one, counts, lower, upper, _ in each
    ]
    return rows, [bucket for *_, bucket in each]


def _most(read: Histogram, lower: int) -> float:
    """Seconds that the observations up to this bound took at most, by the buckets that are read below it."""
    between = zip(read.bounds[: max(0, lower)], (0.0, *read.counts), read.counts, strict=False)
    return sum([bound * (up_to - below) for bound, below, up_to in between])
