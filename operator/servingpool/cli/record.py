"""`servingpool record`: a workload's history from Prometheus into a file, for `servingpool backtest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from servingpool.cli.kubectl import Context, Kubeconfig, Namespace, namespace_of
from servingpool.cli.source import Backend, Config, Prometheus


def record(  # noqa: PLR0913, a command line's options are its parameters
    target: Annotated[str, typer.Argument(metavar="KIND/NAME", help="The workload whose engines serve.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; the same file is continued.")],
    since: Annotated[str, typer.Option(help="How far back, 10m to 90d.")] = "7d",
    namespace: Namespace = None,
    prometheus: Prometheus = None,
    config: Config = None,
    backend: Backend = "default",
    engine: Annotated[str | None, typer.Option(help="Default: as the pods' metrics tell.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: as the pods' metrics tell.")] = None,
    step: Annotated[int, typer.Option(min=5, max=60, help="Seconds between two samples.")] = 15,
    max_samples: Annotated[
        int, typer.Option(min=10_000, max=2_000_000, help="Samples in the answer of one query, at most.")
    ] = 200_000,
    pause: Annotated[float, typer.Option(min=0, max=60, help="Seconds after each query, at least.")] = 0.2,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Record a workload's metrics and replicas from Prometheus into one file.

    It sends one range query at a time and rests after each for at least as long as it took. If it is interrupted, the
    same command goes on where it stopped. The file holds counters, gauges and pod names; no prompt and no address.
    With --engine and --model it needs no cluster.

    Example: `servingpool record deployment/llama -n chat --since 7d --prometheus http://localhost:9090 -o llama.rec`

    Exit codes: 0 recorded, 1 no such target, no history of it, or Prometheus did not answer, 2 wrong usage, 4 the
    cluster refused or did not answer.
    """
    from servingpool.cli import recorded, source, usage
    from servingpool.cli.logs import quiet

    quiet()
    found, asked = source.chosen(config, prometheus, backend)
    (kind, name), seconds = recorded.workload(target), usage.span("--since", since, *usage.HISTORY)
    from servingpool.backtest.recorder import Pace
    from servingpool.cli import recording

    within = namespace_of(namespace, kubeconfig, context)
    path = None if kubeconfig is None else str(kubeconfig)
    whose = recording.Target(within, kind, name, engine, model, path, context)
    order = recording.Order(output, seconds, float(step), Pace(max_samples, pause))
    raise typer.Exit(recording.run(whose, order, found, asked))
