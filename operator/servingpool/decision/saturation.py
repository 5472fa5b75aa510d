"""Capacity as observed: what a replica serves while requests wait for it.

An engine may admit fewer requests at a time than its steps could carry (a limit on sequences, a small KV cache). Its
steps stay short, so by step time alone it looks idle while a queue grows. But each step costs the time `a`, however few
tokens it yields: with `n` requests in a full batch an output token costs `a / n` in addition to `b`. Counted so, a full
replica has a load of 1, whatever limits its batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servingpool.decision.intake import MOST_DECODING
from servingpool.decision.waits import Full

MEMORY = 4 * 3600.0
"""Seconds after which an observation counts 1/e, as for the miss curve. The batch stays: a limit does not expire."""
LEAST_SECONDS = 10.0
"""Replica-seconds of a full replica before it is believed: one look's."""
MOST_SECONDS = 600.0
"""Most replica-seconds that earlier observations weigh: an hour of full replicas must not outweigh today's."""
LEAST_BATCH = 0.05
"""Requests that decode: fewer than one where prefills fill the batch."""
LEFT_OUT, ENOUGH = 0.6, 20.0
"""Share on time by the TTFT histogram, of at least so many requests that waited for too long, from which on it leaves
the queue out. Where it includes the queue, almost none is on time; where not, slow prefills still make some late."""
NEARLY = 0.9
"""Of the largest batch: from here on a replica may be full."""
ANOTHER = 2.0
"""Times smaller a full batch must be than the one known, to be another limit and not a mean of both."""
CHANGED = 0.1
"""Relative change of the batch that is worth another one: what was learned by the old is put into new units then."""


SUMS = ("seconds", "requests", "tokens", "decoding", "waited", "on_time", "most_running")
"""Its fields that are never negative."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Sums over full replicas, and the batch that is gone by."""

    seconds: float = 0.0
    """Replica-seconds."""
    requests: float = 0.0
    tokens: float = 0.0
    decoding: float = 0.0
    """Requests that decoded, summed over the seconds."""
    waited: float = 0.0
    """Requests that waited for too long, by the length of the queue."""
    on_time: float = 0.0
    """Of them, by the TTFT histogram."""
    batch: float = math.inf
    """Requests that decode in a full batch; infinite where no replica was full yet."""
    most_running: float = 0.0
    """Requests in the largest batch of the last hours."""

    @property
    def queue_left_out(self) -> bool:
        """Whether the TTFT histogram leaves out the time in the queue: who waited for too long is on time by it."""
        return self.waited >= ENOUGH and self.on_time > LEFT_OUT * self.waited

    @property
    def full_from(self) -> float:
        """Requests in a batch from which on it may be full."""
        return NEARLY * self.most_running

    def learn(self, seen: Iterable[Full], *, busiest: float, running: float, elapsed: float) -> Saturation:
        """Add the replicas for which requests waited in these `elapsed` seconds.

        `busiest`: requests that decoded in the fullest one of all; `running`: those in its batch.
        """
        seen = tuple(seen)
        full = [one for one in seen if not one.room]
        keep = math.exp(-elapsed / MEMORY)
        keep *= min(1.0, MOST_SECONDS / (self.seconds * keep)) if self.seconds > 0.0 else 1.0
        now = _mean(full)
        if now is not None and self.known and now * ANOTHER < self.batch:
            keep = 0.0  # another engine, or other requests: what was seen before is of no use
        seconds = self.seconds * keep + math.fsum(one.seconds for one in full)
        # Who decodes more at a time shows that the batch was not full; more than ever ran is a damaged page.
        most_running = max(running, self.most_running * math.exp(-elapsed / MEMORY))
        decoding = self.decoding * keep + math.fsum(one.decoding for one in full)
        decoding = max(decoding, min(busiest, most_running) * seconds)
        batch = self.batch
        if seconds >= LEAST_SECONDS and decoding > 0.0:
            mean = min(MOST_DECODING, max(LEAST_BATCH, decoding / seconds))
            batch = batch if abs(mean / batch - 1.0) <= CHANGED else mean
        return Saturation(
            seconds=seconds,
            requests=self.requests * keep + math.fsum(one.requests for one in full),
            tokens=self.tokens * keep + math.fsum(one.tokens for one in full),
            decoding=decoding,
            waited=self.waited * keep + math.fsum(one.waited for one in seen),
            on_time=self.on_time * keep + math.fsum(one.on_time for one in seen),
            batch=batch,
            most_running=most_running,
        )

    @property
    def known(self) -> bool:
        """Whether a replica was seen full."""
        return math.isfinite(self.batch)


def _mean(full: Sequence[Full]) -> float | None:
    """Requests that decoded at a time in these full replicas."""
    seconds, decoding = math.fsum(one.seconds for one in full), math.fsum(one.decoding for one in full)
    return decoding / seconds if seconds >= LEAST_SECONDS and decoding > 0.0 else None
