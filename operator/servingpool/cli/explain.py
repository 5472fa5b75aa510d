"""`servingpool explain`: the last decision on a pool, in full."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import typer

from servingpool.cli.kubectl import (
    Context,
    Kubeconfig,
    Namespace,
    Output,
    PoolName,
    connect,
    named,
    place,
    printed,
    told,
)
from servingpool.cli.output import echo
from servingpool.cli.own_record import Match, Prometheus, Source, no_record
from servingpool.cli.source import Backend, Config
from servingpool.cli.usage import wrong

if TYPE_CHECKING:
    from servingpool.adapters.prometheus.own_record import Record

FUTURE = 60.0
"""Seconds after now that `--at` may be, for clocks that differ."""


class Exit(IntEnum):
    """What the exit codes mean."""

    EXPLAINED = 0
    NOT_FOUND = 1
    USAGE = 2
    NO_DECISION = 3
    NO_CLUSTER = 4
    INVALID = 5
    NO_RECORD = 6


def explain(  # noqa: PLR0913, a command line's options are its parameters
    pool: PoolName,
    *,
    namespace: Namespace = None,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="Print the status, with every figure of the decision.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="A time, such as 2026-11-20T03:12 (UTC unless it has a zone).")
    ] = None,
    prometheus: Prometheus = None,
    config: Config = None,
    backend: Backend = "default",
    match: Match = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the last decision for a pool: raw need, each limit, the figures and the conditions.

    With --at it explains the decision that stood at that time, from the operator's own metrics in Prometheus alone.

    Example: `servingpool explain chat`

    Example: `servingpool explain chat --at 2026-11-20T03:12 --prometheus http://localhost:9090`

    Exit codes: 0 explained, 1 no such pool, 2 wrong usage, 3 no decision yet, 4 the cluster did not answer,
    5 the pool is not valid, 6 Prometheus did not answer or several pools have this name in it.
    """
    if at is not None:
        source = Source(prometheus, config, backend, match)
        raise typer.Exit(_explain_past(named(pool, namespace, kubeconfig, context), at, output, source))
    from pydantic import ValidationError

    from servingpool.api.serving_pool import ServingPool, problems
    from servingpool.cli.explained import show

    with told():
        pools = connect(kubeconfig, context)
        where = place(pools, pool, namespace)
        raw = pools.read(*where)
    try:
        found = ServingPool.read(raw)
    except ValidationError as error:
        echo(f"ServingPool {'/'.join(where)} is not valid: {problems(error)}", err=True)
        raise typer.Exit(Exit.INVALID) from None
    if output is not None:
        printed(found.status.to_dict(), output)
    else:
        show(found)
    raise typer.Exit(Exit.EXPLAINED if found.status.last_decision is not None else Exit.NO_DECISION)


def _explain_past(key: tuple[str, str], at: str, output: Output | None, source: Source) -> Exit:
    from servingpool.cli.explained import show_past
    from servingpool.cli.own_record import Asked, point_in_time
    from servingpool.cli.past import slo_of, status_of

    time = point_in_time("--at", at)

    def read(asked: Asked) -> Record:
        if time > asked.now + FUTURE:
            wrong(f"--at must be in the past, got '{at}' (a time without a zone is UTC)")
        return asked.record.at(time)

    record = source.ask(key, read)
    status = status_of(record)
    if status is None:
        echo(no_record(key, f"at {at}"), err=True)
        return Exit.NO_DECISION
    if output is not None:
        printed(status.to_dict(), output)
    else:
        show_past(key, status, slo_of(record))
    return Exit.EXPLAINED
