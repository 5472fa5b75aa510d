"""`servingpool compare`: the operator's own recommendation beside the replicas that stood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from servingpool.cli.kubectl import Context, Kubeconfig, Namespace, Output, PoolName, named, printed
from servingpool.cli.output import echo
from servingpool.cli.own_record import ENDED, SINCE, Asked, Match, Prometheus, Source, no_record
from servingpool.cli.source import Backend, Config
from servingpool.cli.usage import span

if TYPE_CHECKING:
    from servingpool.cli.comparison import Comparison

STEP, MOST_STEPS = 15.0, 40_000
"""Seconds between two looks, the operator's interval; and the most looks, for which the step grows."""


def compare(  # noqa: PLR0913, a command line's options are its parameters
    pool: PoolName,
    *,
    namespace: Namespace = None,
    since: Annotated[str, typer.Option(help="How far to look back, such as 12h or 3d.")] = "1d",
    prometheus: Prometheus = None,
    config: Config = None,
    backend: Backend = "default",
    match: Match = None,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="Print the figures for programs.")] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Compare the replicas that stood with those that the operator recommended: GPU-hours, dollars, attainment.

    For a pool in mode Recommend beside an HPA or a ScaledObject. It reads the operator's own metrics in Prometheus.
    The attainment of the fleet that stood is observed; that of the recommendation is what the operator expected.

    Example: `servingpool compare chat --since 3d --prometheus http://localhost:9090`

    Exit codes: 0 compared, 2 wrong usage, 3 no recommendation in that time or a pool of several targets, 4 the
    kubeconfig cannot be read, 6 Prometheus did not answer or several pools have this name in it.
    """
    from servingpool.cli.comparison import SeveralTargets, compare_fleets

    seconds = span("--since", since, *SINCE)
    key, step = named(pool, namespace, kubeconfig, context), max(STEP, seconds / MOST_STEPS)

    def fleets(asked: Asked) -> Comparison | str:
        found, goes_on = compare_fleets(asked.record, asked.now - seconds, asked.now, step), asked.goes_on()
        if found is None:
            unknown = (
                f"No recommendation for {pool} in the last {since}. `servingpool explain {pool}` says what is missing."
            )
            return unknown if goes_on else no_record(key, f"in the last {since}")
        if not goes_on:
            echo(ENDED, err=True)
        return found

    try:
        found = Source(prometheus, config, backend, match).ask(key, fleets)
    except SeveralTargets:
        said = (
            f"{pool} has several targets, and compare takes pools of one. Metrics servingpool_target_* have each one's."
        )
        echo(said, err=True)
        raise typer.Exit(3) from None
    if isinstance(found, str):
        echo(found, err=True)
        raise typer.Exit(3)
    if output is not None:
        printed(found.to_dict(), output)
    else:
        _show(pool, since, found)


def _show(pool: str, since: str, found: Comparison) -> None:
    from servingpool.cli.figures import table

    stood, wanted = found.stood, found.recommended
    echo(f"ServingPool {pool}, last {since}: both fleets known for {found.seconds / found.asked:.0%} of the time\n")
    rows: list[tuple[str, ...]] = [("", "stood", "recommended", "difference")]
    rows.append(_amounts("replica-hours", stood.replica_hours, wanted.replica_hours))
    rows.append(_amounts("GPU-hours", stood.gpu_hours, wanted.gpu_hours))
    rows.append(_amounts("dollars", stood.dollars, wanted.dollars))
    if stood.attainment is None or wanted.attainment is None:
        rows.append(("attainment", "unknown", "unknown", ""))
    else:
        points = 100.0 * (wanted.attainment - stood.attainment)
        rows.append(
            ("attainment", f"{stood.attainment:.1%}", f"{wanted.attainment:.1%} expected", f"{points:+.1f} points")
        )
    table(rows)
    objective = "" if found.objective is None else f" The objective is {found.objective:.1%}."
    echo(f"\nAttainment covers {found.judged:.0%} of the requests.{objective}")
    if stood.dollars is None:
        echo("Dollars need targets[0].costPerReplicaHour in the pool.")
    if stood.gpu_hours is None:
        echo("GPU-hours need GPU limits in the pod template, or targets[0].gpusPerReplica in the pool.")


def _amounts(name: str, stood: float | None, wanted: float | None) -> tuple[str, ...]:
    if stood is None or wanted is None:
        return name, "unknown", "unknown", ""
    share = f" ({wanted / stood - 1.0:+.0%})" if stood > 0.0 else ""
    return name, f"{stood:,.1f}", f"{wanted:,.1f}", f"{wanted - stood:+,.1f}{share}"
