"""`servingpool backtest`: what Auto would have done on a recorded history, as one HTML file."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from servingpool.cli.extras import needs
from servingpool.cli.kubectl import Context, Kubeconfig, Namespace, namespace_of
from servingpool.cli.output import echo
from servingpool.cli.source import Backend, Config, Prometheus

INDEX = "JOB_COMPLETION_INDEX"
"""Environment variable by which Kubernetes tells a Job's pod its index."""


class Output(StrEnum):
    """A form for programs."""

    JSON = "json"
    LINES = "lines"


def backtest(  # noqa: PLR0913, a command line's options are its parameters
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KIND/NAME]...", help="Workloads to record first. Or use --from.", show_default=False),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All that serve an LLM and can be scaled, in all namespaces.")
    ] = False,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="A file that `servingpool record` wrote. Repeatable.", dir_okay=False),
    ] = None,
    pool: Annotated[
        Path | None,
        typer.Option(help="A ServingPool manifest for bounds, schedules, SLO, behavior and cost."),
    ] = None,
    ttft: Annotated[str, typer.Option(help="Bound on time to first token, 1ms to 10m, or none.")] = "none",
    tpot: Annotated[str, typer.Option(help="Bound on time per output token, 1ms to 10s, or none.")] = "none",
    attainment: Annotated[float, typer.Option(help="Percent of requests within every bound, 50 to 99.9.")] = 95.0,
    min_replicas: Annotated[int | None, typer.Option("--min", min=1, help="Default: the autoscaler's, else 1.")] = None,
    max_replicas: Annotated[int | None, typer.Option("--max", min=1, help="Default: the autoscaler's.")] = None,
    cold_start: Annotated[
        str | None, typer.Option(help="Start-up time of a replica, 1s to 1h. Default: as recorded, else 2m.")
    ] = None,
    autoscaler: Annotated[
        Path | None,
        typer.Option(help="An HPA's or ScaledObject's manifest to replay. Default: the recorded one.", dir_okay=False),
    ] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Dollars per hour of a replica.")] = None,
    report: Annotated[
        Path,
        typer.Option(help="File for the report (HTML). With several pools: the summary; their pages stand beside it."),
    ] = Path("report/backtest.html"),
    output: Annotated[
        Output | None,
        typer.Option("--output", "-o", help="Print every figure, or a line for each pool, for --collect."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Pools replayed at once. Default: the CPUs.")] = None,
    as_job: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Print an indexed Kubernetes Job that does this; IMAGE has the simulator."),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Indexes of the Job. Default: one for each target, 8 with -A.")
    ] = None,
    collect: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the pages from the logs of such a Job, `-` for stdin.")
    ] = None,
    since: Annotated[str, typer.Option(help="How far back a target is recorded, 10m to 90d.")] = "7d",
    namespace: Namespace = None,
    prometheus: Prometheus = None,
    config: Config = None,
    backend: Backend = "default",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Replay a workload's history with the operator in charge, before anything is installed.

    The requests are reconstructed from the history's counters and served by simulated engines with the history's own
    step times. The operator's decision core scales them; the rule of the HPA or ScaledObject that was found is replayed
    beside it. A target is recorded into NAME.rec first, or KIND.NAME.rec where it is no Deployment.

    Example: `servingpool backtest deployment/llama -n chat --ttft 2s --tpot 100ms --prometheus http://localhost:9090`

    Example: `servingpool backtest --from llama.rec --pool pool.yaml -o json`

    With several pools it replays as many at once as there are CPUs, and writes a summary and a page for each pool. With
    --as-job it prints a Job that does this in the cluster, with a share of the pools in each index.

    Example: `servingpool backtest -A --ttft 2s --prometheus http://prometheus:9090 --as-job IMAGE | kubectl apply -f -`

    Example: `kubectl logs -l job-name=servingpool-backtest --tail=-1 | servingpool backtest --collect -`

    Exit codes: 0 the SLO was held, 1 the history cannot be used, 2 wrong usage, 3 the SLO was missed, 4 the cluster
    did not answer.
    """
    from servingpool.cli import recorded, usage
    from servingpool.cli import source as source_of

    if sum(map(bool, (targets, every, source, collect))) != 1:
        usage.wrong("Give KIND/NAME, -A, --from FILE or --collect FILE, one of the four")
    names = [recorded.workload(one) for one in targets or ()]
    if as_job is not None:
        from servingpool.cli import backtest_job

        backtest_job.refuse(source=source, collect=collect, pool=pool, autoscaler=autoscaler, config=config)
        shards = shards or len(names) or backtest_job.SHARDS
        within = namespace_of(namespace, kubeconfig, context)
        echo(backtest_job.manifest(as_job, within, sys.argv[1:], shards, cluster_wide=every), nl=False)
        return
    with needs("simulation"):
        from servingpool.cli import backtesting
    if collect is not None:
        raise typer.Exit(backtesting.collect(collect, report))
    given = (pool, ttft, tpot, attainment, min_replicas, max_replicas, cold_start, autoscaler, price)
    asked = backtesting.Asked(*given)
    if source is None:
        found, asked_of = source_of.chosen(config, prometheus, backend)
        seconds = usage.span("--since", since, *usage.HISTORY)
        from servingpool.adapters.cluster.survey import Named
        from servingpool.cli import recording
        from servingpool.cli.logs import quiet

        quiet()
        where = recording.Where(found, asked_of, None if kubeconfig is None else str(kubeconfig), context)
        if every:
            keys = recording.serving(where)
        else:
            within = namespace_of(namespace, kubeconfig, context)
            keys = [Named(within, kind, name) for kind, name in names]
        mine = sorted(keys)[int(os.environ.get(INDEX, "0")) :: shards] if shards else keys
        if len(mine) == 1 and not every and output is not Output.LINES:
            (key,) = mine
            source = [recording.file_of(key, with_namespace=False)]
            order = recording.Order(source[0], seconds, recording.STEP)
            code = recording.run(where.target(*key), order, found, asked_of)
            if code:
                raise typer.Exit(code)
            files = dict.fromkeys(source, "")
        else:
            files = recording.record_each(mine, seconds, where, with_namespace=every)
    else:
        files = dict.fromkeys(source, "")
    if len(files) == 1 and not every and output is not Output.LINES:
        raise typer.Exit(backtesting.single(next(iter(files)), asked, report, figures=output is Output.JSON))
    form = "" if output is None else output.value
    raise typer.Exit(backtesting.several(files, asked, report, form=form, jobs=jobs or os.cpu_count() or 1))
