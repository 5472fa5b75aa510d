"""How much of the attainment is an estimate: requests in the one bucket that a bound of the SLO cuts in two.

A histogram counts how many requests lie between two of its bounds, not where (docs/records/experiments.md).
"""

from __future__ import annotations

import math

from servingpool.catalogue.notes import Note
from servingpool.decision.latency_count import LatencyCount
from servingpool.decision.roles import client_bound
from servingpool.reconcile.pool_plan import Learned

WORTH_SAYING = 0.05
"""Share of the requests."""


def estimated(learned: Learned, ttft: float | None, tpot: float | None, *, parted: bool = False) -> list[str]:
    """A sentence for each bound (seconds) for which more than a few requests are estimated.

    `parted`: `ttft` is what the client's bound leaves the engines of one role.
    """
    bounds = (
        (ttft, learned.first_tokens, learned.buckets.ttft, parted),
        (tpot, learned.finished, learned.buckets.tpot, False),
    )
    return [said for each in bounds if (said := _said(*each))]


def _said(bound: float | None, count: LatencyCount, bucket: tuple[float, float], parted: bool) -> str:
    if bound is None or not count.total or count.straddling < WORTH_SAYING * count.total:
        return ""
    share, (lower, upper) = count.straddling / count.total, bucket
    if math.isinf(upper):
        return Note.BEYOND_LAST_BUCKET.message(share=share, last=_written(lower), bound=_written(bound))
    edges = [edge for edge in bucket if edge > 0.0]
    if parted:
        exact = " or ".join(_written(client_bound(edge)) for edge in edges)
        return Note.ESTIMATED_OF_ROLE.message(share=share, bound=_written(bound), exact=exact)
    return Note.ESTIMATED.message(share=share, bound=_written(bound), exact=" or ".join(map(_written, edges)))


def _written(seconds: float) -> str:
    """A duration as it can be put into the spec: `1s`, `2500ms`."""
    return f"{seconds:g}s" if seconds == int(seconds) else f"{1_000 * seconds:g}ms"
