"""What each parameter of today's core is worth: `python benchmarks/control/ablated.py`, 18 minutes on two cores.

On the cases of the guard that take an hour of traffic, each with one field of `Params` taken to where its idea has no
effect. Results are kept as long as the sources stay the same, so an interrupted run goes on where it ended. It prints
the table; --output writes it as a page.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ablations import ABLATIONS, KINDS
from bench import SEEDS, enter
from cases import CASES
from crew import Crew
from results import CaseResults
from tables import ablations_table
from work import AblationRun, OurRun, Statics, Work, takes_long

PAGE = """\
# What each parameter is worth

Written by `python benchmarks/control/ablated.py --output docs/benchmarks/ablations.md`. **Simulated; no GPU ran.**

Each row is the core without one idea: one field of `Params` is taken to where the idea has no effect
(`benchmarks/control/ablations.py` of that commit has the values). Cases: {cases}; seeds of each: {seeds}.
Attainment is over all arrivals, GPU-hours are over those with all ideas, both on the mean. Beside them: the cases in
which a seed misses the SLO, and the cases whose GPU-hours change least and most.

"""


def main() -> None:
    """Compute, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e9, help="no piece of work is begun later than that")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seeds", type=int, default=1, help="of each case")
    parser.add_argument("--output", type=Path, help="write a Markdown page, such as docs/benchmarks/ablations.md")
    options = parser.parse_args()
    crew = Crew(until=time.monotonic() + 60 * options.minutes, workers=options.jobs)
    cases = [case for case in CASES.values() if case.kind in KINDS and not takes_long(case)]
    found = computed(crew, {case.slug: CaseResults(case) for case in cases}, SEEDS[: options.seeds])
    text = ablations_table(found)
    print(text)
    if crew.changed or crew.left:
        raise SystemExit("Run it again: sources changed meanwhile, or pieces of work are missing.")
    if options.output:
        page = PAGE.format(cases=len(cases), seeds=options.seeds)
        options.output.write_text(f"{page}{text}\n")


def computed(crew: Crew, found: dict[str, CaseResults], seeds: tuple[int, ...]) -> list[CaseResults]:
    """All runs of these cases, with all ideas and without each."""
    statics = crew.do([Statics(slug) for slug in found], "fixed fleets")
    best = {piece.slug: report["best"] for piece, report in statics.items()}
    runs = [
        (slug, initial, seed, history) for slug, initial in best.items() for seed in seeds for history in (False, True)
    ]
    pieces: list[Work] = [OurRun(*run) for run in runs]
    pieces += [AblationRun(*run, ablation.name) for run in runs for ablation in ABLATIONS]
    for piece, report in crew.do(pieces, "ours").items():
        enter(found[piece.slug], piece, report)
    return list(found.values())


if __name__ == "__main__":
    main()
