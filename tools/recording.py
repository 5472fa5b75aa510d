"""What the recorded runs share: how they speak while they run, and the rows and shares of their pages."""

from __future__ import annotations

import time
from collections.abc import Iterator


def say(what: str, seconds: float) -> None:
    """What was done, for who watches, and how many seconds it took."""
    print(f"{time.strftime('%H:%M:%S')} {seconds:6.1f} s  {what}", flush=True)  # noqa: T201, what a person watches


def row(*cells: str) -> Iterator[str]:
    """A row of a table in Markdown."""
    yield f"| {' | '.join(cells)} |"


def percent(share: float | None) -> str:
    """Of the requests that ended."""
    return "none ended" if share is None else f"{100 * share:.1f}%"
