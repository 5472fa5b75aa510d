"""Shared parts of commands that read the operator's own record in Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

import typer

from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.adapters.prometheus.own_record import AmbiguousRecord, OwnRecord
from servingpool.cli import source
from servingpool.cli.logs import quiet
from servingpool.cli.output import echo
from servingpool.cli.usage import Range, seconds, wrong

T = TypeVar("T")
ENDED = "The record ends before now: nobody decides, or this Prometheus does not scrape the operator."
NO_RECORD = 6
"""Exit code: Prometheus did not answer, or has several pools of this name."""
SINCE = Range("1m", "366d", "12h or 7d")
"""Time to look back."""
STEP = Range("1s", "1d", "15s or 1m")
"""Time between two looks."""
MOST_LOOKS = 2_500_000
"""Looks of one command, 250 queries: a year at the operator's interval is 2.1 million."""

Match = Annotated[
    list[str] | None,
    typer.Option(metavar="LABEL=VALUE", help="A label that the series must have, such as cluster=eu. Repeatable."),
]


def point_in_time(option: str, text: str, now: float) -> float:
    """Unix time in seconds. A time without a zone is UTC, one without a date the last of that name; -10m is ago."""
    of_day = text[2:3] == ":"
    if text.startswith("-") and (ago := seconds(text[1:])) is not None:
        return now - ago
    try:
        at = datetime.fromisoformat(f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d}T{text}" if of_day else text)
    except ValueError:
        wrong(f"{option} must be a time such as 2026-11-20T03:12, 23:28 or -10m, got '{text}'")
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (at - timedelta(days=of_day and at.timestamp() > now)).timestamp()


@dataclass(frozen=True, slots=True)
class Asked:
    """A pool's record in a Prometheus, and the time there."""

    record: OwnRecord
    now: float
    """Unix seconds."""

    def goes_on(self) -> bool:
        """Whether the operator is scraped at present."""
        return bool(self.record.at(self.now))


@dataclass(frozen=True, slots=True)
class Source:
    """Options on the Prometheus that scrapes the operator."""

    options: source.Options
    match: list[str] | None

    def labels(self) -> dict[str, str]:
        """The labels that series must have. Wrong ones end the command."""
        quiet()
        labels = {}
        for each in self.match or ():
            name, equals, value = each.partition("=")
            if not equals or not name.isidentifier():
                wrong(f"--match must be LABEL=VALUE, got '{each}'")
            labels[name] = value
        return labels

    def ask(self, key: tuple[str, str], question: Callable[[Asked], T]) -> T:
        """Answer of Prometheus on a pool; without an answer the command ends with a sentence."""
        labels, asked = self.labels(), self.options.found().source
        try:
            return question(Asked(OwnRecord(asked, key, labels), source.now(asked)))
        except MetricsUnavailable as error:
            echo(source.unavailable(str(error), asked), err=True)
        except AmbiguousRecord as error:
            echo(f"{error}. Choose one with --match LABEL=VALUE.", err=True)
        raise typer.Exit(NO_RECORD)


def no_record(key: tuple[str, str], when: str) -> str:
    """Sentence on a pool without a record."""
    return (
        f"Prometheus has no record of ServingPool {'/'.join(key)} {when}. "
        "Check the name, and that this Prometheus scrapes the operator."
    )
