"""`servingpool explain`: the last decision on a pool, in full."""

from __future__ import annotations

import json
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from servingpool.cli.own_record import Match, Prometheus, parse_pool

if TYPE_CHECKING:
    from servingpool.api.serving_pool import ServingPool


class Exit(IntEnum):
    """What the exit codes mean."""

    EXPLAINED = 0
    NOT_FOUND = 1
    USAGE = 2
    NO_DECISION = 3
    NO_CLUSTER = 4
    INVALID = 5
    NO_RECORD = 6


class Output(StrEnum):
    """A form for programs."""

    JSON = "json"


def explain(
    pool: Annotated[
        str, typer.Argument(metavar="NAMESPACE/NAME", help="The ServingPool. The namespace defaults to `default`.")
    ],
    *,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: ~/.kube/config.", envvar="KUBECONFIG", show_default=False)
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context in the kubeconfig.")] = None,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="Print the status, with every figure of the decision.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="A time, such as 2026-11-20T03:12 (UTC unless it has a zone).")
    ] = None,
    prometheus: Prometheus = None,
    match: Match = None,
) -> None:
    """Show the last decision for a pool: raw need, each limit, the figures and the conditions.

    With --at it explains the decision that stood at that time, from the operator's own metrics in Prometheus alone.

    Example: `servingpool explain default/chat`

    Example: `servingpool explain default/chat --at 2026-11-20T03:12 --prometheus http://localhost:9090`

    Exit codes: 0 explained, 1 no such pool, 2 wrong usage, 3 no decision yet, 4 the cluster did not answer,
    5 the pool is not valid, 6 Prometheus did not answer or several pools have this name in it.
    """
    key = parse_pool(pool)
    if at is not None:
        raise typer.Exit(_explain_past(key, at, output, prometheus, match))
    import asyncio

    from pydantic import ValidationError

    from servingpool.adapters.cluster.errors import ClusterError, NotFound
    from servingpool.api.serving_pool import problems
    from servingpool.cli.explained import show

    namespace, name = key
    try:
        found = asyncio.run(_read(key, None if kubeconfig is None else str(kubeconfig), context))
    except NotFound:
        typer.echo(f"ServingPool {namespace}/{name} does not exist", err=True)
        raise typer.Exit(Exit.NOT_FOUND) from None
    except ClusterError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.NO_CLUSTER) from None
    except ValidationError as error:
        typer.echo(f"ServingPool {namespace}/{name} is not valid: {problems(error)}", err=True)
        raise typer.Exit(Exit.INVALID) from None
    if output is Output.JSON:
        typer.echo(json.dumps(found.status.to_dict(), indent=2))
    else:
        show(found)
    raise typer.Exit(Exit.EXPLAINED if found.status.last_decision is not None else Exit.NO_DECISION)


def _explain_past(
    key: tuple[str, str], at: str, output: Output | None, prometheus: str | None, match: list[str] | None
) -> Exit:
    from servingpool.cli.explained import show_past
    from servingpool.cli.own_record import answered, point_in_time, source_of
    from servingpool.cli.past import slo_of, status_of

    time = point_in_time("--at", at)
    source = source_of(key, prometheus, match)
    record = answered(lambda: source.at(time))
    status = status_of(record)
    if status is None:
        typer.echo(f"Prometheus has no decision for {'/'.join(key)} at {at}: does it scrape the operator?", err=True)
        return Exit.NO_DECISION
    if output is Output.JSON:
        typer.echo(json.dumps(status.to_dict(), indent=2))
    else:
        show_past(key, status, slo_of(record))
    return Exit.EXPLAINED


async def _read(key: tuple[str, str], kubeconfig: str | None, context: str | None) -> ServingPool:
    from servingpool.adapters.cluster.client import Cluster
    from servingpool.api.serving_pool import ServingPool

    cluster = await Cluster.connect(kubeconfig, context)
    try:
        return ServingPool.read(await cluster.read_pool(key))
    finally:
        await cluster.close()
