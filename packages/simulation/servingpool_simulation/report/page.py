"""The report: one HTML file that needs nothing besides itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from servingpool import __version__
from servingpool.decision.decision import Decision
from servingpool.decision.observation import Unknown
from servingpool_simulation.changes import Change
from servingpool_simulation.demo import LONGEST_VARIED, Comparison, Entry, Role
from servingpool_simulation.report.conclusion import Verdict, conclude
from servingpool_simulation.report.course import course
from servingpool_simulation.report.figures import (
    clock,
    latency,
    listed,
    more_or_less,
    objective,
    percent,
    target,
)
from servingpool_simulation.report.frontier import frontier
from servingpool_simulation.report.ground import ground
from servingpool_simulation.report.palette import themed
from servingpool_simulation.report.terminal import figures
from servingpool_simulation.run import Result


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table of policies."""

    label: str
    held: bool
    attained: str
    figures: tuple[str, ...]
    ours: bool
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One headline figure."""

    figure: str
    what: str
    beside: str


def page(comparison: Comparison, command: str) -> str:
    """The HTML; `command` is what a person types to get it again."""
    environment = Environment(
        loader=PackageLoader("servingpool_simulation.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = conclude(comparison)
    return environment.get_template("page.html.j2").render(
        title=f"{comparison.setup.trace.name} on {comparison.setup.profile.name}",
        objective=objective(comparison.setup.pool.slo),
        good=found.verdict is Verdict.CHEAPEST,
        missed=found.verdict is Verdict.MISSED,
        conclusion=found,
        cards=list(_cards(comparison)),
        priced=comparison.setup.options.price is not None,
        rows=[_row(entry, comparison) for entry in comparison.entries],
        course=themed(course(comparison)),
        frontier=themed(frontier(comparison)),
        tuned=tuned(comparison),
        ours=comparison.ours.label,
        changes=[_change(change) for change in comparison.ours.changes],
        variants=_variants(comparison),
        labels=_labels(comparison),
        too_long=f"{LONGEST_VARIED / 3600:g}",
        ground=ground(comparison),
        command=command,
        version=__version__,
    )


def _cards(comparison: Comparison) -> Iterator[Card]:
    ours, slo = comparison.ours.result.score, comparison.setup.pool.slo
    yield Card(percent(ours.attainment), "of requests within the SLO", f"objective {target(slo)}")
    yield Card(f"{ours.average_replicas:.2f}", "replicas on average", f"{ours.peak_replicas} at most")
    beside = [
        f"{more_or_less(ours.gpu_hours, entry.result.score.gpu_hours)} than {entry.label}"
        for entry in comparison.others
        if entry.role is Role.PEAK
    ]
    yield Card(f"{ours.gpu_hours:.1f}", "GPU-hours", listed(beside).replace("as much than", "as much as"))
    if ours.cost is not None:
        yield Card(f"${ours.cost:.2f}", "cost", f"${comparison.setup.options.price:g} a GPU-hour")
    yield Card(latency(ours.ttft["p95"]), "TTFT at p95", _bound(slo.time_to_first_token))
    yield Card(latency(ours.tpot["p95"]), "TPOT at p95", _bound(slo.time_per_output_token))
    yield Card(str(len(comparison.ours.changes)), "scale changes", f"{ours.scale_changes_per_hour:.0f} an hour")


def _bound(seconds: float | None) -> str:
    return "no bound" if seconds is None else f"SLO {latency(seconds)}"


def _row(entry: Entry, comparison: Comparison) -> Row:
    score, priced = entry.result.score, comparison.setup.options.price is not None
    return Row(
        label=entry.label,
        held=entry.held,
        attained=percent(score.attainment),
        figures=tuple(figures(score, priced=priced)),
        ours=entry.role is Role.OURS,
        settings=entry.settings,
    )


def tuned(comparison: Comparison) -> str:
    """What the HPA's best target in hindsight would have given."""
    goal = comparison.setup.pool.slo.attainment
    attained = [result for result in comparison.tuned if result.score.attainment >= goal]
    if not attained:
        return "The HPA holds the SLO on this trace at none of these targets."
    best = min(attained, key=lambda result: result.score.gpu_hours)
    ours = comparison.ours
    against = more_or_less(best.score.gpu_hours, ours.result.score.gpu_hours)
    than = "as" if against == "as much" else "than"
    return (
        f"Tuned to this trace in hindsight, its cheapest target that holds the SLO is "
        f"{best.policy.rpartition(' ')[2]}: {best.score.gpu_hours:.1f} GPU-hours at "
        f"{percent(best.score.attainment)}, {against} {than} {ours.label}. The right target depends on model, "
        f"hardware and traffic, and is not known beforehand."
    )


def _change(change: Change) -> dict[str, object]:
    return {
        "clock": clock(change.at),
        "before": change.before,
        "after": change.after,
        "up": change.after > change.before,
        "ready": change.ready,
        "need": _need(change.decision),
        "limits": [] if change.decision is None else change.decision.limits,
        "reason": change.reason,
    }


def _need(decision: Decision | None) -> str:
    if decision is None or isinstance(decision.need, Unknown):
        return "unknown"
    return f"{decision.need:.2f}"


def _labels(comparison: Comparison) -> list[str]:
    """Columns of the table of variants."""
    named = dict.fromkeys(label for variant in comparison.variants for label, _ in variant.results)
    return list(named)


def _variants(comparison: Comparison) -> list[tuple[str, list[tuple[bool, str, str] | None]]]:
    """(name, for each of `_labels` whether it held, attainment and average replicas; None without a run)."""
    labels = _labels(comparison)
    lines = [("as above", {entry.label: entry.result for entry in comparison.entries})]
    if comparison.best is not None:
        lines[0][1]["best static"] = comparison.best
    lines.extend((variant.name, dict(variant.results)) for variant in comparison.variants)
    return [(name, [_cell(results.get(label)) for label in labels]) for name, results in lines]


def _cell(result: Result | None) -> tuple[bool, str, str] | None:
    if result is None:
        return None
    score = result.score
    held = score.attainment >= result.slo.attainment
    return held, percent(score.attainment), f"{score.average_replicas:.2f}"
