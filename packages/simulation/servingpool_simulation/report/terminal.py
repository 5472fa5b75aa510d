"""The comparison in a terminal of 80 columns."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from servingpool_simulation.demo import Comparison, Entry, Role
from servingpool_simulation.report.conclusion import Verdict, conclude
from servingpool_simulation.report.figures import latency, objective, percent
from servingpool_simulation.score import Score

_STYLE = {Verdict.CHEAPEST: "green", Verdict.LEVEL: "yellow", Verdict.DEARER: "yellow", Verdict.MISSED: "red"}


def summary(comparison: Comparison) -> RenderableType:
    """Table and conclusion."""
    found = conclude(comparison)
    said = Text.assemble((found.head, f"bold {_STYLE[found.verdict]}"), f": {found.figures}.")
    return Group(table(comparison), "", said)


def table(comparison: Comparison) -> Table:
    """A line for each policy."""
    setup = comparison.setup
    priced = setup.options.price is not None
    found = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=f"{setup.trace.name} on {setup.profile.name}\n{objective(setup.pool.slo)}",
        title_style="bold",
    )
    found.add_column("Policy\n", no_wrap=True)
    found.add_column("Attained\n", no_wrap=True)
    for header in ("Mean\nfleet", "GPU-\nhours", *(("Cost\n$",) if priced else ()), "Scaled\n/ hour"):
        found.add_column(header, justify="right", no_wrap=True)
    for name in ("TTFT", "TPOT"):
        found.add_column(f"{name}\np95", justify="right", no_wrap=True)
    for entry in comparison.entries:
        found.add_row(*_cells(entry, priced=priced), style="bold" if entry.role is Role.OURS else "")
    return found


def attained(share: float, *, held: bool) -> Text:
    """Marked with a word besides the colour."""
    return Text(f"{percent(share)} {'held' if held else 'MISSED'}", style="green" if held else "red")


def _cells(entry: Entry, *, priced: bool) -> list[RenderableType]:
    score = entry.result.score
    return [entry.label, attained(score.attainment, held=entry.held), *figures(score, priced=priced)]


def figures(score: Score, *, priced: bool) -> list[str]:
    """Average replicas, GPU-hours, cost where priced, changes an hour, TTFT and TPOT at p95."""
    return [
        f"{score.average_replicas:.2f}",
        f"{score.gpu_hours:.1f}",
        *([f"{score.cost:.2f}"] if priced and score.cost is not None else []),
        f"{score.scale_changes_per_hour:.0f}",
        latency(score.ttft["p95"]),
        latency(score.tpot["p95"]),
    ]
