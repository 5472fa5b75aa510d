"""The time that requests wait in a queue, by its length and by the requests that left it; and a queue that grows.

First in, first out: the request that leaves now joined when (left + queued) was what has left by now. That is Little's
law for each moment instead of for a mean, so it holds while a queue grows and while it drains. It needs no histogram,
so it is right for engines whose TTFT begins at admission.

What a request costs may be unknown: nothing was decoded yet, a series is missing, samples lack a figure. If requests
wait for longer than the bound and ever more of them do, the fleet is too small all the same. Only the length of the
queues and a count of what left them is asked for. The size that follows is a guess: as many times the fleet as more
comes than it serves, with what waits served within a cold start.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Container, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from servingpool.decision.increase import risen
from servingpool.decision.observation import Histogram, Observation, Reading, ReplicaMetrics, Unknown
from servingpool.decision.params import LONGEST_GAP

MOST_POINTS = 64
"""Points kept of a queue. Beyond it every second point goes: a queue of hours is known to the minute."""

Points = tuple[tuple[float, float], ...]


class Queue(NamedTuple):
    """A queue, as last seen."""

    at: float
    """Unix time in seconds of the scrape."""
    requests: float
    joined: Points = ()
    """(Unix time, requests that had joined by then since counting began), oldest first, back to who is served next."""
    wait: float = 0.0
    """Seconds that the request at the head has waited."""
    room: bool = False
    """Whether there was room for the next request."""


def overdue(queue: Queue, bound: float) -> float:
    """Requests in a queue that have waited for more than `bound` seconds."""
    left = queue.joined[-1][1] - queue.requests + queue.room if queue.joined else 0.0
    since = queue.at - bound
    before = [point for point in queue.joined if point[0] <= since]
    if not before:
        return 0.0
    (begin, first), (end, second) = before[-1], queue.joined[min(len(before), len(queue.joined) - 1)]
    part = (since - begin) / (end - begin) if end > begin else 0.0
    return max(0.0, first + part * (second - first) - left)


def queue(
    before: Queue | None, *, at: float, requests: float, left: float, room: bool = False, reset: bool = False
) -> Queue:
    """The queue at a scrape, given the one before; `left` requests have left it since counting began.

    `room`: there is room for the next one, so it is not waiting but on its way. `reset`: counting began anew since
    `before`. Requests that give up leave too: the last to join are taken for them, so no wait comes out too short.
    """
    total = left + requests
    if before is not None and not reset and requests == 0.0:
        return Queue(at, 0.0, ((at, total),), 0.0, room)  # as most queues are
    known: Points = () if before is None else ((before.at, 0.0),) if reset else before.joined
    points = [(then, min(count, total)) for then, count in known if then < at]
    points.append((at, total))
    points = points[max(0, bisect_right(points, left, key=lambda point: point[1]) - 1) :]
    if len(points) > MOST_POINTS:
        points = [*points[:-1:2], points[-1]]
    return Queue(at, requests, tuple(points), at - _joined_at(points, min(total, left + room)), room)


def _joined_at(points: list[tuple[float, float]], left: float) -> float:
    """When the request joined that is next to leave."""
    after = bisect_right(points, left, key=lambda point: point[1])
    if after in {0, len(points)}:
        return points[max(0, after - 1)][0]  # it joined before the first point, or just now
    (begin, first), (end, second) = points[after - 1 : after + 1]
    return begin + (end - begin) * (left - first) / (second - first)


KEPT = 120.0
"""Seconds of looks that are kept, besides the bound."""
LOOKS = 3
"""Looks in a row, each with more waiting requests than the look before. A damaged figure makes one rise only."""
STEP = 0.5
"""Share of the ready replicas that is added where nothing tells how many requests they serve."""


class Look(NamedTuple):
    """The queues at one time."""

    at: float
    """Unix time in seconds of the newest scrape."""
    waiting: float
    """Requests in all queues that are known."""
    left: Mapping[str, float]
    """Requests that had left the queue by then, cumulative, of each replica that counts them; of a gateway in `""`."""
    running: Reading
    """Requests in the running batches."""


def looked(
    before: tuple[Look, ...], observation: Observation, standing: Container[str], bound: float
) -> tuple[Look, ...]:
    """The looks with this observation's, if it tells of a queue; gauges of `standing` replicas are left out."""
    ready = {replica.name for replica in observation.ready}
    samples = [one for one in observation.samples if one.replica in ready and one.replica not in standing]
    gateway = observation.gateway
    queues = [one for one in (gateway.queue, *(one.waiting for one in samples)) if not isinstance(one, Unknown)]
    times = [one.scraped_at for one in samples]
    if not isinstance(gateway.queue, Unknown) and gateway.scraped_at is not None:
        times.append(gateway.scraped_at)
    if not queues or not times:
        return before
    at = max(times)
    if before and at <= before[-1].at:
        return before
    left = {one.replica: count for one in samples if (count := _begun(one)) is not None}
    if not left and not isinstance(gateway.arrivals, Unknown) and not isinstance(gateway.queue, Unknown):
        left = {"": gateway.arrivals - gateway.queue}
    known = [one.running for one in samples if not isinstance(one.running, Unknown)]
    told = math.fsum(known) if 0 < len(known) == len(samples) else Unknown("the engines do not tell what runs")
    return (*(one for one in before if one.at > at - KEPT - bound), Look(at, math.fsum(queues), left, told))


def growth(looks: tuple[Look, ...], bound: float, horizon: float, at: float) -> tuple[float, float] | None:
    """Seconds that the first of the queue has waited at least, and replicas to serve all over those that serve now.

    None where it is not shown that ever more requests wait for longer than `bound` seconds, or not any more at Unix
    time `at`. `horizon`: seconds within which what waits is to be served, a cold start.
    """
    if len(looks) < LOOKS or at - looks[-1].at > LONGEST_GAP:
        return None
    if any(new.waiting <= old.waiting for old, new in pairwise(looks[-LOOKS:])):
        return None
    begin, now = looks[-LOOKS], looks[-1]
    waited = next((now.at - one.at for one in looks if now.at - one.at >= bound and _all_wait_still(one, now)), None)
    if waited is None:
        return None
    served, more = _left(begin, now), now.waiting - begin.waiting + now.waiting * (now.at - begin.at) / horizon
    return waited, 1.0 + (STEP if served is None or served <= 0.0 else more / served)


def _all_wait_still(then: Look, now: Look) -> bool:
    """Whether not all that waited then have left since. Where nobody counts any: whether more wait than run."""
    if served := _left(then, now):
        return served < then.waiting
    return not isinstance(now.running, Unknown) and then.waiting > now.running


def _left(then: Look, now: Look) -> float | None:
    """Requests that left the queues since; None where nobody counts them."""
    both = [name for name in then.left if name in now.left]
    if not both:
        return None
    rose, _ = risen(*(np.array([[look.left[name]] for name in both]) for look in (then, now)))
    return float(rose.sum())


def _begun(metrics: ReplicaMetrics) -> float | None:
    counts = (metrics.begun, metrics.time_to_first_token, metrics.time_per_output_token)
    first = next((one for one in counts if not isinstance(one, Unknown)), None)
    return first.count if isinstance(first, Histogram) else first
