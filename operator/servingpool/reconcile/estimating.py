"""How much of the attainment is an estimate: requests in the one bucket that a bound of the SLO cuts in two.

An engine's histogram tells how many requests lie between two of its bounds, not where. With 120 ms between 100 and
150 ms, 43% were late by the clients' clocks and 65% as it was read; with a bound at a bucket's end both say the same.
"""

from __future__ import annotations

import math

from servingpool.api.duration import brief
from servingpool.decision.ledger import KEPT_SECONDS
from servingpool.decision.slo_count import SloCount
from servingpool.decision.state import Memory

WORTH_SAYING = 0.05
"""Share of the requests."""


def estimated(memory: Memory, ttft: float | None, tpot: float | None) -> str:
    """What to say of it, as a sentence; empty where hardly a request is concerned. Bounds in seconds."""
    window = memory.ledger.last(KEPT_SECONDS)
    bounds = (
        ("timeToFirstToken", ttft, window.first_tokens(), memory.edges[:2]),
        ("timePerOutputToken", tpot, window.finished(), memory.edges[2:4]),
    )
    return "; ".join(filter(None, (_said(*each) for each in bounds)))


def _said(name: str, bound: float | None, count: SloCount, bucket: tuple[float, float]) -> str:
    if bound is None or not count.total or count.straddling < WORTH_SAYING * count.total:
        return ""
    share, (lower, upper) = count.straddling / count.total, bucket
    of_requests = f"{share:.0%} of the last {KEPT_SECONDS / 60:.0f} minutes' requests"
    if math.isinf(upper):
        last = f"the engine's last bucket begins at {brief(lower)}"
        return f"{of_requests} count as late, for {last} and {name} is {brief(bound)}"
    place = f"between the engine's buckets of {brief(lower)} and {brief(upper)}"
    if lower == 0.0:
        place = f"below the engine's first bucket of {brief(upper)}"
    return f"for {of_requests} it is an estimate, because {name} {brief(bound)} lies {place}"
