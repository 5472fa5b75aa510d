"""The time that requests wait in a queue, by its length and by the requests that left it; and a queue that grows.

First in, first out: the request that leaves now joined when (left + queued) was what has left by now. That is Little's
law for each moment instead of for a mean, so it holds while a queue grows and while it drains. It needs no histogram,
so it is right for engines whose TTFT begins at admission.

What a request costs may be unknown: nothing was decoded yet, a series is missing, samples lack a figure. If more
requests wait than run, and more at each look, the fleet is too small all the same. Only the length of the queues is
asked for. The size that follows is a guess: half as many again as serve.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Container
from typing import NamedTuple

from servingpool.decision.observation import Observation, Unknown

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
    head = bisect_right(points, left, key=lambda point: point[1])
    points = points[max(0, head - 1) :]
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


LOOKS = 3
"""Looks in a row, each with more waiting requests than the look before. A damaged figure makes one rise only."""


class Growth(NamedTuple):
    """The queues, as far as they are known, while they are longer at each look."""

    at: float
    """Unix time in seconds of the newest scrape."""
    since: float
    """That of the first of these looks."""
    looks: int
    waiting: float
    """Requests in all queues."""
    running: float
    """Requests in the running batches, as far as they are known."""

    def lasts(self, bound: float) -> bool:
        """Whether more requests wait than run, and the queues have grown for longer than `bound` seconds."""
        return self.looks >= LOOKS and self.at - self.since >= bound and self.waiting > self.running


def grown(before: Growth | None, observation: Observation, standing: Container[str]) -> Growth | None:
    """The growth with this observation's look, if it tells of a queue; gauges of `standing` replicas are left out."""
    ready, gateway = {one.name for one in observation.ready}, observation.gateway
    samples = () if isinstance(observation.metrics, Unknown) else observation.metrics
    samples = tuple(one for one in samples if one.replica in ready and one.replica not in standing)
    told = [(gateway.scraped_at or 0.0, gateway.queue), *((one.scraped_at, one.waiting) for one in samples)]
    queues = [(at, queue) for at, queue in told if not isinstance(queue, Unknown)]
    if not queues or (before is not None and max(queues)[0] <= before.at):
        return before
    at, waiting = max(queues)[0], math.fsum(queue for _, queue in queues)
    running = math.fsum(one.running for one in samples if not isinstance(one.running, Unknown))
    if before is None or waiting <= before.waiting:
        return Growth(at, at, 1, waiting, running)
    return Growth(at, before.since, before.looks + 1, waiting, running)
