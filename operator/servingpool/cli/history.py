"""`servingpool history`: the changes of a pool's replicas, from the operator's own metrics."""

from __future__ import annotations

from typing import Annotated

import typer

from servingpool.api.status import Change
from servingpool.cli.explain import changes as shown
from servingpool.cli.kubectl import Namespace, Output, PoolName, named, printed
from servingpool.cli.output import echo, terminal
from servingpool.cli.own_record import ENDED, MOST_LOOKS, SINCE, STEP, Asked, Match, Source, no_record
from servingpool.cli.source import Options, asks
from servingpool.cli.usage import span, wrong


@asks
def history(
    pool: PoolName,
    *,
    namespace: Namespace = None,
    since: Annotated[str, typer.Option(help="How far to look back, such as 12h or 7d.")] = "1d",
    step: Annotated[
        str, typer.Option(help="Time between two samples. Changes closer than this and the scrape interval are missed.")
    ] = "15s",
    options: Options,
    match: Match = None,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="Print the changes for programs.")] = None,
) -> None:
    """List the changes of a pool's replicas: when, from, to, how each ended, by whom and why.

    It reads the operator's own metrics in Prometheus. The last ten changes are in `status.history` too, and
    `servingpool explain` shows them without Prometheus. `servingpool explain --at` shows the figures of any time.

    Example: `servingpool history chat --since 7d`

    Exit codes: 0 listed, 2 wrong usage, 3 no change in that time, 4 the kubeconfig cannot be read,
    6 Prometheus did not answer or several pools have this name in it.
    """
    # As in `explain`: to complete a pool's name, most of the operator is not needed.
    from servingpool.record import past

    seconds, apart = span("--since", since, SINCE), span("--step", step, STEP)
    if seconds / apart > MOST_LOOKS:
        wrong(
            f"--since {since} at --step {step} is {seconds / apart:,.0f} looks, over {MOST_LOOKS:,}: "
            f"give a --step of {seconds / MOST_LOOKS:.0f}s or more"
        )
    key = named(pool, namespace, options.kubeconfig, options.context)

    def changes(asked: Asked) -> list[Change] | None:
        found = list(past.changes(asked.record, asked.now - seconds, asked.now, apart))
        if asked.goes_on():
            return found
        if found:
            echo(ENDED, err=True)
        return found or None

    found = Source(options, match).ask(key, changes)
    if output is not None and found is not None:
        printed([one.to_dict() for one in found], output)
    elif found:
        terminal().print(shown(reversed(found)))
    else:
        echo(no_record(key, "now") if found is None else f"No change of {'/'.join(key)} in the last {since}.", err=True)
    raise typer.Exit(0 if found else 3)
