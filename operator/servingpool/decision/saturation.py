"""Capacity as observed: what a replica serves while requests wait for it.

An engine may admit fewer requests at a time than its steps could carry (a limit on sequences, a small KV cache). Its
steps stay short, so by step time alone it looks idle while a queue grows. But each step costs the time `a`, however few
tokens it yields: with `n` requests in a full batch an output token costs `a / n` in addition to `b`. Counted so, a full
replica has a load of 1, whatever limits its batch. Until one was seen full, the limit in the pod's arguments counts, if
there is one: a queue that clears between two scrapes never shows a full replica.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from servingpool.decision.params import Params

LEAST_SECONDS = 10.0
"""Replica-seconds of a full replica before it is believed: one observation's."""
LEAST_BATCH, MOST_BATCH = 0.05, 8192.0
"""Requests that decode in a full batch: fewer than one where prefills fill it; more is a damaged sample."""
ANOTHER = 2.0
"""Times smaller a full batch must be than the known one, to be another limit and not a mean of both."""
CHANGED = 0.1
"""Relative change of the batch that is worth new units of work."""


class Full(NamedTuple):
    """What one replica did in an interval at both ends of which requests had waited for too long."""

    room: bool
    """Its batch was smaller than others, or grew: it may have had room in between."""
    seconds: float
    requests: float
    """That got their first token."""
    tokens: float
    """Generated."""
    decoding: float
    """Requests in the batch that decoded, summed over the seconds."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Sums over full replicas, and the batch that follows from them."""

    seconds: float = 0.0
    """Replica-seconds."""
    requests: float = 0.0
    tokens: float = 0.0
    decoding: float = 0.0
    """Requests that decoded, summed over the seconds."""
    batch: float = math.inf
    """Requests that decode in a full batch; infinite where none was full yet, and no limit is known."""
    most_running: float = 0.0
    """Requests in the largest batch of the last hours."""

    @property
    def known(self) -> bool:
        """Whether it is known how many decode in a full batch."""
        return math.isfinite(self.batch)

    def update(
        self,
        seen: Sequence[Full],
        *,
        busiest: float,
        running: float,
        elapsed: float,
        params: Params,
        limit: float = math.inf,
    ) -> Saturation:
        """Add the replicas for which requests waited in these `elapsed` seconds.

        `busiest`: requests that decoded in the fullest replica of all; `running`: requests in its batch;
        `limit`: the most that the engine's arguments admit.
        """
        full = [one for one in seen if not one.room]
        forget = math.exp(-elapsed / params.evidence_memory)
        # An hour of full replicas must not outweigh today's.
        keep = forget * (min(1.0, params.mean_window / (self.seconds * forget)) if self.seconds > 0.0 else 1.0)
        new_seconds = math.fsum(one.seconds for one in full)
        new_decoding = math.fsum(one.decoding for one in full)
        if self.known and new_seconds >= LEAST_SECONDS and 0.0 < ANOTHER * new_decoding / new_seconds < self.batch:
            keep = 0.0  # another engine, or other requests
        seconds = self.seconds * keep + new_seconds
        most_running = max(running, self.most_running * forget)
        # A replica that decodes more shows that the batch was not full; more than ever ran is a damaged sample.
        decoding = max(self.decoding * keep + new_decoding, min(busiest, most_running) * seconds)
        batch = self.batch
        if seconds >= LEAST_SECONDS and decoding > 0.0:
            mean = min(MOST_BATCH, max(LEAST_BATCH, decoding / seconds))
            batch = batch if abs(mean / batch - 1.0) <= CHANGED else mean
        elif math.isfinite(limit):
            batch = limit
        return Saturation(
            seconds=seconds,
            requests=self.requests * keep + math.fsum(one.requests for one in full),
            tokens=self.tokens * keep + math.fsum(one.tokens for one in full),
            decoding=decoding,
            batch=batch,
            most_running=most_running,
        )
