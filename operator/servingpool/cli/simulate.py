"""`servingpool simulate`: one policy, one trace, one pool, one fleet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from servingpool.cli.extras import needs
from servingpool.cli.output import JsonOnly, echo_json, terminal
from servingpool.reconcile.plan.pool_plan import core_pool

if TYPE_CHECKING:
    from servingpool_simulation.changes import Change
    from servingpool_simulation.run import Result
    from servingpool_simulation.score import Score

MISSED = 3
"""Exit code: the run was made and missed its SLO."""


def simulate(
    pool: Annotated[
        Path, typer.Option(help="A ServingPool manifest; SLO, bounds, schedules, behavior, cost are used.")
    ],
    trace: Annotated[
        str,
        typer.Option(
            help="azure-conv, azure-code, azure-conv-day, llmd-ramp, or a CSV file with the columns "
            "TIMESTAMP, ContextTokens, GeneratedTokens."
        ),
    ] = "azure-conv",
    fleet: Annotated[
        str, typer.Option(help="Built-in hardware such as h100-8b-tp1, or a file with a fleet description (below).")
    ] = "a100-70b-tp4",
    policy: Annotated[
        str, typer.Option(help="servingpool, static:N, or a baseline such as hpa-running:16 or llmd-slo-aware.")
    ] = "servingpool",
    output: JsonOnly = None,
) -> None:
    """Simulate one scaling policy on one trace, on virtual time.

    The pool's mode counts as Auto; its metrics come from the simulated fleet. A trace begins on Tuesday 2023-11-14 at
    22:13:20 UTC, as schedules see it.

    For example:

        servingpool simulate --pool pool.yaml

        servingpool simulate --pool pool.yaml --fleet h100-8b-tp1 --policy static:4

        servingpool simulate --pool pool.yaml --trace requests.csv -o json | jq .score.attainment

    A fleet description with its defaults; only hardware is required:

        hardware: a100-70b-tp4
        coldStart: 100s
        jitter: 0.2
        scrapeInterval: 5s
        lostScrapes: 0
        initialReplicas: 1
        seed: 0
        maxNumSeqs: 256
        routing: least-loaded

    JSON: format, held, policy, trace, profile, slo, score (attainment, gpu_hours, average_replicas, ttft, tpot, ...),
    series (lists with one value per decision), changes (at, before, after, ready, reason, need, limits). Times are
    seconds, attainment is a share. New keys may be added; format increases when a key changes its meaning.

    Exit codes: 0 the SLO was met, 3 the SLO was missed, 2 an argument is invalid.
    """
    with needs("simulation"):
        from servingpool_simulation import inputs
        from servingpool_simulation.changes import Watched
        from servingpool_simulation.policies import Static
        from servingpool_simulation.run import simulate as run
        from servingpool_simulation.scrape import EPOCH
        from servingpool_simulation.traces import TraceError

    try:
        manifest = inputs.read_pool(pool)
        described = inputs.named_fleet(fleet)
        profile = described.profile()
        options = described.options(inputs.price(manifest.spec, profile))
        # In charge whatever the mode: a pool that only recommends would scale nothing.
        requests = inputs.named_trace(trace, described.seed)
        asked = core_pool(manifest, in_charge=True, during=(EPOCH, EPOCH + requests.duration))
        chosen = inputs.named_policy(policy, profile, asked)
    except (inputs.InputError, TraceError) as error:
        raise typer.BadParameter(str(error)) from error
    if asked.slo.at_gateway:
        raise typer.BadParameter(f"{pool}: a simulated fleet has no gateway: set slo.measuredAt to Engine, got Gateway")
    if isinstance(chosen, Static) and options.initial_replicas is None:
        options = replace(options, initial_replicas=chosen.replicas)
    watched = Watched(chosen)
    try:
        with terminal(stderr=True).status(f"{watched.name} on {requests.name}"):
            result = run(requests, profile, asked, watched, options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    held = result.score.attainment >= result.slo.attainment
    if output is not None:
        changes = [change.to_dict() for change in watched.changes]
        echo_json(orjson.dumps({**result.to_dict(), "held": held, "changes": changes}))
    else:
        terminal().print(_shown(result, watched.changes, held=held))
    if not held:
        raise typer.Exit(MISSED)


def _tokens(score: Score) -> str:
    """Tokens per GPU, and per dollar where a replica has a price."""
    per_gpu = f"{score.tokens_per_gpu_second:.0f} tokens/s per GPU"
    if not score.cost:
        return per_gpu
    return f"{per_gpu}, {score.tokens_per_gpu_second * score.gpu_hours * 3600 / score.cost:,.0f} tokens per dollar"


def _shown(result: Result, changes: list[Change], *, held: bool) -> RenderableType:
    from servingpool_simulation.report.figures import clock, latency, objective, percent

    score = result.score
    figures = Table.grid(padding=(0, 2))
    for name, value in (
        ("SLO", objective(result.slo)),
        ("attainment", f"{percent(score.attainment)} of {score.requests:,} requests: {'held' if held else 'MISSED'}"),
        ("replicas", f"{score.average_replicas:.2f} on average, {score.peak_replicas} at most"),
        ("GPU-hours", f"{score.gpu_hours:.1f}" + ("" if score.cost is None else f", ${score.cost:.2f}")),
        ("TTFT", ", ".join(f"{name} {latency(value)}" for name, value in score.ttft.items())),
        ("TPOT", ", ".join(f"{name} {latency(value)}" for name, value in score.tpot.items())),
        ("throughput", f"{_tokens(score)}, {score.goodput:.2f} good requests/s"),
        ("unserved", f"{score.rejected} rejected, {score.unfinished} unfinished"),
    ):
        figures.add_row(name, value, style="" if held or name != "attainment" else "bold red")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("Minute", justify="right")
    table.add_column("Replicas", no_wrap=True)
    table.add_column("Why")
    for change in changes:
        table.add_row(clock(change.at), f"{change.before} -> {change.after}", change.reason)
    title = Text.assemble((result.policy, "bold"), f", {result.trace} on {result.profile}")
    return Group(Padding(title, (1, 1, 0, 1)), Padding(figures, (0, 1)), table if changes else "")
