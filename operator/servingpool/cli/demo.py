"""`servingpool demo`: an hour of traffic on virtual time, every policy beside ours, an HTML report."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from servingpool.api.duration import DurationBetween
from servingpool.cli.extras import needs
from servingpool.cli.output import JsonOnly, echo_json, terminal
from servingpool.decision.pool import Pool, Slo

if TYPE_CHECKING:
    from servingpool_simulation.demo import Comparison, Setup


def demo(  # noqa: PLR0913, a command line's options are its parameters
    trace: Annotated[
        str, typer.Option(help="azure-conv, azure-code, llmd-ramp, or a CSV file in the format of the Azure traces.")
    ] = "azure-conv",
    hardware: Annotated[
        str, typer.Option(help="GPU and model of a replica; a wrong name lists the valid ones.")
    ] = "a100-70b-tp4",
    ttft: Annotated[str, typer.Option(help="Bound on time to first token, 1ms to 10m, or none.")] = "2s",
    tpot: Annotated[str, typer.Option(help="Bound on time per output token, 1ms to 10s, or none.")] = "150ms",
    attainment: Annotated[
        float, typer.Option(help="Percent of requests that must meet every bound, 50 to 99.9.")
    ] = 95.0,
    history: Annotated[
        str, typer.Option(help="History of such traffic in Prometheus before the start, 0s to 6h; 0s is a new pool.")
    ] = "2h",
    max_replicas: Annotated[int, typer.Option(min=1, max=64, help="Highest replica count of every policy.")] = 16,
    price: Annotated[float | None, typer.Option(min=0, help="Dollars per GPU-hour; adds the cost of each run.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of start-up times, scrape phases and generated traces.")] = 0,
    report: Annotated[Path, typer.Option(help="File for the report (HTML).")] = Path("report/demo.html"),
    picture: Annotated[
        Path | None, typer.Option(help="File for a chart of load, replicas and TTFT (SVG).", dir_okay=False)
    ] = None,
    open_report: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = False,
    output: JsonOnly = None,
) -> None:
    """Compare the operator with other autoscalers on one hour of real traffic, in seconds.

    It needs no cluster, GPU or Prometheus. The operator's decision core scales a simulated vLLM fleet on virtual
    time, next to fixed fleets, HPA on running requests and llm-d slo-aware. It writes one HTML file.

    For example:

        servingpool demo

        servingpool demo --trace azure-code --hardware h100-70b-tp4 --tpot 100ms --open

        servingpool demo --trace my-requests.csv --price 2.50 -o json | jq .conclusion

    JSON: format, verdict (cheapest, level, dearer, missed), conclusion, entries (label, role, settings, held, result,
    changes), frontier and variants (label, attainment, gpu_hours, average_replicas). New keys may be added; format
    increases when a key changes its meaning.

    Exit codes: 0 the comparison was made, 2 an argument is invalid.
    """
    with needs("simulation"):
        from servingpool_simulation.demo import Setup
        from servingpool_simulation.inputs import named_hardware, named_trace, past_like
        from servingpool_simulation.report.conclusion import conclude
        from servingpool_simulation.report.course import picture as drawn
        from servingpool_simulation.report.page import page
        from servingpool_simulation.report.terminal import summary
        from servingpool_simulation.run import SimulationOptions

    bounds = bound(ttft, "--ttft", "10m"), bound(tpot, "--tpot", "10s")
    remembered = duration(history, "--history", "0s", "6h")
    if not 50 <= attainment <= 99.9:
        raise typer.BadParameter(f"must be 50 to 99.9 percent, got {attainment:g}", param_hint="--attainment")
    try:
        slo = Slo(*bounds, attainment=round(attainment / 100, 6))
        scored = named_trace(trace, seed)
        setup = Setup(
            trace=scored,
            past=past_like(scored, remembered, seed),
            profile=named_hardware(hardware),
            pool=Pool(slo, min_replicas=1, max_replicas=max_replicas),
            options=SimulationOptions(seed=seed, price=price),
        )
        comparison = _compared(setup)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    write(report, page(comparison, command_line()), "--report")
    if picture is not None:
        write(picture, drawn(comparison), "--picture")
    if output is not None:
        found = conclude(comparison)
        document = {"verdict": found.verdict.value, "conclusion": found.sentence, **comparison.to_dict()}
        echo_json(orjson.dumps(document))
    else:
        console = terminal()
        console.print(summary(comparison))
        console.print(f"\nReport: {report}", highlight=False, soft_wrap=True)
    if open_report:
        webbrowser.open(report.resolve().as_uri())


def command_line() -> str:
    """The command that leads to the same page."""
    return shlex.join(["servingpool", *sys.argv[1:]])


def bound(text: str, option: str, high: str) -> float | None:
    """Seconds, or None for `none`. Raises typer.BadParameter."""
    return None if text == "none" else duration(text, option, "1ms", high, also=" or none")


def duration(text: str, option: str, low: str, high: str, *, also: str = "") -> float:
    """Seconds. Raises typer.BadParameter; `also` is what else may be given."""
    try:
        return DurationBetween(low, high).read(text)
    except ValueError as error:
        said, got, given = str(error).partition(", got ")
        raise typer.BadParameter(f"{said}{also}{got}{given}", param_hint=option) from error


def write(path: Path, text: str, option: str) -> None:
    """Creates the folder too. Raises typer.BadParameter."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}", param_hint=option) from error


def _compared(setup: Setup) -> Comparison:
    """Comparison of the policies, with a progress bar on stderr."""
    from servingpool_simulation.compiled import COMPILED
    from servingpool_simulation.demo import compare

    columns = (
        TextColumn("[progress.description]{task.description:<24}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=terminal(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        if not COMPILED:
            bar.console.print("numba (extra `simulation`) is not installed, so this takes many times as long.")

        def show(doing: str, done: int, total: int) -> None:
            # Machine code is made on the first run after an installation, which takes a moment.
            what = doing if done or not COMPILED else f"{doing}, compiling"
            bar.update(task, description=what, completed=done, total=total)

        return compare(setup, show)
