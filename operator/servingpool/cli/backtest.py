"""`servingpool backtest`: what Auto would have done on a recorded history, as one HTML file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
import yaml

from servingpool.adapters.cluster.survey import Named
from servingpool.cli import record
from servingpool.cli.extras import needs
from servingpool.cli.figures import Target
from servingpool.cli.kubectl import Namespace, namespace_of
from servingpool.cli.logs import quiet
from servingpool.cli.output import echo
from servingpool.cli.source import Options, asks
from servingpool.cli.usage import HISTORY, span, workload, wrong

JOB_SHARDS = 8
"""Indexes where nothing tells how many pools there are."""
AT_ONCE = 8
"""Indexes that run at the same time, at most: each asks Prometheus for a history."""
NOT_PASSED_ON = ("--as-job", "--shards", "--report", "--output", "-o", "--kubeconfig", "--context", "--as", "--jobs")
"""Options of the command line that the pods get otherwise; each has a value."""
JOB = "backtest_job.yaml"
"""Manifest of such a Job, with a ServiceAccount that may read what is recorded."""
INDEX = "JOB_COMPLETION_INDEX"
"""Environment variable by which Kubernetes tells a Job's pod its index."""


class Output(StrEnum):
    """A form for programs."""

    JSON = "json"
    LINES = "lines"


@asks
def backtest(  # noqa: PLR0913, a command line's options are its parameters
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="KIND/NAME", help="Workloads to record first. Or use --from.", show_default=False),
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
        Path | None, typer.Option(help="A ServingPool manifest for bounds, schedules, SLO or batch, behavior and cost.")
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
    options: Options,
) -> None:
    """Replay a workload's history with the operator in charge, before anything is installed.

    The requests are reconstructed from the history's counters and served by simulated engines with the history's own
    step times. The operator's decision core scales them; the rule of the HPA or ScaledObject that was found is replayed
    beside it. A target is recorded into NAME.rec first, or KIND.NAME.rec where it is no Deployment.

    Example: `servingpool backtest deployment/llama -n chat --ttft 2s --tpot 100ms`

    Example: `servingpool backtest --from llama.rec --pool pool.yaml -o json`

    Of a pool with `batch` it replays the queue: what came by the backlog's history, and what replicas took. Replicas
    are as fast as those of the history were while work waited. The rule of the autoscaler is not replayed, and no page
    is written. JSON: format, target, unit, due, doubts, unknowns, was and auto (in_time, gpu_hours, most_replicas,
    cold_starts), series (time, waits, was, auto).

    Example: `servingpool backtest deployment/llama-70b -n chat --pool nightly.yaml`

    With several pools it replays as many at once as there are CPUs, and writes a summary and a page for each pool. With
    --as-job it prints a Job that does this in the cluster, with a share of the pools in each index.

    Example: `servingpool backtest -A --ttft 2s --prometheus http://prometheus:9090 --as-job IMAGE | kubectl apply -f -`

    Example: `kubectl logs -l job-name=servingpool-backtest --tail=-1 | servingpool backtest --collect -`

    There is no verdict, and a band in place of each figure, on a history under 2 hours or with gaps over 10%, and where
    the replay of the fleet that stood is more than 3 points off what was observed.

    Exit codes: 0 the SLO or all deadlines were held, 1 the history cannot be used, 2 wrong usage, 3 they were missed, 4
    the cluster did not answer, 5 the history is too little for a verdict.
    """
    if sum(map(bool, (targets, every, source, collect))) != 1:
        wrong("Give KIND/NAME, -A, --from FILE or --collect FILE, one of the four")
    names = [workload(one) for one in targets or ()]
    if as_job is not None:
        _refuse(source=source, collect=collect, pool=pool, autoscaler=autoscaler, config=options.config)
        shards = shards or len(names) or JOB_SHARDS
        within = namespace_of(namespace, options.kubeconfig, options.context, asks=False)
        echo(_job_manifest(as_job, within, sys.argv[1:], shards, cluster_wide=every), nl=False)
        return
    with needs("backtest"):
        from servingpool.cli import backtesting
    if collect is not None:
        raise typer.Exit(backtesting.collect(collect, report))
    given = (pool, ttft, tpot, attainment, min_replicas, max_replicas, cold_start, autoscaler, price)
    asked = backtesting.Asked(*given)
    files, alone = dict.fromkeys(source or (), ""), not every and output is not Output.LINES
    if source is None:
        seconds = span("--since", since, HISTORY)
        quiet()
        where = options.found()
        if every:
            keys = record.serving(where)
        else:
            within = namespace_of(namespace, options.kubeconfig, options.context)
            keys = [Named(within, kind, name) for kind, name in names]
        mine = sorted(keys)[int(os.environ.get(INDEX, "0")) :: shards] if shards else keys
        if len(mine) == 1 and alone:
            file = record.file_of(mine[0], with_namespace=False)
            engine, model, query = backtesting.told_by(pool)
            order = record.Order(file, seconds, record.STEP, backlog=query)
            if code := record.run(Target(*mine[0], engine, model), order, where):
                raise typer.Exit(code)
            files = {file: ""}
        else:
            files = record.record_each(mine, seconds, where, with_namespace=every)
    if len(files) == 1 and alone:
        raise typer.Exit(backtesting.single(next(iter(files)), asked, report, figures=output is Output.JSON))
    form = "" if output is None else output.value
    raise typer.Exit(backtesting.several(files, asked, report, form=form, jobs=jobs or os.cpu_count() or 1))


def _refuse(**files: object) -> None:
    """End the command where an option names a file: the pods have none of them."""
    for name, given in files.items():
        if given:
            option = "--from" if name == "source" else f"--{name}"
            wrong(f"--as-job cannot be used with {option}: the Job's pods do not have the file")


def _job_manifest(image: str, namespace: str, arguments: Sequence[str], shards: int, *, cluster_wide: bool) -> str:
    """YAML of the Job and its ServiceAccount. `arguments`: as the user typed them."""
    manifests = list(yaml.safe_load_all(resources.files(__package__).joinpath(JOB).read_text()))
    _, role, binding, job = manifests
    for each in manifests:
        each["metadata"]["namespace"] = namespace
    binding["subjects"][0]["namespace"] = namespace
    if cluster_wide:
        for each in (role, binding):
            each["kind"] = f"Cluster{each['kind']}"
            del each["metadata"]["namespace"]
        binding["roleRef"]["kind"] = role["kind"]
        role["rules"].append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]})
    job["spec"] |= {"completions": shards, "parallelism": min(shards, AT_ONCE), "maxFailedIndexes": shards}
    container = job["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": image, "args": [*_kept(arguments), "--shards", str(shards), "--output", "lines"]}
    return yaml.safe_dump_all(manifests, sort_keys=False, width=120)


def _kept(arguments: Sequence[str]) -> list[str]:
    """The command line without the options that the pods get otherwise."""
    kept, rest = [], iter(arguments)
    for one in rest:
        if one in NOT_PASSED_ON:
            next(rest, None)
        elif not one.startswith(tuple(f"{option}=" for option in NOT_PASSED_ON)):
            kept.append(one)
    return kept
