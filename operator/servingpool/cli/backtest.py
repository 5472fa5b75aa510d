"""`servingpool backtest`: what Auto would have done on a recorded history, as one HTML file."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servingpool.cli.extras import needs
from servingpool.cli.kubectl import Context, Kubeconfig, Namespace
from servingpool.cli.source import Backend, Config, Prometheus

if TYPE_CHECKING:
    from collections.abc import Callable

    from servingpool.backtest.recording import Header
    from servingpool.backtest.result import Backtest, Question

MISSED = 3
"""Exit code: Auto would have missed the SLO."""


class Output(StrEnum):
    """A form for programs."""

    JSON = "json"


def backtest(  # noqa: PLR0913, a command line's options are its parameters
    target: Annotated[
        str | None, typer.Argument(metavar="[KIND/NAME]", help="A workload to record first. Or use --from.")
    ] = None,
    *,
    source: Annotated[
        Path | None, typer.Option("--from", help="A file that `servingpool record` wrote.", dir_okay=False)
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
    price: Annotated[float | None, typer.Option(min=0, help="Dollars of a replica's hour.")] = None,
    report: Annotated[Path, typer.Option(help="File for the report (HTML).")] = Path("report/backtest.html"),
    output: Annotated[Output | None, typer.Option("--output", "-o", help="Print every figure.")] = None,
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
    step times. The operator's decision core scales them. A target is recorded into NAME.rec first.

    Example: `servingpool backtest deployment/llama -n chat --ttft 2s --tpot 100ms --prometheus http://localhost:9090`

    Example: `servingpool backtest --from llama.rec --pool pool.yaml -o json`

    Exit codes: 0 the SLO was held, 1 the history cannot be used, 2 wrong usage, 3 the SLO was missed, 4 the cluster
    did not answer.
    """
    from servingpool.cli import recorded, usage

    if (target is None) == (source is None):
        usage.wrong("Give KIND/NAME or --from FILE, one of the two")
    with needs("simulation"):
        from servingpool.backtest.recording import RecordingError
        from servingpool.backtest.report import page, sentence
        from servingpool.backtest.result import backtest as replayed
        from servingpool.cli.demo import write
    if source is None:
        source = Path(f"{recorded.workload(str(target))[1]}.rec")
        _record(
            str(target),
            source,
            since=since,
            namespace=namespace,
            prometheus=prometheus,
            config=config,
            backend=backend,
            context=context,
            kubeconfig=kubeconfig,
        )
    try:
        header, chunks = recorded.read(source)
        question = _question(header, pool, ttft, tpot, attainment, min_replicas, max_replicas, cold_start, price)
        found = _with_progress(lambda told: replayed(header, chunks, question, told))
    except RecordingError as error:
        typer.echo(f"{source} {error}", err=True)
        raise typer.Exit(1) from None
    write(report, page(found, shlex.join(["servingpool", *sys.argv[1:]])), "--report")
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(found.to_dict()))
    else:
        typer.echo(f"{sentence(found)}.\nReport: {report}")
    raise typer.Exit(0 if found.held else MISSED)


def _record(target: str, output: Path, **options: Any) -> None:
    """As `servingpool record` does. Raises typer.Exit where that fails."""
    from servingpool.cli.record import record

    usual = {"engine": None, "model": None, "step": 15, "max_samples": 200_000, "pause": 0.2}
    try:
        record(target, output=output, **{**usual, **options})
    except typer.Exit as done:
        if done.exit_code:
            raise


def _question(  # noqa: PLR0913, the options
    header: Header,
    manifest: Path | None,
    ttft: str,
    tpot: str,
    attainment: float,
    low: int | None,
    high: int | None,
    cold_start: str | None,
    price: float | None,
) -> Question:
    """From a manifest or from options. Wrong ones end the command."""
    from servingpool.backtest.result import Question
    from servingpool.cli.demo import bound, duration
    from servingpool.decision.pool import Pool
    from servingpool.decision.slo import Slo
    from servingpool.reconcile.pool_plan import core_pool
    from servingpool_simulation.inputs import InputError, read_pool

    starts = None if cold_start is None else duration(cold_start, "--cold-start", "1s", "1h")
    if manifest is not None:
        try:
            read = read_pool(manifest)
        except InputError as error:
            raise typer.BadParameter(str(error), param_hint="--pool") from error
        core, behavior = core_pool(read, in_charge=True, during=(header.begin, header.end)), read.spec.behavior
        if core.slo.at_gateway:
            raise typer.BadParameter(
                "a recording has no gateway: set slo.measuredAt to Engine, got Gateway", param_hint="--pool"
            )
        if starts is None and "cold_start" in behavior.model_fields_set:
            starts = behavior.cold_start
        return Question(core, starts, read.spec.targets[0].cost_per_replica_hour)
    recorded = header.bounds or (1, None)
    most = high or recorded[1]
    if most is None:
        raise typer.BadParameter(
            "the recording names no autoscaler: give the highest replica count", param_hint="--max"
        )
    least = max(1, recorded[0]) if low is None else low
    try:
        slo = Slo(bound(ttft, "--ttft", "10m"), bound(tpot, "--tpot", "10s"), round(attainment / 100, 6))
        return Question(Pool(slo, least, most), starts, price)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; give --ttft, --tpot or --pool") from error


def _with_progress(work: Callable[[Callable[[str], None]], Backtest]) -> Backtest:
    """Run it beside a line on stderr that says what is under way."""
    from rich.console import Console

    with Console(stderr=True).status("starting") as line:
        return work(line.update)
