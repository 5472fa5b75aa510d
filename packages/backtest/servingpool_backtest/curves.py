"""What the charts of a report are drawn from: numbers alone, so that they may come from another machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import Field

from servingpool.decision.pool import Slo
from servingpool.recording.format import Floats
from servingpool_backtest.result import Backtest

DIGITS = 6
"""Significant ones that a chart shows."""

MOST = 100_000
"""Points of a curve."""
LONGEST = 400 * 86_400.0
"""Seconds that a backtest is of."""
LAST = 32_503_680_000.0
"""Unix seconds: the year 3000."""

Number = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**6)]
Numbers = Annotated[tuple[Number, ...], Field(max_length=MOST)]
Counts = Annotated[tuple[Count, ...], Field(max_length=MOST)]
Seconds = Annotated[tuple[Number | None, ...], Field(max_length=MOST)]
"""None without a request."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """By bin."""

    requests: Numbers
    ttft: Seconds
    """Mean, as the next."""
    tpot: Seconds


@dataclass(frozen=True, slots=True)
class Steps:
    """A fleet's size, where it changes, and at its end."""

    at: Annotated[Numbers, Field(min_length=1)]
    """Unix seconds."""
    requested: Counts
    ready: Counts

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.requested) == len(self.ready):
            raise ValueError("a fleet's times and sizes must be as many")

    @classmethod
    def of(cls, at: Sequence[float], requested: Sequence[int], ready: Sequence[int]) -> Self:
        """Of one tick after another."""
        sizes = list(zip(requested, ready, strict=True))
        kept = [each for each in range(len(sizes)) if each in {0, len(sizes) - 1} or sizes[each] != sizes[each - 1]]
        return cls(
            tuple(float(at[each]) for each in kept),
            tuple(int(requested[each]) for each in kept),
            tuple(int(ready[each]) for each in kept),
        )


@dataclass(frozen=True, slots=True)
class Curves:
    """Of one backtest."""

    slo: Slo
    scored_from: Annotated[Number, Field(le=LAST)]
    """Unix seconds, as the next two."""
    scored_until: Number
    at: Annotated[Numbers, Field(min_length=1)]
    """Where each bin begins."""
    width: Annotated[Number, Field(gt=0)]
    """Of a bin, in seconds."""
    serving: Numbers
    """Pods of the history's fleet, by bin."""
    observed: Latencies
    replayed: Latencies
    """Of Auto."""
    auto: Steps
    rule: Steps | None
    """Of the autoscaler's rule; None without one that was replayed."""

    def __post_init__(self) -> None:
        shown = (self.observed, self.replayed)
        columns = [self.serving, *(each for one in shown for each in (one.requests, one.ttft, one.tpot))]
        if any(len(each) != len(self.at) for each in columns):
            raise ValueError("curves must have as many points as there are bins")
        if not 0 < self.scored_until - self.scored_from <= LONGEST:
            raise ValueError(f"a backtest must be of 0 to {LONGEST:.0f} s, got {self.scored_until - self.scored_from}")

    @classmethod
    def of(cls, found: Backtest) -> Self:
        """Of a backtest."""
        observed, bins = found.observed, found.bins
        return cls(
            slo=found.question.pool.slo,
            scored_from=found.scored_from,
            scored_until=found.scored_until,
            at=tuple(map(float, observed.at)),
            width=observed.width,
            serving=_short(observed.serving),
            observed=Latencies(_short(observed.requests), _known(observed.ttft), _known(observed.tpot)),
            replayed=Latencies(_short(bins.requests), _known(bins.ttft), _known(bins.tpot)),
            auto=Steps.of(found.auto.at, found.auto.requested, found.auto.ready),
            rule=None if found.rule is None else Steps.of(found.rule.at, found.rule.requested, found.rule.ready),
        )


def _short(values: Floats) -> tuple[float, ...]:
    return tuple(float(f"{one:.{DIGITS}g}") for one in values)


def _known(values: Floats) -> Seconds:
    return tuple(None if np.isnan(one) else float(f"{one:.{DIGITS}g}") for one in values)
