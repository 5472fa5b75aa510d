"""How much of the attainment is an estimate: requests in the one bucket that a bound of the SLO cuts in two.

An engine's histogram tells how many requests lie between two of its bounds, not where. With 120 ms between 100 and
150 ms, 43% were late by the clients' clocks and 65% as it was read; with a bound at a bucket's end both say the same.
"""

from __future__ import annotations

import math

from servingpool.api.duration import brief
from servingpool.decision.memory import Memory
from servingpool.decision.slo_count import SloCount

WORTH_SAYING = 0.05
"""Share of the requests."""
WINDOW = 1200.0
"""Seconds looked back: what a ledger keeps."""


def estimated(memory: Memory, ttft: float | None, tpot: float | None) -> str:
    """What to say of it, as a sentence; empty where hardly a request is concerned. Bounds in seconds."""
    window = memory.ledger.last(WINDOW)
    bounds = (
        ("timeToFirstToken", ttft, window.first_tokens(), memory.edges[:2]),
        ("timePerOutputToken", tpot, window.finished(), memory.edges[2:]),
    )
    return "; ".join(
        said
        for name, bound, count, bucket in bounds
        if bound is not None and (said := _said(name, bound, count, bucket))
    )


def _said(name: str, bound: float, count: SloCount, bucket: tuple[float, float]) -> str:
    if not count.total or count.straddling < WORTH_SAYING * count.total:
        return ""
    share, (lower, upper) = count.straddling / count.total, bucket
    if math.isinf(upper):
        return (
            f"{share:.0%} of requests count as late, for the engine's last bucket begins at {brief(lower)} and "
            f"{name} is {brief(bound)}"
        )
    return (
        f"for {share:.0%} of requests that is an estimate, because {name} {brief(bound)} lies between the engine's "
        f"buckets of {brief(lower)} and {brief(upper)}"
    )
