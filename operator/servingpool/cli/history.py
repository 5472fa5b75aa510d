"""`servingpool history`: the changes of a pool's replicas, from the operator's own metrics."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from servingpool.cli.explain import Output
from servingpool.cli.own_record import SINCE, STEP, Match, Prometheus, answered, parse_pool, source_of
from servingpool.cli.usage import span


def history(
    pool: Annotated[
        str, typer.Argument(metavar="NAMESPACE/NAME", help="The ServingPool. The namespace defaults to `default`.")
    ],
    *,
    since: Annotated[str, typer.Option(help="How far to look back, such as 12h or 7d.")] = "1d",
    step: Annotated[
        str, typer.Option(help="Time between two looks. Changes closer than this and the scrape interval are missed.")
    ] = "15s",
    prometheus: Prometheus = None,
    match: Match = None,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="Print the changes as JSON.")] = None,
) -> None:
    """List the changes of a pool's replicas: when, from, to, how each ended, by whom and why.

    It reads the operator's own metrics in Prometheus. The last ten changes are in `status.history` too, and
    `servingpool explain` shows them without Prometheus. `servingpool explain --at` shows the figures of any time.

    Example: `servingpool history default/chat --since 7d --prometheus http://localhost:9090`

    Exit codes: 0 listed, 2 wrong usage, 3 no change in that time, 6 Prometheus did not answer or several pools have
    this name in it.
    """
    from rich.console import Console

    from servingpool.cli import explained, past

    key, seconds, apart = parse_pool(pool), span("--since", since, *SINCE), span("--step", step, *STEP)
    source, now = source_of(key, prometheus, match), time.time()
    found = answered(lambda: list(past.changes(source, now - seconds, now, apart)))
    if output is Output.JSON:
        typer.echo(json.dumps([one.to_dict() for one in found], indent=2))
    elif found:
        Console().print(explained.changes(reversed(found)))
    else:
        typer.echo(f"No change of {pool} in the last {since}.", err=True)
    raise typer.Exit(0 if found else 3)
