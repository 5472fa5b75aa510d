"""How long requests wait in a queue, by its length and by what left it.

First in, first out: the request that leaves now joined when (left + queued) was what has left by now. That is Little's
law for each moment instead of for a mean, so it holds while a queue grows and while it drains. It needs no histogram,
so it is right for engines whose TTFT begins at admission.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

MOST_POINTS = 64
"""Points kept of one queue. Beyond it every second one goes: a queue of hours is known to the minute."""

Points = tuple[tuple[float, float], ...]


class Queue(NamedTuple):
    """One queue, as last seen."""

    at: float
    """Unix time in seconds of that scrape."""
    requests: float
    joined: Points = ()
    """(Unix time, requests that had joined by then since counting began), oldest first, back to who is served next."""
    wait: float = 0.0
    """Seconds that the request at its head has waited."""
    room: bool = False
    """Whether there was room for the next one."""


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
