"""Figures as words; what is not known is a dash."""

from __future__ import annotations

from servingpool.api.duration import brief

UNKNOWN = "–"


def seconds(value: float | None) -> str:
    """`1.32s`, `48ms`."""
    return UNKNOWN if value is None else brief(value)


def percent(share: float | None) -> str:
    """`97.3%` of a share from 0 to 1."""
    return UNKNOWN if share is None else f"{100 * share:.1f}%"


def rate(value: float | None, unit: str) -> str:
    """`1,190 tok/s`, `5.6 req/s`."""
    if value is None:
        return f"{UNKNOWN} {unit}"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def percentile(share: float) -> str:
    """`p95`, `p99.9`."""
    return f"p{100 * share:g}"


def saving(spent: float, other: float) -> str:
    """`-23%`: how much less was spent than the other."""
    return f"{100 * (spent / other - 1):+.0f}%" if other > 0 else UNKNOWN
