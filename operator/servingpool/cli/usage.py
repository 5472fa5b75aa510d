"""Shared checks of options and arguments."""

from __future__ import annotations

import re
from typing import NoReturn

import typer

from servingpool.cli.output import echo

USAGE = 2
"""Exit code: wrong usage."""
HISTORY = ("10m", "90d")
"""Shortest and longest history of engines that is read."""
AUTOSCALERS = {"hpa": "hpa", "horizontalpodautoscaler": "hpa", "scaledobject": "scaledobject", "so": "scaledobject"}
"""Kubectl's names."""
_DAYS = re.compile(r"(?:([0-9]{1,4})d)?(.*)")


def wrong(said: str) -> NoReturn:
    """Wrong usage: say it and leave with its exit code."""
    echo(said, err=True)
    raise typer.Exit(USAGE)


def span(option: str, text: str, least: str, most: str) -> float:
    """Seconds of a duration, which may be in days, such as 1d6h; `least` and `most` are written likewise."""
    seconds = _seconds(text)
    if seconds is None or not (_seconds(least) or 0.0) <= seconds <= (_seconds(most) or 0.0):
        wrong(f"{option} must be {least} to {most}, such as 12h or 7d, got '{text}'")
    return seconds


def _seconds(text: str) -> float | None:
    """Seconds of a duration; None where the text is no duration."""
    from servingpool.api.duration import parse  # brings pydantic, which `get` does not need

    found = _DAYS.fullmatch(text)
    days, rest = (found[1], found[2]) if found is not None else (None, text)
    try:
        return int(days or 0) * 86_400.0 + (parse(rest) if rest or not days else 0.0)
    except ValueError:
        return None


def workload(text: str) -> tuple[str, str]:
    """Kind and name in `KIND/NAME` or `KIND.GROUP/NAME`; the API server knows which kinds there are."""
    kind, _, name = text.partition("/")
    if not kind or not name or "/" in name or kind in AUTOSCALERS:
        wrong(f"Write the target as KIND/NAME, such as deployment/{name or 'llama'}, got '{text}'")
    return kind, name


def target_of(text: str) -> tuple[str, str]:
    """The same, and for an autoscaler `hpa` or `scaledobject` and its name."""
    kind, slash, name = text.partition("/")
    return (AUTOSCALERS[kind], name) if kind in AUTOSCALERS and slash and name else workload(text)
