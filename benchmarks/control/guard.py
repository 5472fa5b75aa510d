"""Today's core on every case, beside the best fixed fleet: `python benchmarks/control/guard.py`.

Minutes instead of the hours of `make bench-control`, for it leaves out baselines and the oracle. Prints a table, and
writes it as a page with --output. With --against it gives a verdict, which computes nothing where the figures that
landed are of a core that means the same: `make guard`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

import store
import verdict
from bench import SEEDS
from cases import CASES, Case
from crew import Crew
from results import Run
from work import OurRun, Statics, takes_long

LARGE = "replicas-300"
"""Left out: its runs take most of an hour."""
SCALE = verdict.Scale(
    "guard",
    (
        *(*store.WORLD, *store.SCENES, *store.CORE, f"{store.SIMULATION}/offered.py"),
        *(f"benchmarks/control/{name}.py" for name in ("cases", "guard", "work")),
    ),
    verdict.together,
)
PAGE = """\
# The guard: today's core on every case

Written by `python benchmarks/control/guard.py --output docs/benchmarks/guard.md`. **Simulated; no GPU ran.**

The cases and defaults are those of [the head to head](README.md), without the other autoscalers. Each pool begins with
the best fixed fleet in hindsight. Nothing known: attained after the first ten minutes. With history: attained over the
whole run, after two hours of similar traffic (days: after one earlier day). Three seeds, of days one. `!` marks a seed
below the objective of 95%.

"""

Found = dict[tuple[str, bool, int], Run]
"""By case, with history or not, and seed."""


def main() -> None:
    """Compute, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), metavar="SLUG", help="only these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=Path, help="write a Markdown page, such as docs/benchmarks/guard.md")
    verdict.add_options(parser)
    asked = parser.parse_args()
    judged = asked.against is not None
    rows = SCALE.known() if judged and not asked.cases else None
    if rows is None:
        if judged:
            command = (sys.executable, "-m", "tests.unit.recordings.recorded", "--list")
            subprocess.run(command, cwd=store.ROOT, check=True)
        cases = [CASES[slug] for slug in asked.cases or CASES if asked.cases or slug != LARGE]
        costs, found = computed(cases, asked.jobs)
        lines = table(costs, found)
        print("\n".join(lines))
        if asked.output:
            asked.output.write_text(PAGE + "\n".join(lines) + "\n")
        rows = figures(found)
    if judged and not SCALE.conclude(rows, asked):
        sys.exit(1)


def figures(found: Found) -> verdict.Rows:
    """What the verdict compares: with history of all requests, with nothing known of those after ten minutes."""
    rows: verdict.Rows = {}
    for (slug, history, _), run in found.items():
        seed = verdict.seed(run.attainment if history else run.settled, run.cost, run.target)
        rows.setdefault(f"{'with history' if history else 'nothing known'}: {slug}", []).append(seed)
    return rows


def computed(cases: Sequence[Case], jobs: int) -> tuple[dict[str, float], Found]:
    """GPU-hours of the best fixed fleet, and our runs."""
    crew = Crew(workers=jobs)
    statics = {
        piece.slug: report for piece, report in crew.do([Statics(case.slug) for case in cases], "fixed fleets").items()
    }
    pieces = [
        OurRun(case.slug, statics[case.slug]["best"], seed, history)
        for case in cases
        for history in (False, True)
        for seed in (SEEDS[:1] if takes_long(case) else SEEDS)
    ]
    reports = crew.do(pieces, "ours")
    if crew.changed:
        raise SystemExit("The sources changed meanwhile: run it again, so that all figures are of the same state.")
    found = {
        (piece.slug, piece.history, piece.seed): Run.read(CASES[piece.slug].slo.attainment, reports[piece]["found"])
        for piece in pieces
    }
    costs = {
        case.slug: next(
            run.cost
            for fleet in statics[case.slug]["fleets"]
            if (run := Run.read(0.0, fleet)).score["peak_replicas"] == statics[case.slug]["best"]
        )
        for case in cases
    }
    return costs, found


def table(costs: dict[str, float], found: Found) -> list[str]:
    """Markdown, a row for each case."""
    lines = [
        "| case | nothing known | GPU-hours / best fixed | with history | GPU-hours / best fixed |",
        "| --- | --- | --- | --- | --- |",
    ]
    ratios: dict[bool, list[float]] = {False: [], True: []}
    held = {False: 0, True: 0}
    for slug, cost in costs.items():
        cells = []
        for history in (False, True):
            runs = [run for (case, past, _), run in found.items() if (case, past) == (slug, history)]
            attained = [run.attainment if history else run.settled for run in runs]
            held[history] += min(attained) >= runs[0].target
            ratios[history].append(sum(run.cost for run in runs) / len(runs) / cost)
            cells.append(", ".join(f"{value:.2%}{'' if value >= runs[0].target else '!'}" for value in attained))
            cells.append(f"{ratios[history][-1]:.3f}")
        lines.append(f"| {slug} | {' | '.join(cells)} |")
    cells = [
        cell
        for history in (False, True)
        for cell in (f"{held[history]} of {len(costs)} held with every seed", f"{geometric_mean(ratios[history]):.3f}")
    ]
    return [*lines, f"| **all** | {' | '.join(cells)} |"]


if __name__ == "__main__":
    main()
