"""What the length of the queues says of one interval: how long requests waited, and which replicas were full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from servingpool.decision.columns import GENERATED, ITL_SUM, TTFT_COUNT, TTFT_LOWER, TTFT_SUM
from servingpool.decision.observation import NOT_EXPOSED
from servingpool.decision.pool import Slo
from servingpool.decision.queueing import Queue, queue
from servingpool.decision.unknown import Reading, Unknown

STANDS = 10.0
"""Seconds that requests must wait where no TTFT is asked for, to say that a replica is full."""


STUCK = 60.0
"""Seconds that the next request has waited, from which on an engine that serves nothing is stuck."""
BESIDE_A_QUEUE = 2.0
"""TTFT from admission of requests that waited, over the mean of all: a queue forms while prefills are many and long. At
1 status said 3 to 7 points more than clients saw on prompts of 4,000 and 12,000 tokens, at 2 at most 3."""


class Full(NamedTuple):
    """What one replica did in an interval at both ends of which requests had waited for too long."""

    room: bool
    """Its batch was not as large as others: it may have had nothing to do in between."""
    seconds: float
    requests: float
    """That got their first token."""
    tokens: float
    """Generated."""
    decoding: float
    """Requests in the batch that decoded, summed over the seconds."""
    waited: float
    """Of the requests: all, if there was no room for them, or they waited at the gateway; else none."""
    on_time: float
    """Of those that waited, by the histogram: nearly none where it holds the time in the queue."""


class Served(NamedTuple):
    """One replica's interval."""

    before: Queue | None
    now: Queue | None
    seconds: float
    came: Sequence[float]
    """Increase of each figure."""

    @property
    def stuck(self) -> bool:
        """Whether nothing was served while requests waited, for minutes."""
        idle = self.came[TTFT_COUNT] == 0.0 and self.came[ITL_SUM] == 0.0
        return idle and self.now is not None and self.now.wait >= max(self.seconds, STUCK)

    @property
    def room(self) -> bool:
        """Whether the batch may have had room in the interval."""
        if self.now is None or self.before is None:
            return True
        # The next request has waited since before the interval began, so there was no room for it all the time.
        stood = self.now.wait >= self.seconds and self.came[ITL_SUM] > 0.0
        return not stood and (self.before.room or self.now.room)


def stands(slo: Slo) -> float:
    """Seconds that the next request has waited, from which on a queue stands: prefills hold one up for a moment."""
    return STANDS if slo.time_to_first_token is None else slo.time_to_first_token


def door_after(queued: Reading, before: Queue | None, passed: float, at: float | None) -> Queue | None:
    """The gateway's queue, of which `passed` more have reached an engine; as it was where it is not known."""
    if isinstance(queued, Unknown) or at is None:
        return None if queued is NOT_EXPOSED else before
    if before is not None and at <= before.at:
        return before
    left = 0.0 if before is None else before.joined[-1][1] - before.requests
    return queue(before, at=at, requests=queued, left=left + max(0.0, passed))


def wait(own: Queue | None, door: Queue | None) -> float:
    """Seconds that the request at the head of a replica's queue has waited, at the gateway too."""
    return (0.0 if own is None else own.wait) + (0.0 if door is None else door.wait)


def judged_by_queue(one: Served, begin: float, end: float, bound: float | None) -> tuple[float, float]:
    """WAITED and LATE_BY_QUEUE of the requests that one replica began to serve.

    Half of them waited as long as the next one had at the `begin`, half as at the `end`: where a queue comes and goes
    between two looks, that is right on average, and a line between the two would count each peak twice.
    """
    requests = one.came[TTFT_COUNT]
    if requests <= 0.0:
        return 0.0, 0.0
    ttft = BESIDE_A_QUEUE * one.came[TTFT_SUM] / requests
    late = 0.0
    if bound is not None and begin + end > 0.0:
        late = requests * 0.5 * ((begin + ttft > bound) + (end + ttft > bound))
    return requests * 0.5 * (begin + end), late


def overloaded(one: Served, bound: float | None, *, at_the_gateway: bool) -> Full:
    """What a replica did in an interval at both ends of which requests had waited for too long.

    `at_the_gateway`: they had waited for longer than `bound` seconds before they reached an engine.
    """
    came, requests = one.came, one.came[TTFT_COUNT]
    # Two bursts, each gone before the next, look like one queue, unless the batch had no room between them.
    waited = bound is not None and (at_the_gateway or not one.room)
    return Full(
        room=one.room,
        seconds=one.seconds,
        requests=requests,
        tokens=came[GENERATED],
        decoding=came[ITL_SUM],
        waited=requests if waited else 0.0,
        on_time=came[TTFT_LOWER] if waited else 0.0,
    )
