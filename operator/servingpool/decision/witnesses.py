"""Three witnesses of late first tokens: the TTFT histogram, the length of the queue, the engine's queue-time histogram.

A TTFT histogram may begin at admission, and then knows nothing of the queue; so does every TTFT behind a gateway that
queues. Where it leaves the queue out the other two count, the more pessimistic one of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from servingpool.decision.columns import LATE_BY_QUEUE
from servingpool.decision.intake import LONGEST_GAP
from servingpool.decision.ledger import KEPT_SECONDS, Misses, Window, misses
from servingpool.decision.memory import Memory
from servingpool.decision.observation import Observation
from servingpool.decision.queueing import Queue, overdue

WINDOW = 300.0
"""Seconds over which the two other witnesses are compared."""
SHAPE_WINDOW = 600.0
"""Over which the late share of the bucket that the bound cuts is taken."""
MORE, FEW = 1.5, 5.0
"""The queue-time histogram is believed if it counts so many times as many late requests as the other witness, plus so
many, over the whole window: it counts a request at its end, so over minutes the two count different requests."""


class Witness(StrEnum):
    """Who tells of late first tokens."""

    HISTOGRAM = "TTFT histogram"
    QUEUE = "queue depth"
    QUEUE_TIME = "queue-time histogram"


class Testimony(NamedTuple):
    """First tokens of a window, and how many were late, by each witness."""

    requests: float
    histogram: float
    queue: float
    """With the histogram's TTFT on top of the time in the queue."""
    queue_time: float

    def late(self, witness: Witness) -> float:
        """Late requests as that witness has it, with what the histogram sees beside: a long prefill is no queue."""
        if witness is Witness.HISTOGRAM or self.requests <= 0.0:
            return self.histogram
        waited = min(self.requests, self.queue if witness is Witness.QUEUE else self.queue_time)
        return waited + self.histogram * (1.0 - waited / self.requests)


def testimony(memory: Memory, window: Window, bound: float | None) -> Testimony:
    """What each witness says of the first tokens of a window; `bound` in seconds."""
    pooled = memory.ledger.last(SHAPE_WINDOW)
    ttft = misses(window.first_tokens(), pooled.first_tokens(), memory.edges[:2], bound)
    queue_time = misses(window.queue_times(), pooled.queue_times(), memory.edges[4:], bound)
    return Testimony(
        requests=ttft.requests,
        histogram=ttft.late,
        queue=window.total(LATE_BY_QUEUE),
        # Those that ended, as a number: beside new replicas a full one ends more late requests than begin there.
        queue_time=queue_time.late,
    )


def believed(memory: Memory, bound: float | None) -> Witness:
    """Whom to believe now."""
    left_out = memory.profile.saturation.queue_left_out
    said = testimony(memory, memory.ledger.last(WINDOW if left_out else KEPT_SECONDS), bound)
    first, late = (Witness.QUEUE, said.queue) if left_out else (Witness.HISTOGRAM, said.histogram)
    return Witness.QUEUE_TIME if said.queue_time > MORE * late + FEW else first


def late_first_tokens(memory: Memory, window: Window, bound: float | None) -> Misses:
    """First tokens of a window and how many were late, by the witness that is believed now."""
    said = testimony(memory, window, bound)
    return Misses(said.requests, said.late(believed(memory, bound)))


def longest_wait(observation: Observation, memory: Memory) -> float:
    """Seconds that the request has waited which has waited longest, at a replica or at the gateway."""
    queues, door = _queues(observation, memory)
    return (0.0 if door is None else door.wait) + max((queue.wait for queue in queues), default=0.0)


def waiting_too_long(observation: Observation, memory: Memory, bound: float | None) -> float:
    """Requests that wait now and have waited for more than `bound` seconds."""
    if bound is None:
        return 0.0
    queues, door = _queues(observation, memory)
    return sum(overdue(queue, bound) for queue in [*queues, *(() if door is None else (door,))])


def _queues(observation: Observation, memory: Memory) -> tuple[list[Queue], Queue | None]:
    """The replicas' queues and the gateway's, as shown in the last minutes.

    A replica that fails its probe because it is full still has its queue.
    """
    now = memory.at or 0.0
    pages = (memory.pages.get(replica.name) for replica in (*observation.ready, *observation.starting))
    queues = [page.queue for page in pages if page is not None and page.queue is not None]
    recent = [queue for queue in queues if now - queue.at <= LONGEST_GAP]
    door = memory.door
    return recent, door if door is not None and now - door.at <= LONGEST_GAP else None
