"""From cumulative pages to what happened since the last look.

Counters restart with the engine, replicas come and go, scrapes are lost or repeat the same sample. Here,
and only here, that is turned into sums over replicas for one interval, with the replica-seconds that they
cover, so that everything after it divides one by the other and stays unbiased when half the scrapes are lost.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter, lt
from typing import NamedTuple

from servingpool.decision.columns import (
    CACHED,
    GENERATED,
    ITL_COUNT,
    ITL_SUM,
    NOTHING,
    PROMPTS,
    QUEUE_TIME_COUNT,
    REJECTED,
    TPOT_COUNT,
    TTFT_COUNT,
)
from servingpool.decision.observation import NOT_EXPOSED, Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.pool import Slo
from servingpool.decision.queueing import Queue, queue
from servingpool.decision.series import missing_series, with_empty_series
from servingpool.decision.unknown import Reading, Unknown
from servingpool.decision.waits import Full, Served, door_after, judged_by_queue, overloaded, stands, wait

LONGEST_GAP = 180.0
"""Seconds between two pages of a replica beyond which their difference is the mean of an outage and not of now."""

LEVEL_SCRAPES = 2.0
"""A rate over one pair of scrapes swings with their phase."""

_only_rising = itemgetter(TTFT_COUNT, ITL_COUNT, GENERATED, PROMPTS)
"""Figures that no engine ever lowers but by a restart. Whole numbers: a sum of seconds over ranks is another one in its
last digit where it is added in another order, and an idle replica's whole life was taken for a quarter of a minute."""
_need_not_be = itemgetter(TPOT_COUNT, CACHED, REJECTED, QUEUE_TIME_COUNT)
"""Figures that a page may lack and be whole, see `missing_series`."""

LEAST_TOKENS = 50.0
"""Decoded in an interval, below which their mean ITL is noise."""
FASTEST_STEP = 1e-5
"""Seconds. No engine steps faster; such an ITL is a damaged page, and one alone would drown the fit."""
MOST_DECODING = 8192.0
"""Requests decoding in one replica: eight times vLLM's largest default batch, so a damaged page and no engine."""
MOST_PREFILL = 1e6
"""Prefill tokens in a step, likewise: vLLM's default is 8,192 at most."""

Edges = tuple[float, float, float, float, float, float]
"""Lower and upper end, in seconds, of the bucket that holds the TTFT bound, then of the TPOT bound's, then of the queue
time histogram's that holds the TTFT bound."""
NO_EDGES: Edges = (0.0, float("inf")) * 3


@dataclass(frozen=True, slots=True)
class Page:
    """One replica's cumulative figures at one scrape."""

    at: float
    """Unix time in seconds of the scrape."""
    edges: Edges
    figures: tuple[float, ...]
    """NaN where one that need not be there was not."""
    queue: Queue | None = None
    """None where it was never shown."""


class Steps(NamedTuple):
    """The steps of one replica in one interval, as means."""

    itl: float
    """Seconds of a step."""
    decoding: float
    """Requests in the batch."""
    prefill: float
    """Prefill tokens in a step."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What happened in one interval, over the replicas that could be read twice."""

    sums: tuple[float, ...]
    """Increase of each cumulative figure, and QUEUED."""
    covered: float
    """Replica-seconds that `sums` cover."""
    steps: tuple[Steps, ...]
    """Of each replica that decoded enough to tell; of all as one where none did alone."""
    full: tuple[Full, ...]
    """Of each replica that had more to do than it could."""
    stuck: int
    """Replicas that serve nothing while requests wait for them."""
    running: Reading
    """Requests in running batches, scaled to all ready replicas."""
    most_running: float
    """Requests in the largest of them; 0 where none is known."""
    waiting: Reading
    """Requests queued in engines and at the gateway."""
    queues: tuple[float, ...]
    """Those in each ready replica's engine; empty where they are not known."""
    gateway: Reading
    """Those at the gateway."""
    door: Queue | None
    """The gateway's queue; None where there is none."""
    coverage: float
    """Share of the ready replicas whose page was read whole, 0 to 1; 0 where none is ready."""
    pages: Mapping[str, Page]
    """Per replica, to compare the next look with."""
    edges: Edges
    interval: float | None
    """Seconds between two scrapes of a replica, as seen; None where no replica was scraped again."""
    lacking: str | None
    """A series that a page should have and has not; None where none is missing."""


def take_in(
    observation: Observation, slo: Slo, previous: Mapping[str, Page], door: Queue | None = None, full_from: float = 0.0
) -> Intake:
    """Compare the pages with those of the last look, and the gateway's queue, `door`, with the one of then.

    A replica's first page is where its counting begins. `full_from`: running requests from which on one may be full.
    """
    ready = {replica.name for replica in observation.ready}
    serving, lacking = _readable(observation, slo, ready, previous)
    sums, grown, covered, intervals = list(NOTHING), 0.0, 0.0, []
    steps, whole = [], True
    served: list[Served] = []
    pages: dict[str, Page] = {}
    for metrics in serving:
        before = previous.get(metrics.replica)
        now = _page(metrics, slo, before, full_from)
        if before is not None and now.at - before.at <= LONGEST_GAP and _lost(now.figures, before.figures):
            continue  # the next page that has it is compared with the last that had
        pages[metrics.replica] = now
        if before is None or not 0.0 < now.at - before.at <= LONGEST_GAP:
            continue
        if _buckets_changed(before, now):
            continue
        restarted = any(map(lt, _only_rising(now.figures), _only_rising(before.figures)))
        base = NOTHING if restarted else before.figures
        if restarted and isinstance(metrics.waiting, Unknown):
            now = pages[metrics.replica] = replace(now, queue=None)  # that one went with the engine
        # What was never known is NaN, which is not more than anything.
        came = [new - old if new > old else 0.0 for new, old in zip(now.figures, base, strict=True)]
        grown += _growth(now, before, restarted=restarted)
        sums = [total + more for total, more in zip(sums, came, strict=True)]
        seconds = now.at - before.at
        # What came before a restart is lost, its seconds are not.
        whole = whole and not restarted
        told = None if restarted else steps_told(came, seconds)
        if told is not None:
            steps.append(told)
        covered += seconds
        intervals.append(seconds)
        shown = (before.queue, now.queue) if now.queue is not before.queue else (None, None)
        served.append(Served(*shown, seconds, came))
    if not steps and whole:
        # Many replicas with little to do are alike.
        together = steps_told(sums, covered)
        steps = [] if together is None else [together]
    # A replica whose scrape was lost, or that is not Ready for a moment, is compared with the last page that came.
    standing = ready | {replica.name for replica in observation.starting}
    pages = {name: page for name, page in previous.items() if name in standing} | pages
    share = len(serving) / len(ready) if ready else 0.0
    queues = _queues(serving, observation.ready, previous)
    waiting = queues if isinstance(queues, Unknown) else math.fsum(queues)
    passed = sums[TTFT_COUNT] + grown
    door_now = door_after(
        observation.gateway_queue, door, passed, max((page.scraped_at for page in serving), default=None)
    )
    # A queue that was not shown anew says nothing about this interval.
    doors = (door, door_now) if door_now is not door else (None, None)
    waits = [(one, wait(one.before, doors[0]), wait(one.now, doors[1])) for one in served]
    bound = slo.time_to_first_token
    judged = [judged_by_queue(one, begin, end, bound) for one, begin, end in waits]
    held_up = bound is not None and min(wait(None, one) for one in doors) > bound
    return Intake(
        sums=(*sums, grown, *(math.fsum(column) for column in zip((0.0, 0.0), *judged, strict=True))),
        covered=covered,
        steps=tuple(steps),
        full=tuple(
            overloaded(one, bound, at_the_gateway=held_up)
            for one, begin, end in waits
            if min(begin, end) >= stands(slo)
        ),
        stuck=sum(one.stuck for one in served),
        running=_gauge([page.running for page in serving], share),
        most_running=max((page.running for page in serving if not isinstance(page.running, Unknown)), default=0.0),
        waiting=_with_gateway(waiting, observation.gateway_queue),
        queues=() if isinstance(queues, Unknown) else queues,
        gateway=observation.gateway_queue,
        door=door_now,
        coverage=share,
        pages=pages,
        # Of the replica that has served most: one without a request shows no bucket.
        edges=max(pages.values(), key=lambda page: page.figures[TTFT_COUNT]).edges if pages else NO_EDGES,
        interval=min(intervals) if intervals else None,
        lacking=lacking,
    )


def _readable(
    observation: Observation, slo: Slo, ready: Container[str], previous: Mapping[str, Page]
) -> tuple[list[ReplicaMetrics], str | None]:
    """The whole pages of ready replicas, and a series that another one lacks."""
    found = () if isinstance(observation.metrics, Unknown) else observation.metrics
    serving, lacking = [], None
    for shown in found:
        if shown.replica in ready:
            before = previous.get(shown.replica)
            page = with_empty_series(shown, used=before is not None and before.figures[TTFT_COUNT] > 0.0)
            missing = missing_series(page, slo)
            lacking = lacking or missing
            if missing is None:
                serving.append(page)
    return serving, lacking


def steps_told(came: Sequence[float], seconds: float) -> Steps | None:
    """What increases of the figures over `seconds` say of a step.

    None where too little was decoded, or a damaged page says what no engine does.
    """
    count, spent = came[ITL_COUNT], came[ITL_SUM]
    if count < LEAST_TOKENS or not count * FASTEST_STEP <= spent <= seconds * MOST_DECODING:
        return None
    # Each decoding request spends all its time between tokens, so the sum of ITLs over the time is the mean
    # number decoding in it, where the gauge is one instant in fifteen seconds.
    itl = spent / count
    prefill = max(0.0, came[PROMPTS] - came[CACHED]) / seconds * itl
    return Steps(itl, spent / seconds, prefill) if prefill <= MOST_PREFILL else None


def _buckets_changed(before: Page, now: Page) -> bool:
    """Whether a bound lies in another bucket now; without an observation there was none."""
    counts = (TTFT_COUNT, TPOT_COUNT, QUEUE_TIME_COUNT)
    return any(
        before.edges[2 * place : 2 * place + 2] != now.edges[2 * place : 2 * place + 2] and before.figures[count] > 0.0
        for place, count in enumerate(counts)
    )


def _page(metrics: ReplicaMetrics, slo: Slo, before: Page | None, full_from: float) -> Page:
    ttft, tpot, itl = metrics.time_to_first_token, metrics.time_per_output_token, metrics.inter_token_latency
    ttft_figures, ttft_edges = _around(ttft, slo.time_to_first_token)
    tpot_figures, tpot_edges = _around(tpot, slo.time_per_output_token)
    queue_figures, queue_edges = _around(metrics.queue_time, slo.time_to_first_token)
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
        *queue_figures,
    )
    return Page(
        metrics.scraped_at,
        (*ttft_edges, *tpot_edges, *queue_edges),
        figures,
        _own_queue(metrics, figures, before, full_from),
    )


def _own_queue(
    metrics: ReplicaMetrics, figures: Sequence[float], before: Page | None, full_from: float
) -> Queue | None:
    """The engine's queue, as it was where this page does not show it.

    A request that comes between two steps waits for the next one. Where one comes each four seconds, it was taken for
    one that has waited for four.
    """
    last = None if before is None else before.queue
    if isinstance(metrics.waiting, Unknown) or (last is not None and metrics.scraped_at <= last.at):
        return last
    reset = before is not None and figures[TTFT_COUNT] < before.figures[TTFT_COUNT]
    room = not isinstance(metrics.running, Unknown) and metrics.running < full_from
    left = figures[TTFT_COUNT]
    return queue(last, at=metrics.scraped_at, requests=metrics.waiting, left=left, room=room, reset=reset)


def _growth(now: Page, before: Page, *, restarted: bool) -> float:
    """Requests by which a queue has grown from one page to the next.

    What it grew by while it was not shown for a look comes after. Of a longer time, only as much as a rate is taken
    over: what three minutes brought, taken for what half of one did, is a surge of three times what comes.
    """
    if now.queue is None:
        return 0.0
    if restarted:
        return now.queue.requests
    if before.queue is None or not 0.0 < (gap := now.queue.at - before.queue.at) <= LONGEST_GAP:
        return 0.0
    grown = now.queue.requests - before.queue.requests
    return grown * min(1.0, LEVEL_SCRAPES * (now.at - before.at) / gap)


def _around(
    histogram: Histogram | Unknown, bound: float | None
) -> tuple[tuple[float, float, float], tuple[float, float]]:
    """Count in all, at most the lower and at most the upper end of the bucket that holds `bound`; and these ends."""
    if isinstance(histogram, Unknown):
        return (math.nan, math.nan, math.nan), (0.0, float("inf"))
    if bound is None:
        return (histogram.count, histogram.count, histogram.count), (0.0, float("inf"))
    bounds, counts = histogram.bounds, histogram.counts
    above = bisect_left(bounds, bound * (1 - 1e-9))
    upper_end = bounds[above] if above < len(bounds) else float("inf")
    upper = counts[above] if above < len(bounds) else histogram.count
    if upper_end <= bound * (1 + 1e-9):
        return (histogram.count, upper, upper), (upper_end, upper_end)
    lower_end = bounds[above - 1] if above > 0 else 0.0
    lower = counts[above - 1] if above > 0 else 0.0
    return (histogram.count, lower, upper), (lower_end, upper_end)


def _gauge(readings: list[Reading], share: float) -> Reading:
    """Sum of a gauge, scaled up for the replicas that could not be read."""
    figures = [reading for reading in readings if not isinstance(reading, Unknown)]
    if not figures:
        return readings[0] if readings and isinstance(readings[0], Unknown) else Unknown("no replica was read")
    return sum(figures) * len(readings) / len(figures) / share


def _queues(
    serving: Sequence[ReplicaMetrics], ready: Sequence[Replica], previous: Mapping[str, Page]
) -> tuple[float, ...] | Unknown:
    """Requests in each engine's queue; Unknown where one does not show what others do, for queues are not alike.

    Of a replica without a page now the last one counts, and one that has turned Ready since has had no time to queue:
    with each taken for the mean of the others, 8,279 requests on three replicas became 16,618 as soon as seven more
    were Ready, by their growth 144 requests/s where 4.4 came, and 24 replicas stood for two hours where 3 do.
    """
    shown = {page.replica: page.waiting for page in serving}
    figures = [reading for reading in shown.values() if not isinstance(reading, Unknown)]
    unread = [reading for reading in shown.values() if isinstance(reading, Unknown)]
    if not figures:
        return unread[0] if unread else Unknown("no replica was read")
    if unread:
        return Unknown(f"{len(unread)} of {len(shown)} replicas show no queue: {unread[0].reason}")
    now, mean = max(page.scraped_at for page in serving), sum(figures) / len(figures)
    unseen = (one for one in ready if one.name not in shown)
    return (*figures, *(_unseen_queue(one, previous.get(one.name), now, mean) for one in unseen))


def _unseen_queue(replica: Replica, last: Page | None, now: float, mean: float) -> float:
    """Requests that a replica without a page is thought to hold, where the others hold `mean`."""
    began = -math.inf if replica.ready_for is None else now - replica.ready_for
    if now - began <= LONGEST_GAP and (last is None or began > last.at):
        return 0.0
    queue = None if last is None else last.queue
    return queue.requests if queue is not None and now - queue.at <= LONGEST_GAP else mean


def _with_gateway(waiting: Reading, queued: Reading) -> Reading:
    """The sum, of what there is: NOT_EXPOSED is no gateway, or engines that have no queue of their own."""
    if queued is NOT_EXPOSED:
        return waiting
    if isinstance(queued, Unknown):
        return queued
    if waiting is NOT_EXPOSED:
        return queued
    return waiting if isinstance(waiting, Unknown) else waiting + queued


def _or_nan(reading: Reading) -> float:
    return math.nan if isinstance(reading, Unknown) else reading


def _lost(now: Sequence[float], before: Sequence[float]) -> bool:
    """Whether a figure that was there could not be read: one that need not be, for a page without the others is none.

    Taken for 0, one look without 50,000 rejections made 50,000 arrivals of the next, and 80 replicas of 3.
    """
    pairs = zip(_need_not_be(now), _need_not_be(before), strict=True)
    return any(math.isnan(new) and not math.isnan(old) for new, old in pairs)
