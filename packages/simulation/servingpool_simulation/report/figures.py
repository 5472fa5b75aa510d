"""Figures as people read them. `-` where there is none."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal

from servingpool.api.duration import brief
from servingpool.decision.pool import Slo


def percent(share: float) -> str:
    """Two digits after the point near 100, where they matter: `99.35%`, `87.1%`.

    Never rounded up: a miss among many thousands must not read as none, nor 94.998% as the 95 that were asked for.
    """
    if share >= 1.0:
        return "100%"
    digits = Decimal("0.01" if share >= 0.9 else "0.1")
    return f"{(100 * Decimal(str(share))).quantize(digits, ROUND_DOWN)}%"


def target(slo: Slo) -> str:
    """The attainment asked for: `95%`."""
    return f"{slo.attainment * 100:g}%"


def objective(slo: Slo) -> str:
    """`TTFT at most 2s and TPOT at most 150ms, for 95% of requests`."""
    bounds = (("TTFT", slo.time_to_first_token), ("TPOT", slo.time_per_output_token))
    said = " and ".join(f"{name} at most {brief(bound)}" for name, bound in bounds if bound is not None)
    return f"{said}, for {target(slo)} of requests"


def latency(seconds: float | None) -> str:
    """`83ms`, `1.12s`."""
    return "-" if seconds is None else brief(seconds)


def clock(seconds: float) -> str:
    """Since the start: `7:30`, `61:15`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def more_or_less(figure: float, than: float) -> str:
    """`24% less`, `2% more`, `as much`."""
    change = figure / than - 1 if than else 0.0
    if abs(change) < 0.005:
        return "as much"
    return f"{abs(change):.0%} {'more' if change > 0 else 'less'}"


def listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)
