"""`servingpool lab`: the operator on a real API server, under real traffic, on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from servingpool.api import duration
from servingpool.api.spec import Mode
from servingpool.cli.extras import needs


class TraceName(StrEnum):
    """Traces that are replayed."""

    CONV = "conv"
    CODE = "code"


def _seconds(text: str) -> float:
    try:
        return duration.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def lab(  # noqa: PLR0913, one parameter an option
    *,
    trace: Annotated[
        TraceName, typer.Option(help="conv: a chat service, 5.5 requests/s. code: completions in bursts.")
    ] = TraceName.CONV,
    minutes: Annotated[
        float | None, typer.Option(help="Stop by itself so long after the first request, and leave a record.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Where the record of the run goes, as JSON. [default: .lab/record.json]")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Where a picture of the last screen goes, as SVG.")] = None,
    no_live: Annotated[
        bool, typer.Option("--no-live", help="A line every 15 s instead of the live view, as without a terminal.")
    ] = False,
    start_at: Annotated[
        float | None,
        typer.Option(parser=_seconds, metavar="DURATION", help="Begin so far into the trace, such as 10m."),
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Recommend decides and explains, and touches nothing.")] = Mode.AUTO,
    load_seconds: Annotated[
        float, typer.Option(min=0, max=1800, help="How long a new replica loads before it is ready.")
    ] = 60.0,
    directory: Annotated[Path, typer.Option(help="For data, kubeconfig and logs. Emptied at each start.")] = Path(
        ".lab"
    ),
) -> None:
    """Watch the operator hold a latency SLO: a real kube-apiserver, a real Prometheus, a replayed trace.

    Builds the control plane from Go packages the first time (about 7 minutes on 2 idle cores); later it starts in
    15 s. No root, no Docker, no GPU: the replicas are emulated. Ctrl-C stops all that it started.

    Example: `servingpool lab`

    Example: `servingpool lab --trace code --load-seconds 120`

    Example: `servingpool lab --minutes 20 --start-at 0s --record run.json --no-live`

    Exit codes: 0 stopped as asked, 1 a part failed, 2 wrong options or something is missing.
    """
    with needs("lab"):
        from servingpool_lab import command
    try:
        command.run(
            trace=trace.value,
            minutes=minutes,
            start_at=start_at,
            mode=mode,
            load_seconds=load_seconds,
            directory=directory,
            record=record,
            picture=picture,
            live=not no_live,
        )
    except (command.UsageError, command.FailureError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2 if isinstance(error, command.UsageError) else 1) from None
