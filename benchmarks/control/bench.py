"""Everything that the README claims of the controller, computed again: `make bench-control`.

Results are kept on disk as they come, so that it can be stopped at any time and goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import pages
import store
import sweeps
from cases import CASES, Case, Kind
from crew import Crew
from results import CaseResults, Run, baseline_runs
from work import (
    AblationRun,
    BaselineRuns,
    Oracle,
    OurRun,
    Report,
    Statics,
    SweepRun,
    Timetable,
    Work,
    measured,
    takes_long,
)

from servingpool_simulation.baselines.catalogue import BASELINES
from servingpool_simulation.oracle import Effort

PUBLISHED = store.ROOT / "docs" / "benchmarks"
DRAWINGS = store.ROOT / "report" / "benchmarks"
"""Plots that no page shows; not in git."""
FIGURES = store.ROOT / "build" / "benchmarks"
"""For machines; not in git."""
QUICK = store.ROOT / "report" / "control"
SEEDS = (0, 1, 2)
STRETCHES = (60, 10)
"""Minutes for which the timetables of a day keep a fleet."""
QUICK_EFFORT = 4_000_000
"""Requests that the search for an oracle simulates with --quick."""


def main() -> None:
    """Compute, then write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one-hour cases, nothing tuned, no sweeps")
    parser.add_argument(
        "--cases", nargs="+", choices=list(CASES), metavar="SLUG", help="only these: " + ", ".join(CASES)
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin nothing after so many; write what there is"
    )
    parser.add_argument("--output", type=Path, help="folder of the pages")
    parser.add_argument("--workers", type=int, help="processes; default: one for each processor")
    options = parser.parse_args()
    crew = Crew(until=time.monotonic() + 60 * options.minutes)
    if options.workers:
        crew.workers = options.workers
    # 300 replicas take an hour with all baselines; they are among the sweeps.
    chosen = [CASES[slug] for slug in options.cases or CASES if options.cases or slug != "replicas-300"]
    if options.quick:
        chosen = [case for case in chosen if case.kind is Kind.BURST]
    found = _computed(crew, chosen, quick=options.quick, rest=not options.quick and not options.cases)
    folder = options.output or (QUICK if options.quick or options.cases else PUBLISHED)
    pages.publish(found, folder, DRAWINGS if folder == PUBLISHED else folder)
    figures = FIGURES / ("control.json" if folder == PUBLISHED else "control-part.json")
    pages.write_figures(found, figures)
    if crew.changed:
        print("The sources changed meanwhile: run it again, so that all figures are of the same state.")
    missing = f"; {crew.left} pieces of work are missing" if crew.left else ""
    print(f"Written to {folder}, figures to {figures}{missing}")


def _computed(crew: Crew, cases: Sequence[Case], *, quick: bool, rest: bool) -> pages.Publication:
    """`rest`: the sweeps too."""
    statics = crew.do([Statics(case.slug) for case in cases], "best static fleets")
    found = {case.slug: CaseResults(case) for case in cases}
    for piece, report in statics.items():
        results = found[piece.slug]
        results.static_size = report["best"]
        results.fleets = [Run.read(results.target, fleet) for fleet in report["fleets"]]
    pieces: list[Work] = []
    for results in found.values():
        if results.static_size is not None:
            pieces += _pieces(results.case, results.static_size, quick=quick)
    varied = [SweepRun(variation.base, variation.name) for variation in sweeps.VARIATIONS] if rest else []
    reports = crew.do([*pieces, *varied], "runs")
    for piece in pieces:
        if piece in reports:
            enter(found[piece.slug], piece, reports[piece])
    return pages.Publication(
        cases=list(found.values()),
        sweeps=[measured(reports[piece]) for piece in varied if piece in reports],
        left=crew.left,
        command="make bench-control" if rest else "python benchmarks/control/bench.py" + " --quick" * quick,
    )


def _pieces(case: Case, initial: int, *, quick: bool) -> list[Work]:
    effort = QUICK_EFFORT if quick else Effort().requests
    return [
        Oracle(case.slug, initial, effort),
        *(Timetable(case.slug, minutes) for minutes in (STRETCHES if case.kind is Kind.DAY else ())),
        *(OurRun(case.slug, initial, seed, history) for history, seed in _conditions(case)),
        *(
            BaselineRuns(case.slug, initial, baseline.slug, "default" if quick else pages.how_tuned(case.slug))
            for baseline in BASELINES
        ),
    ]


def _conditions(case: Case) -> list[tuple[bool, int]]:
    """(with history, seed) under which ours runs."""
    seeds = SEEDS[:1] if takes_long(case) else SEEDS
    return [(history, seed) for seed in seeds for history in ((False, True) if case.past is not None else (False,))]


def enter(results: CaseResults, piece: Work, report: Report) -> None:
    """Puts what was found where it belongs."""
    match piece:
        case Oracle() if report["found"] is not None:
            results.oracle = Run.read(results.target, report["found"])
        case Timetable() if report["found"] is not None:
            results.timetables[piece.minutes] = Run.read(results.target, report["found"])
        case OurRun():
            results.ours[piece.history, piece.seed] = Run.read(results.target, report["found"])
        case AblationRun():
            run = Run.read(results.target, report["found"])
            results.without.setdefault(piece.ablation, {})[piece.history, piece.seed] = run
        case BaselineRuns():
            results.baselines[piece.baseline] = baseline_runs(results.target, piece.baseline, report)


if __name__ == "__main__":
    main()
