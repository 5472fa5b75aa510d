"""How many replicas the queues keep busy."""

from __future__ import annotations

import math
from collections.abc import Iterable

from servingpool.decision.unknown import Reading, Unknown


def backlog(
    engines: Iterable[float],
    gateway: Reading,
    *,
    work: float,
    horizon: float,
    load: float,
    stuck: int = 0,
) -> float:
    """Replicas kept busy by what is queued, `work` replica-seconds each, `horizon` seconds from now.

    What is ordered now serves a cold start later, so a gateway's queue is spread over that time: divided by the TTFT
    bound it would order a fleet that arrives when the queue is long gone.

    `engines` are the requests in each engine's own queue. Nobody else can serve those, and what is gone by then, under
    the `load` of the fleet that is ordered already, orders nothing. What is left keeps its own replica busy, and no
    other, however much it is: 2,700 in the one replica that had been found called for five to work them off.

    `stuck` engines serve nothing while requests wait: each is missing, whatever its requests cost.
    """
    left = (queued * work / horizon + load - 1.0 for queued in engines if queued > 0.0)
    own = math.fsum(min(1.0, max(0.0, more)) for more in left)
    return stuck + own + (0.0 if isinstance(gateway, Unknown) else gateway * work / horizon)
