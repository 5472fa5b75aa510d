"""What requests and replicas of a pool show usually, by which damaged figures are told."""

from __future__ import annotations

import math
from collections.abc import Callable

from servingpool.decision.plausible import NOTHING_USUAL, Usual
from servingpool.decision.samples import TTFT_COUNT
from servingpool.decision.step_time import StepTime
from servingpool.decision.window import KEPT_SECONDS, RUNNING, SampleWindow

LEAST_REQUESTS = 20.0
"""In twenty minutes, below which they do not tell what is usual."""


def usual(window: SampleWindow, step: Callable[[], StepTime | None]) -> Usual:
    """Of the last twenty minutes. `step`: as learned; None while it is not known."""
    kept = window.last(KEPT_SECONDS)
    if not len(kept.rows):
        return NOTHING_USUAL

    def most_running() -> float:
        most = kept.highest(RUNNING)
        return math.inf if most is None else most

    requests = kept.total(TTFT_COUNT) if kept.covered > 0.0 else 0.0
    return Usual(
        kept.totals,
        requests if requests >= LEAST_REQUESTS else 0.0,
        kept.covered,
        most_running,
        step,
    )
