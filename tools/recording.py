"""What the recorded runs share: options, what they say while they run, parts of their records and pages."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

ROOT = Path(__file__).parents[1]


class Timed(Protocol):
    """What was seen at a moment."""

    @property
    def at(self) -> float:
        """Unix time in seconds."""


T = TypeVar("T", bound=Timed)


def parser(module: str, doc: str | None, name: str) -> argparse.ArgumentParser:
    """Of a run that writes the page `name`, with the options that each has: `directory`, `page`, `page_only`."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    add = made.add_argument
    add("--directory", type=Path, default=ROOT / "build" / name, help="for everything but the page")
    add("--page", type=Path, default=ROOT / "docs" / "records" / f"{name}.md")
    add("--page-only", action="store_true", help="run nothing: write the page from the last run's record")
    return made


def print_result(page: Path, faults: Iterable[str]) -> int:
    """Say where the page is and what went wrong; the exit status that follows."""
    found = list(faults)
    print(f"Page: {page}", *found, sep="\n")  # noqa: T201, what a person reads
    return 1 if found else 0


def say(what: str, seconds: float) -> None:
    """What was done, for who watches, and how many seconds it took."""
    print(f"{time.strftime('%H:%M:%S')} {seconds:6.1f} s  {what}", flush=True)  # noqa: T201, what a person watches


def from_json(kind: type[Any], raw: Iterable[dict[str, Any]]) -> list[Any]:
    """Dataclasses from what JSON has of them."""
    return [kind(**one) for one in raw]


def observation_at(observations: Sequence[T], at: float) -> T:
    """The first observation at a time or after it; the last one beyond the end."""
    return next((one for one in observations if one.at >= at), observations[-1])


def row(*cells: str) -> Iterator[str]:
    """A row of a table in Markdown."""
    yield f"| {' | '.join(cells)} |"


def percent(share: float | None) -> str:
    """Of the requests that ended."""
    return "none ended" if share is None else f"{100 * share:.1f}%"
