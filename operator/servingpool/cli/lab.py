"""`servingpool lab`: the operator on a real API server, under real traffic, on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from servingpool.api.mode import Mode
from servingpool.cli.extras import needs
from servingpool.cli.output import echo
from servingpool.cli.usage import Range, span


class TraceName(StrEnum):
    """Traces that are replayed."""

    CONV = "conv"
    CODE = "code"


def lab(  # noqa: PLR0913, one parameter an option
    *,
    trace: Annotated[
        TraceName, typer.Option(help="conv: chat at 5.5 requests/s. code: code completions in bursts.")
    ] = TraceName.CONV,
    minutes: Annotated[
        float | None, typer.Option(help="Stop this many minutes after the first request, and write a record.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="File for the record of the run (JSON). [default: .lab/record.json]")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="File for a picture of the last screen (SVG).")] = None,
    no_live: Annotated[
        bool, typer.Option("--no-live", help="Print a line every 15 s instead of the live view.")
    ] = False,
    start_at: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Skip this much of the trace, such as 10m.")
    ] = None,
    mode: Annotated[
        Mode, typer.Option(case_sensitive=False, help="Recommend computes a replica count and does not apply it.")
    ] = Mode.AUTO,
    load_seconds: Annotated[
        float, typer.Option(min=0, max=1800, help="Seconds that a new replica loads before it is ready.")
    ] = 60.0,
    directory: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for data, kubeconfig and logs. It is emptied at each start.")
    ] = Path(".lab"),
) -> None:
    """Run the operator on this machine: real kube-apiserver, real Prometheus, emulated replicas, a replayed trace.

    The first run builds the control plane from Go packages (about 7 minutes on 2 idle cores); later runs start in
    15 s. It needs no root, Docker or GPU. Ctrl-C stops everything that it started.

    Example: `servingpool lab`

    Example: `servingpool lab --trace code --load-seconds 120`

    Example: `servingpool lab --minutes 20 --start-at 0s --record run.json --no-live`

    Exit codes: 0 stopped on request, 1 a part failed, 2 wrong options or a missing tool.
    """
    with needs("lab"):
        from servingpool_lab import command
    try:
        command.run(
            trace=trace.value,
            minutes=minutes,
            start_at=None if start_at is None else span("--start-at", start_at, Range("0s", "1d", "10m or 1h")),
            mode=mode,
            load_seconds=load_seconds,
            directory=directory,
            record=record,
            picture=picture,
            live=not no_live,
        )
    except (command.UsageError, command.FailureError) as error:
        echo(str(error), err=True)
        raise typer.Exit(2 if isinstance(error, command.UsageError) else 1) from None
