"""The published pages: README.md, cases.md and three plots; the other plots; and the figures for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import plots
import tables
from goals import goals, losses
from results import CaseResults, Run

from servingpool_simulation.report.figures import listed, objective

GUARD = "[The guard](guard.md) has our own runs of the same cases, each with three seeds, and is made in minutes."
GROUND = """\
On what the figures rest: **simulated; no GPU ran for this page.** A step-level model of vLLM (continuous batching,
chunked prefill, KV cache blocks, preemption, cold starts, draining) serves each trace on virtual time. Its step times
are fitted to kernel times measured on the real GPUs (ai-dynamo/aiconfigurator, Apache-2.0); against real engines models
of this kind come within 10% of latencies on one GPU, less close with tensor parallelism. Azure 2023 traces are recorded
requests (CC-BY-4.0; Patel et al., Splitwise, ISCA 2024); Azure 2024 is reconstructed from the data set's plots, and the
others are drawn, as their titles say. Baselines are written from their public sources and documents of 2026, not run.

The same for all: a replica is ready 80 to 120 s after its order (mean 100 s) and is paid for from order to release,
loading and draining included; scrapes are 5 s apart; routing is least-loaded. Every policy that scales starts with the
best static fleet of the trace, a head start that nobody has in life, and may use 1 replica to the case's maximum.
Attainment is the share of all arrivals that met every bound; rejected and unfinished ones are misses. Policies compare
at equal attainment only: one that misses the SLO is not cheap. Comparisons are of seed 0; ours ran with two more seeds,
see Luck.

"With history": the two hours before (of the ramp 70 minutes, of stops three and a half hours, of days the day before)
were served by the fleet that is found and shown to ours, as Prometheus would show them. A synthetic trace has a past
that was drawn separately. One hour of each Azure 2023 trace was published; its past is that hour in blocks of
ten minutes, in another order, which holds most of the requests that are scored. **So on conv and code the sizes of the
bursts are known, and only their times are not.** Four of the sweeps avoid that: they score one half of the hour after
two hours drawn from the other half, so the bursts are new.

The oracle knows every arrival and the hardware, and pays cold starts. It is a course found by search: an upper
bound on the least GPU-hours that hold the SLO, not a proof of them, so a ratio below 1 is possible."""


EXAMPLE = "conv"
"""The case whose plots stand on the pages."""
CASES_SAID = """\
The tables behind [the comparison](README.md), which says on what the figures rest. A case has at most two tables:

- Every policy, each baseline with its published defaults.
- The baselines tuned in hindsight. "Best" is the value of the parameter with which a baseline costs least; where no
  value holds the SLO, the value that attains most. The parameter and its default are in the comparison's table of
  [baselines](README.md#baselines-over-all-cases).

The columns:

- attains: share of all requests that met every bound of the SLO. **missed**: fewer than the SLO asks for.
- after 10 min: the same, without the requests of the first ten minutes.
- of oracle: GPU-hours over those of the oracle.
- mean fleet: replicas that were paid for, on average. most: the most that were asked for at once.
- changes/h: changes of the number of replicas in an hour. flaps: share of these changes that went down and were
  followed by one up within two cold starts."""
"""Heads cases.md."""
DRAWN = """\
All cases take hours. The plots of the cases other than conv are not in git: `make bench-control` draws them as
`report/benchmarks/frontier-CASE.svg` and `course-CASE.svg`. For one case run
`python benchmarks/control/bench.py --cases long-prompts`, which writes tables and plots to `report/control`."""
BASELINES_SAID = (
    "GPU-hours as multiples of the oracle's, mean over the cases where the policy holds the SLO. Tuned: the "
    "cheapest value of its one parameter that holds the SLO on that very trace and seed."
)
TIMETABLE = (
    "GPU-hours as multiples of the oracle's. A timetable is chosen in hindsight: it knows this day's traffic in "
    "each stretch, keeps one fleet for it and cannot react within it. It is found by a search, as the oracle is, "
    "so there may be better ones. The gaps to it are hints and no bounds: a policy that reacts within a stretch may be "
    "cheaper, and some of what it knows of this day nobody could have learned."
)
REACH = (
    "The oracle's column: in how many of these cases it reaches the goal itself. Where it does not, less is asked "
    "for than the cheapest course that was found with every arrival known."
)
AGAIN = (
    "`make bench-control` computes what is missing and writes these pages; results are kept outside the repository and "
    "used again while the sources that they depend on mean the same. `python benchmarks/control/bench.py --help` has "
    "the rest."
)
LUCK = (
    "Ours with three seeds: start-up times, scrape phases and, where the trace is drawn, the arrivals. `most`: "
    "GPU-hours of the dearest seed."
)
IDEAS = "[The ablations](ablations.md) take out each parameter of the core, one at a time."


@dataclass(frozen=True, slots=True)
class Publication:
    """Everything that was found."""

    cases: Sequence[CaseResults]
    sweeps: Sequence[Mapping[str, Any]]
    left: int
    """Pieces of work that are missing."""
    command: str


def publish(found: Publication, folder: Path, drawings: Path) -> None:
    """Writes all pages. The plots that no page shows go to `drawings`."""
    for each in (folder, drawings):
        each.mkdir(parents=True, exist_ok=True)
    shown = [results for results in found.cases if results.our(history=False) is not None]
    for results in shown:
        slug = results.case.slug
        place = folder if slug == EXAMPLE else drawings
        (place / f"frontier-{slug}.svg").write_text(plots.frontier(results))
        (place / f"course-{slug}.svg").write_text(plots.course(results))
    if shown:
        (folder / "summary.svg").write_text(plots.summary(shown))
    (folder / "README.md").write_text(_front(found, shown))
    (folder / "cases.md").write_text(_cases(found, shown))


def write_figures(found: Publication, file: Path) -> None:
    """Everything that the pages show, as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps(_document(found), option=orjson.OPT_INDENT_2) + b"\n")


def _front(found: Publication, shown: Sequence[CaseResults]) -> str:
    judged = goals(shown, found.sweeps)
    lost = losses(shown)
    parts = [
        "# The controller, head to head",
        f"Written by `{found.command}`, which writes all figures as JSON to `build/benchmarks` too.",
        GUARD,
        "![GPU-hours of each policy relative to an oracle fleet, by case](summary.svg)",
        GROUND,
        f"**Incomplete: {found.left} pieces of work are missing; run it again to go on.**" if found.left else "",
        "## Goals",
        REACH,
        tables.goals_table(judged),
        "<details><summary>Every figure</summary>",
        tables.goal_figures(judged),
        "</details>",
        "## Cases",
        "GPU-hours as multiples of the oracle's. [Each case's tables](cases.md) have every baseline.",
        tables.overview(shown),
        *_days(shown),
        "## What we lose, and where",
        "\n".join(f"- {line}" for line in lost) or "Nothing on these cases.",
        "## Baselines over all cases",
        f"{BASELINES_SAID} {_how_tuned(shown)}",
        tables.baselines_overall(shown),
        "## Luck",
        LUCK,
        tables.seeds(shown),
        *_sweeps(found),
        "## What each idea is worth",
        IDEAS,
        "## Again",
        AGAIN,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _days(shown: Sequence[CaseResults]) -> list[str]:
    table = tables.days(shown)
    return ["## What foresight is worth on a day", TIMETABLE, table] if table else []


def _sweeps(found: Publication) -> list[str]:
    if not found.sweeps:
        return []
    said = (
        "One assumption changed at a time; profile unknown at the start. `GPU-h of it`: as a multiple of the best "
        "static fleet in hindsight under the same conditions. `most`: the most replicas that were asked for at once. "
        "`said`: when step times change, the seconds until they are learned anew to within 10%; and the most frequent "
        "warning, with the share of decisions that gave it and `#` for each figure in it."
    )
    return ["## Sweeps", said, tables.sweeps_table(found.sweeps)]


def _how_tuned(shown: Sequence[CaseResults]) -> str:
    def slugs(kind: str) -> list[str]:
        return [f"`{results.case.slug}`" for results in shown if how_tuned(results.case.slug) == kind]

    if not any(len(runs.tried) > 1 for results in shown for runs in results.baselines.values()):
        return "Nothing was tuned here."
    whole, none = slugs("grid"), slugs("default")
    said = f"The whole grid was run on {listed(whole)}, bisection elsewhere" if whole else "By bisection"
    return f"{said}{f'; not tuned on {listed(none)}' if none else ''}."


def how_tuned(slug: str) -> str:
    """`grid` where the plot shows whole curves; `default` (not tuned) where a run takes half a minute."""
    if slug in {"ramp", "conv", "code"}:
        return "grid"
    return "default" if slug in {"conv-day", "code-day", "clients-day", "replicas-300"} else "bisect"


def _cases(found: Publication, shown: Sequence[CaseResults]) -> str:
    sections = [part for results in shown for part in _case(results)]
    return "\n\n".join(("# Cases", CASES_SAID, f"`{found.command}` writes this page.\n{DRAWN}", *sections)) + "\n"


def _case(results: CaseResults) -> list[str]:
    case, ours = results.case, results.our(history=False)
    assert ours is not None
    parts = [
        f"## {case.slug}",
        (
            f"{case.title}: {objective(case.slo)}. {ours.score['requests']:,} requests; 1 to {case.max_replicas} "
            f"replicas of {case.profile.name}, {case.profile.gpus} GPU each."
        ),
        *(_plots(case.slug) if case.slug == EXAMPLE else ()),
        tables.case_table(results),
        tables.tuned_table(results),
    ]
    return [part for part in parts if part]


def _plots(slug: str) -> tuple[str, str]:
    return (
        f"![Attainment against GPU-hours](frontier-{slug}.svg)",
        f"![Load, replicas and TTFT over time](course-{slug}.svg)",
    )


def _document(found: Publication) -> dict[str, Any]:
    """For machines. Scores as `servingpool_simulation.score.Score`."""
    return {
        "format": 2,
        "cases": {results.case.slug: _case_document(results) for results in found.cases},
        "goals": [
            {
                "measure": goal.measure,
                "goal": goal.goal,
                "reached": goal.reached if goal.judged else None,
                "oracle": list(goal.oracle),
                "cases": {judged.slug: {"figure": judged.figure, "reached": judged.reached} for judged in goal.judged},
            }
            for goal in goals(found.cases, found.sweeps)
        ],
        "sweeps": list(found.sweeps),
    }


def _case_document(results: CaseResults) -> dict[str, Any]:
    def score(run: Run | None) -> Any:
        return None if run is None else run.score

    return {
        "title": results.case.title,
        "kind": results.case.kind.value,
        "slo": objective(results.case.slo),
        "best_static": score(results.static),
        "oracle": score(results.oracle),
        "timetables": {str(minutes): run.score for minutes, run in sorted(results.timetables.items())},
        "ours": [
            {"history": history, "seed": seed, "score": run.score}
            for (history, seed), run in sorted(results.ours.items())
        ],
        "baselines": {
            slug: {
                "default": runs.baseline.default,
                "best": runs.best,
                "tried": [{"value": value, "score": run.score} for value, run in runs.tried.items()],
            }
            for slug, runs in results.baselines.items()
        },
    }
