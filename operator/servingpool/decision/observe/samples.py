"""Cumulative figures of one replica at one scrape, in fixed places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from servingpool.decision.increase import Change, change
from servingpool.decision.observation import NOT_EXPOSED, Bucket, Histogram, Reading, Replica, ReplicaMetrics, Unknown
from servingpool.decision.observe.queueing import Queue, queue
from servingpool.decision.pool import Pool, Slo

# Only raw figures: a reset shows as a counter that falls, and a derived figure falls without one.
(TTFT_COUNT, TTFT_LOWER, TTFT_UPPER, TTFT_SUM, TPOT_COUNT, TPOT_LOWER, TPOT_UPPER) = range(7)
(ITL_SUM, ITL_COUNT, GENERATED, PROMPTS, CACHED, REJECTED, BEGUN, FIGURES) = range(7, 15)
QUEUED, WAITED, LATE_BY_QUEUE, CLIENT_COUNT, CLIENT_LOWER, CLIENT_UPPER, FIELDS = range(FIGURES, FIGURES + 7)
"""Places in the sums alone: growth of the engines' queues in requests; seconds that requests with a first token waited
by the queues' length; late requests by that wait plus the histogram's TTFT; the client's TTFT, as the gateway counts
it. `FIELDS`: number of all places."""

COUNTERS = itemgetter(TTFT_COUNT, ITL_COUNT, GENERATED, PROMPTS)
"""Figures that no engine lowers but by a restart. Whole numbers: a sum over ranks may differ in its last digit."""
PROGRESS = itemgetter(BEGUN, TTFT_COUNT, ITL_COUNT, GENERATED, PROMPTS)
"""Figures at least one of which rises whenever an engine does anything for a request."""
OPTIONAL = {TPOT_COUNT: "requests finished", CACHED: "cached prompt tokens", REJECTED: "rejections"}
"""Figures that a whole sample may lack, in words."""
NO_ARRIVALS = "a count of requests, and the gateway tells none either"
EMPTY = Histogram((), (), 0.0, 0.0)


class Buckets(NamedTuple):
    """Buckets that hold the SLO's bounds; `client` holds that of TTFT."""

    ttft: Bucket = Bucket()
    tpot: Bucket = Bucket()
    client: Bucket = Bucket()
    """Bucket of the gateway's TTFT histogram."""


NO_BUCKETS = Buckets()


@dataclass(frozen=True, slots=True)
class Sample:
    """Cumulative figures of one replica at one scrape."""

    at: float
    """Unix time in seconds of the scrape."""
    buckets: Buckets
    figures: tuple[float, ...]
    """Figures by place; NaN where an optional figure was absent."""
    queue: Queue | None = None
    """The engine's queue; None where it was never exposed."""
    running: float = math.nan
    """Requests in the batch; NaN where it was not exposed."""
    held: float = 0.0
    """Requests that its gauges show in the engine, running and waiting."""
    jumped: tuple[Reading, Reading] = (NOT_EXPOSED, NOT_EXPOSED)
    """Requests running and waiting that its gauges showed and that were not believed at this scrape; `plausible`."""
    doubted: Sample | None = None
    """The sample after this sample, if it was not believed; else None."""
    moved_at: float = 0.0
    """Unix time in seconds of the last scrape at which a counter had moved, or no request was held."""

    @property
    def begins_at_first_token(self) -> bool:
        """Whether as many requests have left the queue as have their first token."""
        return self.figures[BEGUN] == self.figures[TTFT_COUNT]


class Standing(NamedTuple):
    """A replica that hangs: for minutes it has held requests, and no counter has moved.

    Or its gauges were left behind by requests that were aborted. What they show is no queue that anybody works off, and
    no proof of demand; the replica serves nothing, so another one is added for it.
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
    return tuple(
        Standing(name, one.moved_at, one.held)
        for name, one in found
        if one.held > 0.0 and one.at - one.moved_at >= after
    )


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
    ttft = metrics.time_to_first_token
    first = (ttft, metrics.generation_tokens, metrics.prompt_tokens)
    if all(one is not NOT_EXPOSED for one in (*first, metrics.inter_token_latency, metrics.time_per_output_token)):
        return metrics
    if ttft is NOT_EXPOSED and not used and _idle(metrics):
        ttft = EMPTY
    if isinstance(ttft, Unknown) or isinstance(metrics.running, Unknown) or ttft.count > metrics.running:
        return metrics
    between, mean = metrics.inter_token_latency, metrics.time_per_output_token
    return replace(
        metrics,
        time_to_first_token=ttft,
        generation_tokens=0.0 if metrics.generation_tokens is NOT_EXPOSED else metrics.generation_tokens,
        prompt_tokens=0.0 if metrics.prompt_tokens is NOT_EXPOSED else metrics.prompt_tokens,
        inter_token_latency=EMPTY if between is NOT_EXPOSED else between,
        time_per_output_token=EMPTY if mean is NOT_EXPOSED else mean,
    )


def _idle(metrics: ReplicaMetrics) -> bool:
    histograms = (metrics.inter_token_latency, metrics.time_per_output_token)
    counted = [metrics.generation_tokens, metrics.prompt_tokens]
    counted += [one.count if isinstance(one, Histogram) else one for one in histograms]
    return (
        metrics.running == 0.0 and metrics.waiting == 0.0 and all(one is NOT_EXPOSED or one == 0.0 for one in counted)
    )


def sample(metrics: ReplicaMetrics, slo: Slo, before: Sample | None, full_from: float) -> Sample:
    """The sample of one scrape; `full_from`: running requests from which on a replica may be full."""
    ttft, itl = metrics.time_to_first_token, metrics.inter_token_latency
    ttft_figures, ttft_bucket = _around(ttft, slo.time_to_first_token)
    tpot_figures, tpot_bucket = _around(metrics.time_per_output_token, slo.time_per_output_token)
    figures = (
        *ttft_figures,
        ttft.total if isinstance(ttft, Histogram) else math.nan,
        *tpot_figures,
        itl.total if isinstance(itl, Histogram) else math.nan,
        itl.count if isinstance(itl, Histogram) else math.nan,
        _or_nan(metrics.generation_tokens),
        _or_nan(metrics.prompt_tokens),
        _or_nan(metrics.cached_prompt_tokens),
        _or_nan(metrics.admission_rejections),
        ttft_figures[0] if isinstance(metrics.begun, Unknown) else max(metrics.begun, ttft_figures[0]),
    )
    buckets = Buckets(ttft_bucket, tpot_bucket)
    held = 0.0 if isinstance(metrics.running, Unknown) else metrics.running
    held += 0.0 if isinstance(metrics.waiting, Unknown) else metrics.waiting
    moved = before is None or PROGRESS(figures) != PROGRESS(before.figures)
    return Sample(
        metrics.scraped_at,
        buckets,
        figures,
        _queue_after(metrics, figures, before, full_from),
        running=_or_nan(metrics.running),
        held=held,
        moved_at=metrics.scraped_at if moved or before is None or held <= 0.0 else before.moved_at,
    )


def bucket_changed(before: Sample, now: Sample) -> bool:
    """Whether a bound of the SLO lies in another bucket than before; not where nothing was observed before."""
    if now.buckets == before.buckets:
        return False
    counts = (TTFT_COUNT, TPOT_COUNT)
    return any(
        old != new and before.figures[count] > 0.0
        for count, old, new in zip(counts, before.buckets, now.buckets, strict=False)
    )


def lost(before: Sample, now: Sample) -> str | None:
    """Name of an optional figure that a sample lacks and the sample before had; None where there is none.

    Taken for 0, one scrape without 50,000 rejections made 50,000 arrivals of the next, and 80 replicas of 3. Left at
    what it was, the other figures of its scrape would be read without it.
    """
    pairs = ((name, now.figures[column], before.figures[column]) for column, name in OPTIONAL.items())
    return next((name for name, new, old in pairs if math.isnan(new) and not math.isnan(old)), None)


def change_between(before: Sample, now: Sample) -> Change:
    """Change of a replica between two samples; a sample that lost a figure is damaged."""
    if lost(before, now) is not None:
        return Change.DAMAGED
    return change(COUNTERS(before.figures), COUNTERS(now.figures))


def _queue_after(
    metrics: ReplicaMetrics, figures: tuple[float, ...], before: Sample | None, full_from: float
) -> Queue | None:
    """The engine's queue; as it was where this scrape lacks it.

    A request that comes between two steps waits for the next one. With `room` it does not count as one that waits.
    """
    last = None if before is None else before.queue
    if isinstance(metrics.waiting, Unknown) or (last is not None and metrics.scraped_at <= last.at):
        return last
    reset = before is not None and change(COUNTERS(before.figures), COUNTERS(figures)) is not Change.CONTINUED
    # A request that is aborted in the batch is not begun any more; it has left the queue all the same.
    left = figures[BEGUN] if before is None or reset else max(figures[BEGUN], before.figures[BEGUN])
    room = not isinstance(metrics.running, Unknown) and metrics.running < full_from
    return queue(last, at=metrics.scraped_at, requests=metrics.waiting, left=left, room=room, reset=reset)


def _around(histogram: Histogram | Unknown, bound: float | None) -> tuple[tuple[float, float, float], Bucket]:
    return ((math.nan,) * 3, Bucket()) if isinstance(histogram, Unknown) else histogram.around(bound)


def _or_nan(reading: Reading) -> float:
    return math.nan if isinstance(reading, Unknown) else reading
