"""The core on engines that are unlike its model: `python benchmarks/control/odd.py`.

Prints a table, and writes it as a page with --output. Results are kept, so a second run computes what changed. With
--against it gives a verdict, as the guard does: `make guard`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson
import store
import verdict
from crew import Crew
from odd_cases import FOUND_AT, ODD, OddCase
from odd_work import SCENES, OddRun, OddStatic
from rich.console import Console
from rich.table import Table
from work import Report

SEEDS = (0, 1, 2)
LEAST, LEAST_MEAN = 0.94, 0.95
"""Attainment after ten minutes that is asked of each seed of a case, and of the mean."""
MOST, MOST_MEAN = 1.4, 1.2
"""Replicas over the best static fleet, likewise."""
GAP = 0.03
"""Attainment that the status may be off by."""
FALSELY_MET = 300.0
"""Seconds for which SLOMet may be True while clients are far below the SLO."""
SOON = 30.0
"""Seconds from the queue's growth to the first order: two ticks."""

SCALE = verdict.Scale(
    "odd",
    (
        *(*store.WORLD, *store.SCENES, *store.CORE, *SCENES, f"{store.SIMULATION}/offered.py"),
        *(f"benchmarks/control/{name}.py" for name in ("cases", "odd_status", "odd_work", "work")),
    ),
    verdict.by_row,
)
Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """All seeds of one case."""

    odd: OddCase
    statics: Sequence[Report]
    runs: Sequence[Report]

    @property
    def best(self) -> list[int | None]:
        """Best static fleet of each seed; None where not even the maximum holds."""
        return [report["best"] for report in self.statics]

    @property
    def attained(self) -> list[float]:
        """After ten minutes."""
        return [run["score"]["settled_attainment"] for run in self.runs]

    @property
    def ratios(self) -> list[float]:
        """Replicas over the best static fleet."""
        return [
            run["score"]["average_replicas"] / best if best else math.nan
            for run, best in zip(self.runs, self.best, strict=True)
        ]

    @property
    def gap_end(self) -> float:
        """Stated attainment less the clients', at the last decision: the seed that is furthest off."""
        return max(self._status("gap_end"), key=abs, default=math.nan)

    @property
    def gap_mean(self) -> float:
        """Distance of the two, mean over decisions and seeds."""
        gaps = self._status("gap_mean")
        return fmean(gaps) if gaps else math.nan

    @property
    def falsely_met(self) -> float:
        """Longest stretch in seconds of any seed."""
        return max(self._status("falsely_met"))

    @property
    def first_order(self) -> list[float | None]:
        """Seconds, by seed."""
        return [run["first_order"] for run in self.runs]

    @property
    def worst(self) -> Figures:
        """The minute in which most requests missed, of the seed with the lowest attainment."""
        run = min(self.runs, key=lambda run: float(run["score"]["settled_attainment"]))
        worst: Figures = run["status"]["worst"]
        return worst

    def seeds(self) -> list[verdict.Seed]:
        """For the verdict: replicas where not even the maximum holds, for then there is no best fleet."""
        replicas = [run["score"]["average_replicas"] for run in self.runs]
        costs = [each / (best or 1) for each, best in zip(replicas, self.best, strict=True)]
        return [verdict.seed(*each, LEAST) for each in zip(self.attained, costs, strict=True)]

    def figures(self) -> dict[str, Any]:
        """For machines."""
        return {
            "slug": self.odd.case.slug,
            "title": self.odd.case.title,
            "group": self.odd.group,
            "best_static": self.best,
            "attained": self.attained,
            "attained_whole": [run["score"]["attainment"] for run in self.runs],
            "replicas": [run["score"]["average_replicas"] for run in self.runs],
            "peak_replicas": [run["score"]["peak_replicas"] for run in self.runs],
            "ratio": self.ratios,
            **{name: self._status(name) for name in ("gap_end", "gap_mean", "gap_most", "falsely_met")},
            "first_order": self.first_order,
            "worst": self.worst,
        }

    def _status(self, name: str) -> list[float]:
        return [run["status"][name] for run in self.runs if run["status"][name] is not None]


def main() -> None:
    """Compute, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(ODD), metavar="SLUG", help="only these: " + ", ".join(ODD))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=Path, help="write a Markdown page, such as docs/benchmarks/odd.md")
    parser.add_argument("--json", type=Path, help="write the figures")
    parser.add_argument(
        "--explain", action="store_true", help="print the decision's reason in each case's worst minute"
    )
    verdict.add_options(parser)
    options = parser.parse_args()
    judged = options.against is not None
    rows = SCALE.known() if judged and not options.cases else None
    if rows is None:
        found = computed([ODD[slug] for slug in options.cases or ODD], SEEDS, options.jobs)
        tell(found, options)
        rows = {f"odd engines: {case.odd.case.slug}": case.seeds() for case in found}
    if judged and not SCALE.conclude(rows, options):
        sys.exit(1)


def tell(found: Sequence[Found], options: argparse.Namespace) -> None:
    """Print the table, and write what is asked for."""
    header, rows = table(found)
    printed = Table(*header)
    for row in rows:
        printed.add_row(*row)
    Console(width=190).print(printed)
    if options.explain:
        print("\n".join(explained(found)))
    if options.json:
        options.json.write_bytes(orjson.dumps([case.figures() for case in found], option=orjson.OPT_INDENT_2) + b"\n")
    if options.output:
        options.output.write_text(page(found))
        print(f"Written to {options.output}")


def computed(cases: Sequence[OddCase], seeds: Sequence[int], jobs: int) -> list[Found]:
    """All runs, as far as they are not kept from before."""
    crew = Crew(workers=jobs)
    statics = crew.do([OddStatic(odd.case.slug, seed) for odd in cases for seed in seeds], "best static fleets")
    runs = crew.do([OddRun(odd.case.slug, seed) for odd in cases for seed in seeds], "ours")
    if crew.changed:
        raise SystemExit("The sources changed meanwhile: run it again, so that all figures are of the same state.")
    return [
        Found(
            odd,
            [statics[OddStatic(odd.case.slug, seed)] for seed in seeds],
            [runs[OddRun(odd.case.slug, seed)] for seed in seeds],
        )
        for odd in cases
    ]


HEADER = (
    "case",
    "engine",
    "best static",
    "attained after 10 min",
    "mean",
    "replicas / best static",
    "mean",
    "status - clients",
    "mean gap",
    "falsely met",
    "first order",
)


def table(found: Sequence[Found]) -> tuple[Sequence[str], list[list[str]]]:
    """Header and rows; `!` marks a figure that misses its bar."""
    rows = [_row(case) for case in found]
    held = [case for case in found if case.odd.step_at is None]
    if held:
        attained = fmean(value for case in held for value in case.attained)
        ratio = fmean(ratio for case in held for ratio in case.ratios)
        over = [
            *(f"mean of {len(held)}, no steps", "", "", ""),
            *(_marked(attained, _percent, least=LEAST_MEAN), ""),
            _marked(ratio, "{:.2f}".format, most=MOST_MEAN),
        ]
        rows.append(over + [""] * (len(HEADER) - len(over)))
    return HEADER, rows


def _row(case: Found) -> list[str]:
    stepped = case.odd.step_at is not None
    least, least_mean, most = (-math.inf, -math.inf, math.inf) if stepped else (LEAST, LEAST_MEAN, MOST)
    best = dict.fromkeys(str(size or "none") for size in case.best)
    return [
        case.odd.case.slug,
        f"{case.odd.case.title}; {case.odd.group}",
        ", ".join(best),
        ", ".join(_marked(value, _percent, least=least) for value in case.attained),
        _marked(fmean(case.attained), _percent, least=least_mean),
        ", ".join(_marked(ratio, "{:.2f}".format, most=most) for ratio in case.ratios),
        _marked(fmean(case.ratios), "{:.2f}".format, most=most),
        _marked(case.gap_end, lambda gap: f"{100 * gap:+.1f}", most=GAP),
        f"{100 * case.gap_mean:.1f}",
        _marked(case.falsely_met, "{:.0f} s".format, most=FALSELY_MET),
        ", ".join(_first(seconds) for seconds in case.first_order) if stepped else "",
    ]


def _first(seconds: float | None) -> str:
    return "never!" if seconds is None else _marked(seconds, "{:.0f} s".format, most=SOON)


def _marked(value: float, write: Callable[[float], str], *, least: float = -math.inf, most: float = math.inf) -> str:
    """With `!` where it is outside its bar."""
    return write(value) + "!" * (not (value >= least and abs(value) <= most))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def explained(found: Iterable[Found]) -> list[str]:
    """A line or two for each case."""
    return [f"{case.odd.case.slug}: {_worst_minute(case.worst)}\n    {case.worst['reason']}" for case in found]


def _worst_minute(worst: Figures) -> str:
    return (
        f"at {worst['at']:.0f} s {worst['missed']} of {worst['requests']} requests missed the SLO within a minute, "
        f"with {worst['ready']} replicas ready and {worst['requested']} requested, {worst['queue']} requests queued."
    )


PAGE = f"""\
# Engines that are unlike the model

Written by `python benchmarks/control/odd.py --output docs/benchmarks/odd.md`. **Simulated; no GPU ran for this page.**

The step-time model fits vLLM on a GPU. These engines differ: a cap of running sequences, a TTFT histogram that counts
from admission and so leaves out the queue, a latency that does not depend on the batch, a step time that bends, pauses,
a slow replica, several tokens a step, series that are absent until they are used. Each pool is found at {FOUND_AT}
replicas, nothing is known of it, and the target is 95% of requests. Attainment is what users experience from arrival,
whatever the engine's page says.

- Best static: the smallest fixed fleet that holds the SLO over the whole trace, in hindsight, by seed.
- Attained after 10 min: of the requests that arrived after the first ten minutes, by seed. Asked for: {LEAST:.0%} in
  each, {LEAST_MEAN:.0%} on the mean.
- Replicas / best static: mean over the whole run, loading and draining included. Asked for: {MOST:g} in each,
  {MOST_MEAN:g} on the mean of all.
- Status - clients: attainment that the last decision states less that of the clients, over the same hour, in points;
  the seed that is furthest off. Mean gap: their distance over all decisions. Asked for: {100 * GAP:g} points.
- Falsely met: longest time for which the stated attainment is at the target or above while, of the requests that were
  settled in the last five minutes, more than 5 points too few met the SLO. Asked for: {FALSELY_MET:.0f} s.
- First order: from the queue's first growth after the step to the first decision that adds a replica. Asked for:
  {SOON:.0f} s. The step-up cases are there for this figure: a tenth of their requests is late whatever is ordered, for
  the load is twice what is ready during a cold start. So their attainment and replicas have no bar.

Least-loaded routing sends each new request to the replica with the fewest. So a new replica gets all of them, until it
has as many as the others. Thirty prompts of 4,000 tokens within 3 s wait for each other, end together, and the next
thirty come together. A growing fleet then does worse than a fixed one. In `admitted-ramp-64` a fixed fleet of 16 is
never late; 25 replicas added one after another are late for 15% of requests. This does not happen where replicas take
turns, so two cases are shown both ways.

`!` marks what misses its bar.
"""


def page(found: Sequence[Found]) -> str:
    """Markdown."""
    header, rows = table(found)
    lines = [header, ["---"] * len(header), *rows]
    explanations = "\n".join(
        f"- `{case.odd.case.slug}`: {_worst_minute(case.worst)} The decision: {case.worst['reason']}" for case in found
    )
    return "\n".join(
        [
            PAGE,
            *("| " + " | ".join(line) + " |" for line in lines),
            "",
            "## What the decision said in the worst minute",
            explanations,
            "",
        ]
    )


if __name__ == "__main__":
    main()
