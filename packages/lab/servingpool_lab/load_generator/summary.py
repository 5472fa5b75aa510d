"""Figures over the requests of a course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from servingpool_lab.load_generator.record import OK, Record

QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a request must keep to; None binds nothing. Seconds."""

    ttft: float | None = None
    tpot: float | None = None


def summarise(records: Iterable[Record], bounds: Bounds) -> dict[str, Any]:
    """Counts by outcome, attainment of those that ended, quantiles in seconds; null where nothing was measured.

    `lag` is sent less scheduled: how late the generator itself was. `lost` are all that ended otherwise than `ok`.
    """
    sent = [record for record in records if record.sent is not None]
    ended = [record for record in sent if record.outcome is not None]
    outcomes = Counter(record.outcome for record in ended)
    met = sum(record.meets(bounds.ttft, bounds.tpot) for record in ended)
    return {
        "requests": len(sent),
        "ended": len(ended),
        "outcomes": dict(outcomes),
        "lost": len(ended) - outcomes[OK],
        "met": met,
        "attainment": met / len(ended) if ended else None,
        "tokens": sum(record.tokens for record in sent),
        "ttft": _quantiles(record.ttft for record in ended),
        "tpot": _quantiles(record.tpot for record in ended),
        "e2e": _quantiles(record.ended - record.scheduled for record in ended if record.ended is not None),
        "lag": _quantiles(record.sent - record.scheduled for record in sent if record.sent is not None),
    }


def _quantiles(values: Iterable[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    names = ("p50", "p90", "p95", "p99", "max")
    found = dict(zip(names, np.quantile(known, QUANTILES).tolist(), strict=True))
    return {"mean": float(np.mean(known)), **found}
