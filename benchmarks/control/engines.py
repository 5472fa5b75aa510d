"""What an engine's poorer page costs: `python benchmarks/control/engines.py`.

Prints two tables, and writes them as a page with --output. Results are kept, so a second run computes what changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from crew import Crew
from engines_work import PAGES, case_of, page_run, statics
from odd_cases import FOUND_AT, ODD
from results import Run
from rich.console import Console
from rich.table import Table

from servingpool_simulation.conduct import CONDUCTS, VLLM

SEEDS = (0, 1, 2)
GOALS = {"sglang": 1.02, "lmdeploy": 1.02, "nim": 1.02, "tensorrt-llm": 1.15, "tgi": 1.35, "llamacpp": 1.35}
"""GPU-hours over those with vLLM's page, mean over the cases, with the SLO held in each."""

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Found:
    """All seeds of one case with one engine's page, and with vLLM's."""

    slug: str
    engine: str
    runs: Sequence[Run]
    with_vllm: Sequence[Run]

    @property
    def attained(self) -> list[float]:
        """By seed, of all arrivals; of an odd case, which begins with too few replicas, after ten minutes."""
        return [run.settled if self.slug in ODD else run.attainment for run in self.runs]

    @property
    def held(self) -> int:
        """Seeds that attained what the SLO asks for."""
        return sum(attained >= run.target for attained, run in zip(self.attained, self.runs, strict=True))

    @property
    def multiple(self) -> float:
        """GPU-hours over those with vLLM's page, mean of the seeds."""
        return fmean(run.cost / usual.cost for run, usual in zip(self.runs, self.with_vllm, strict=True))


def main() -> None:
    """Compute, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=list(GOALS), default=list(GOALS), metavar="ENGINE")
    parser.add_argument("--cases", nargs="+", choices=PAGES, default=PAGES, metavar="SLUG", help=", ".join(PAGES))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, help="write a Markdown page, such as docs/benchmarks/engines.md")
    options = parser.parse_args()
    found = computed(options.cases, [VLLM.name, *options.engines], options.seeds, options.jobs)
    for header, rows in (summary(found), every_case(found)):
        printed = Table(*header)
        for row in rows:
            printed.add_row(*row)
        Console(width=150).print(printed)
    if options.output:
        options.output.write_text(page(found))
        print(f"Written to {options.output}")


def computed(cases: Sequence[str], engines: Sequence[str], seeds: Sequence[int], jobs: int) -> list[Found]:
    """All runs, as far as they are not kept from before."""
    crew = Crew(workers=jobs)
    fleets = crew.do([work for work in statics() if work.slug in cases], "best static fleets")
    best = {work.slug: report["best"] for work, report in fleets.items()}
    pieces = {
        (slug, engine, seed): page_run(slug, engine, best.get(slug), seed)
        for slug in cases
        for engine in engines
        for seed in seeds
    }
    reports = crew.do(pieces.values(), "ours")
    if crew.changed:
        print("The sources changed meanwhile: run it again, so that all figures are of the same state.")

    def runs(slug: str, engine: str) -> list[Run]:
        target = case_of(slug).slo.attainment
        return [Run.read(target, reports[pieces[slug, engine, seed]]) for seed in seeds]

    usual = {slug: runs(slug, VLLM.name) for slug in cases}
    return [Found(slug, engine, runs(slug, engine), usual[slug]) for engine in engines for slug in cases]


def summary(found: Sequence[Found]) -> tuple[Row, list[Row]]:
    """A row for each engine; `!` marks what misses its goal."""
    rows: list[Row] = []
    for engine, cases in _by_engine(found).items():
        mean, most = fmean(case.multiple for case in cases), max(cases, key=lambda case: case.multiple)
        held, runs = sum(case.held for case in cases), sum(len(case.runs) for case in cases)
        goal = GOALS.get(engine)
        rows.append(
            [
                engine,
                "" if goal is None else f"{goal:.2f}",
                f"{mean:.2f}" + "!" * (goal is not None and mean > goal),
                "" if goal is None else f"{most.multiple:.2f} ({most.slug})",
                f"{held} of {runs}" + "!" * (held < runs),
                f"{100 * min(min(case.attained) for case in cases):.1f}%",
            ]
        )
    return ("page", "goal", "GPU-hours / vLLM's page", "most", "SLO held", "least attained"), rows


def every_case(found: Iterable[Found]) -> tuple[Row, list[Row]]:
    """A row for each engine and case."""
    rows: list[Row] = [
        [
            case.engine,
            case.slug,
            ", ".join(f"{100 * attained:.1f}%" for attained in case.attained),
            f"{case.held} of {len(case.runs)}" + "!" * (case.held < len(case.runs)),
            f"{fmean(run.cost for run in case.runs):.1f}",
            f"{case.multiple:.2f}",
        ]
        for case in found
    ]
    return ("page", "case", "attained", "SLO held", "GPU-hours", "/ vLLM's page"), rows


def _by_engine(found: Iterable[Found]) -> Mapping[str, list[Found]]:
    sorted_out: dict[str, list[Found]] = {}
    for case in found:
        sorted_out.setdefault(case.engine, []).append(case)
    return sorted_out


PAGE = f"""\
# What an engine's page costs

Written by `python benchmarks/control/engines.py --output docs/benchmarks/engines.md`. **Simulated; no GPU ran for this
page.**

Engines export different metrics, at different times. Here the traffic and the steps are the same, and only
the page differs: what is counted, when, and in which buckets. So the GPU-hours over those with vLLM's page are what
the engine's page costs. Three seeds; nothing is known at the start. A pool is found with the best static fleet of its
trace, `capped-8` with {FOUND_AT} replicas.

| page | what it tells |
| --- | --- |
| vllm | every figure at each step or first token; TPOT, queue time at the end of a request |
| sglang | as vLLM in other buckets; gauges set at a prefill, every 40 decode steps and when idle; 0.5.23 |
| lmdeploy | gauges set every 10 s; TTFT without the wait for one of the handles; TPOT by token; 0.18.0 |
| nim | no queue time, no cached tokens; TTFT to 10 s, TPOT by token to 2.5 s; 1.0.0 |
| tensorrt-llm | gauges at once; all else at the end of a request, TTFT too; requests begun = finished + running |
| llamacpp | no histogram, no count of requests, seconds of prefill; output tokens and mean TPOT at the end |
| tgi | no TTFT, but seconds of prefill; prompt tokens at arrival; TPOT with the prefill in it, at the end; 3.3.7 |

Not here: disconnects.

- Attained: of all arrivals, by seed. Of `capped-8`, which begins with too few replicas: after ten minutes.
- SLO held: seeds that attained 95%.
- GPU-hours / vLLM's page: mean over cases of the mean over seeds. It counts only where the SLO is held.

`!` marks what misses its goal, or the SLO.
"""


def page(found: Sequence[Found]) -> str:
    """Markdown."""
    return "\n".join([PAGE, *_markdown(*summary(found)), "", "## Every case", "", *_markdown(*every_case(found)), ""])


def _markdown(header: Row, rows: Sequence[Row]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows)]


if __name__ == "__main__":
    assert GOALS.keys() < CONDUCTS.keys()
    main()
