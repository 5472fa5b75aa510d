"""The tables, as Markdown."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablations import ABLATIONS
from goals import Goal
from results import CaseResults, Run, Seeds, mean

from servingpool_simulation.baselines.catalogue import BASELINES
from servingpool_simulation.report.figures import latency, percent

NOTHING = "-"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    marks = ("---", *("---:" for _ in header[1:]))
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def attained(run: Run | None) -> str:
    """Its attainment, a miss in bold and with the word."""
    if run is None:
        return NOTHING
    return percent(run.attainment) if run.held else f"**missed** {percent(run.attainment)}"


def times(ratio: float | None) -> str:
    """`1.07x`."""
    return NOTHING if ratio is None else f"{ratio:.2f}x"


def overview(found: Sequence[CaseResults]) -> str:
    """A line for each case: GPU-hours over the oracle's."""
    header = (
        *("case", "oracle, GPU-h", "ours", "attains", "with history", "attains"),
        *("best static", "best baseline, defaults", "best baseline, tuned in hindsight"),
    )
    rows = []
    for results in found:
        ours, knowing = results.our(history=False), results.our(history=True)
        default, tuned = results.best_default(), results.best_tuned()
        rows.append(
            (
                f"[{results.case.slug}](cases.md#{results.case.slug})",
                NOTHING if results.oracle is None else f"{results.oracle.cost:.1f}",
                times(results.relative(ours)),
                attained(ours),
                times(results.relative(knowing)),
                attained(knowing),
                times(results.relative(results.static)),
                "none holds" if default is None else f"{times(results.relative(default.run))} {default.name}",
                _tuned(results) if tuned is None else f"{times(results.relative(tuned.run))} {tuned.name}",
            )
        )
    return table(header, rows)


def days(found: Sequence[CaseResults]) -> str:
    """What foresight is worth: from every arrival known to the fleet fixed for the day. Empty where there is no day."""
    stretches = sorted({minutes for results in found for minutes in results.timetables})
    header = (
        *("case", "oracle, GPU-h", *(f"timetable of {minutes} min" for minutes in stretches)),
        *("best static", "ours, day one", "ours, day two"),
    )
    rows = [
        (
            results.case.slug,
            NOTHING if results.oracle is None else f"{results.oracle.cost:.1f}",
            *(times(results.relative(results.timetables.get(minutes))) for minutes in stretches),
            times(results.relative(results.static)),
            *(times(results.relative(results.our(history=history))) for history in (False, True)),
        )
        for results in found
        if results.timetables
    ]
    return table(header, rows) if rows else ""


def _tuned(results: CaseResults) -> str:
    return "none holds" if any(len(runs.tried) > 1 for runs in results.baselines.values()) else "not tuned"


def goals_table(goals: Sequence[Goal]) -> str:
    """Which are reached, by how many cases, and the figures of those that fail."""
    rows = []
    for goal in goals:
        reached = sum(judged.reached for judged in goal.judged)
        failing = "; ".join(f"{judged.slug} {judged.figure}" for judged in goal.judged if not judged.reached)
        state = "not measured" if not goal.judged else "reached" if goal.reached else "**not reached**"
        best = f"{sum(goal.oracle)} of {len(goal.oracle)}" if goal.oracle else NOTHING
        rows.append((goal.measure, goal.goal, state, f"{reached} of {len(goal.judged)}", best, failing or NOTHING))
    return _left(("measure", "goal", "", "cases", "the oracle", "where not"), rows)


def goal_figures(goals: Sequence[Goal]) -> str:
    """Every figure behind the table of goals."""
    return "\n".join(
        f"- {goal.measure} ({goal.goal}): " + ", ".join(f"{judged.slug} {judged.figure}" for judged in goal.judged)
        for goal in goals
        if goal.judged
    )


def baselines_overall(found: Sequence[CaseResults]) -> str:
    """A line for each baseline: how often it holds the SLO, and at what cost where it does; ours for comparison."""
    header = (
        "policy",
        "holds with defaults",
        "GPU-h there",
        "holds tuned in hindsight",
        "GPU-h there",
        "tuned is",
        "default",
    )
    rows = []
    for history, name in ((False, "**ours**"), (True, "**ours, with history**")):
        runs = [(results, results.our(history=history)) for results in found]
        rows.append((name, *_share(runs), *[NOTHING] * 4))
    for baseline in BASELINES:
        known = [(results, results.baselines[baseline.slug]) for results in found if baseline.slug in results.baselines]
        tuned = [(results, runs.tuned) for results, runs in known if len(runs.tried) > 1]
        defaults = [(results, runs.default) for results, runs in known]
        shares = (*_share(defaults), *_share(tuned, of=len(tuned)))
        rows.append((baseline.name, *shares, baseline.parameter, f"{baseline.default:g}"))
    return table(header, rows)


def _share(runs: Sequence[tuple[CaseResults, Run | None]], of: int | None = None) -> tuple[str, str]:
    there = [(results, run) for results, run in runs if run is not None]
    held = [(results, run) for results, run in there if run.held]
    ratios = [ratio for results, run in held if (ratio := results.relative(run)) is not None]
    total = len(there) if of is None else of
    return (f"{len(held)} of {total}" if total else NOTHING, times(mean(ratios)))


def seeds(found: Sequence[CaseResults]) -> str:
    """Luck: start-up times, scrape phases and, where the trace is drawn, arrivals."""
    header = ("case", "attains, mean", "lowest", "lowest after 10 min", "GPU-h, mean", "most", "with history, lowest")
    rows = []
    for results in found:
        runs, knowing = results.seeds(history=False), results.seeds(history=True)
        if len(runs) < 2:
            continue
        rows.append(
            (
                results.case.slug,
                percent(sum(run.attainment for run in runs) / len(runs)),
                attained(min(runs, key=lambda run: run.attainment)),
                percent(min(run.settled for run in runs)),
                f"{sum(run.cost for run in runs) / len(runs):.1f}",
                f"{max(run.cost for run in runs):.1f}",
                attained(min(knowing, key=lambda run: run.attainment, default=None)),
            )
        )
    return table(header, rows)


def case_table(results: CaseResults) -> str:
    """Every policy on one case."""
    header = (
        *("policy", "attains", "after 10 min", "GPU-h", "of oracle", "mean fleet", "most", "changes/h", "flaps"),
        *("TTFT p95", "TPOT p95"),
    )
    lines: list[tuple[str, Run | None]] = [
        ("**ours**", results.our(history=False)),
        ("**ours, with history**", results.our(history=True)),
        ("oracle", results.oracle),
        (f"best static in hindsight, {results.static_size}", results.static),
    ]
    lines += [(runs.baseline.name, runs.default) for runs in results.baselines.values()]
    return table(header, [_line(results, name, run) for name, run in lines if run is not None])


def tuned_table(results: CaseResults) -> str:
    """Each baseline at its best; empty where none was tuned."""
    header = ("tuned in hindsight", "best", "attains", "GPU-h", "of oracle", "values tried")
    rows = []
    for runs in results.baselines.values():
        if len(runs.tried) < 2:
            continue
        # Where no value holds the SLO, the one that comes closest.
        value = runs.best if runs.best is not None else max(runs.tried, key=lambda each: runs.tried[each].attainment)
        run = runs.tried[value]
        cost = (f"{run.cost:.1f}", times(results.relative(run)))
        rows.append((runs.baseline.name, f"{value:g}", attained(run), *cost, f"{len(runs.tried)}"))
    return table(header, rows) if rows else ""


def _line(results: CaseResults, name: str, run: Run) -> tuple[str, ...]:
    score = run.score
    return (
        *(name, attained(run), percent(run.settled), f"{run.cost:.1f}", times(results.relative(run))),
        *(f"{score['average_replicas']:.2f}", f"{score['peak_replicas']}"),
        *(f"{score['scale_changes_per_hour']:.1f}", f"{score['flapping']:.0%}"),
        *(latency(score["ttft"]["p95"]), latency(score["tpot"]["p95"])),
    )


def sweeps_table(reports: Sequence[Mapping[str, Any]]) -> str:
    """What was varied, what came of it."""
    header = ("variation", "attains", "after 10 min", "best static", "GPU-h of it", "changes/h", "most", "said")
    rows = []
    for report in reports:
        held = report["attainment"] >= report["target"]
        settled, size = report["after_new_pool"], report["static_replicas"]
        share = percent(report["attainment"])
        rows.append(
            (
                *(report["name"], share if held else f"**missed** {share}"),
                NOTHING if settled is None else percent(settled),
                "none attains" if size is None else f"{size}",
                times(report["ratio"]),
                *(f"{report['changes_per_hour']:.1f}", f"{report['peak_replicas']}", _said(report)),
            )
        )
    return _left(header, rows)


def _said(report: Mapping[str, Any]) -> str:
    said = []
    if "relearned_after" in report:
        seconds = report["relearned_after"]
        said.append("not relearned" if seconds is None else f"relearned in {seconds:.0f} s")
    most = max(report["warnings"].items(), key=lambda item: item[1], default=None)
    if most is not None:
        said.append(f"{most[1] / report['decisions']:.0%} of decisions: {most[0]}")
    return re.sub(r"\|", "/", "; ".join(said)) or NOTHING


def ablations_table(shown: Sequence[CaseResults]) -> str:
    """Means over the same cases: what each idea is worth, and without a past and with one."""
    columns = ("attains", "missed in", "GPU-h", "least to most")
    header = ("without", *columns, *(f"{column}, with history" for column in columns))
    rows = [_without("nothing: all ideas", [(results.ours, results.ours) for results in shown])]
    rows += [
        _without(
            f"{each.name}: {each.what}",
            [(results.without[each.name], results.ours) for results in shown if each.name in results.without],
        )
        for each in ABLATIONS
    ]
    return table(header, rows)


def _without(name: str, cases: Sequence[tuple[Seeds, Seeds]]) -> tuple[str, ...]:
    """A row; of each case the runs without an idea, and those with all of them."""
    figures: list[str] = []
    for history in (False, True):
        pairs = [
            [(run, whole[key]) for key, run in sorted(runs.items()) if key[0] == history and key in whole]
            for runs, whole in cases
        ]
        pairs = [case for case in pairs if case]
        if not pairs:
            figures += [NOTHING] * 4
            continue
        attained = [statistics.fmean(run.attainment for run, _ in case) for case in pairs]
        missed = sum(not all(run.held for run, _ in case) for case in pairs)
        more = [sum(run.cost for run, _ in case) / sum(whole.cost for _, whole in case) - 1.0 for case in pairs]
        figures += [
            percent(statistics.fmean(attained)),
            f"{missed} of {len(pairs)}",
            f"{statistics.fmean(more):+.1%}",
            f"{min(more):+.0%} to {max(more):+.0%}",
        ]
    return (name, *figures)


def _left(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """All columns to the left: words more than figures."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ("---",) * len(header), *rows))
