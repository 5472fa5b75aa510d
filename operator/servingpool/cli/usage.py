"""What the commands share: options with their help, and checks of what a person gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NoReturn

import typer

USAGE = 2
"""Exit code: wrong usage."""
HISTORY = ("10m", "90d")
"""Shortest and longest history of engines that is read."""

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The target's namespace.")]
Config = Annotated[
    Path | None, typer.Option(help="The operator's configuration, for credentials.", envvar="SERVINGPOOL_CONFIG")
]
Backend = Annotated[str, typer.Option(help="The configuration's Prometheus.")]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="Default: ~/.kube/config.", envvar="KUBECONFIG", show_default=False)
]

_DAYS = re.compile(r"(?:([0-9]{1,4})d)?(.*)")


def wrong(said: str) -> NoReturn:
    """Wrong usage: say it and leave with its exit code."""
    typer.echo(said, err=True)
    raise typer.Exit(USAGE)


def span(option: str, text: str, least: str, most: str) -> float:
    """Seconds of a duration, which may be in days, such as 1d6h; `least` and `most` are written likewise."""
    seconds = _seconds(text)
    if seconds is None or not (_seconds(least) or 0.0) <= seconds <= (_seconds(most) or 0.0):
        wrong(f"{option} must be {least} to {most}, such as 12h or 7d, got '{text}'")
    return seconds


def _seconds(text: str) -> float | None:
    """None where it is no duration."""
    from servingpool.api.duration import parse

    found = _DAYS.fullmatch(text)
    days, rest = (found[1], found[2]) if found is not None else (None, text)
    try:
        return int(days or 0) * 86_400.0 + (parse(rest) if rest or not days else 0.0)
    except ValueError:
        return None
