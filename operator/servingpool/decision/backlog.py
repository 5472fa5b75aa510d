"""How many replicas the queues keep busy."""

from __future__ import annotations

import math
from collections.abc import Iterable

from servingpool.decision.unknown import Reading, Unknown


def backlog(engines: Iterable[float], gateway: Reading, *, work: float, horizon: float) -> float:
    """Replicas kept busy by what is queued, `work` replica-seconds each, if it is gone within `horizon` seconds.

    What is ordered now comes a cold start later anyway, so a queue is spread over that time: divided by the TTFT bound
    it would order a fleet that arrives when the queue is long gone.

    `engines` are the requests in each engine's own queue. Nobody else can serve those, so they keep one replica busy at
    most, however many there are: 2,700 in the one replica that had been found called for five to work them off. A
    gateway's go to anyone.
    """
    own = math.fsum(min(1.0, queued * work / horizon) for queued in engines)
    return own + (0.0 if isinstance(gateway, Unknown) else gateway * work / horizon)
