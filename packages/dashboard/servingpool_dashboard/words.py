"""How figures and times are written on the pages."""

from __future__ import annotations

from datetime import UTC, datetime

from servingpool.api import duration
from servingpool.api.spec import Slo
from servingpool.decision.observation import Unknown
from servingpool.reconcile.plan import expense

UNKNOWN = "unknown"


def number(figure: float | None, digits: int = 3) -> str:
    """Three digits, thousands apart."""
    if figure is None:
        return UNKNOWN
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.{digits}g}"


def dollars(figure: float | None) -> str:
    """Such as $12.30."""
    return UNKNOWN if figure is None else f"${figure:,.2f}"


def per_million(dollars_an_hour: float, output: float | None) -> float | None:
    """Dollars for a million output tokens, of so many a second; None where hardly one comes."""
    found = expense.per_million(dollars_an_hour, output or 0.0)
    return None if isinstance(found, Unknown) else found


def percent(figure: float | None) -> str:
    """A share in percent, 0 to 100, as the page writes it."""
    return UNKNOWN if figure is None else f"{figure:.1f}%"


def brief(seconds: float | None) -> str:
    """Such as 1.32s."""
    return UNKNOWN if seconds is None else duration.brief(seconds)


def ago(then: float | datetime, now: float) -> str:
    """Time since then, in one or two units."""
    at = then.timestamp() if isinstance(then, datetime) else then
    seconds = max(0, round(now - at))
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 5400:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min" if seconds < 86_400 else f"{seconds // 86_400} d"


def clock(at: datetime, now: float) -> str:
    """Time of day in UTC, with the day if it is not today's."""
    then, today = at.astimezone(UTC), datetime.fromtimestamp(now, UTC)
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def bounds(slo: Slo) -> str:
    """The objective in words."""
    named = ("TTFT", slo.time_to_first_token), ("TPOT", slo.time_per_output_token)
    told = [f"{name} within {duration.brief(bound)}" for name, bound in named if bound is not None]
    return f"{slo.attainment:g}% of requests with {' and '.join(told)}"
