"""How far a backtest can be believed: against what Auto really does on the same traffic.

A fixed fleet and an HPA serve the control benchmark's traffic in the simulator, seen through scrapes of 15 s, and of
30 s with one in twenty lost and Prometheus away for ten minutes. Each such history is backtested; Auto then serves the
true traffic on the true engine, three times.

`python benchmarks/backtest.py [SLUG ...] [--jobs N] [--json FILE] [--output PAGE] [--days DAYS]`

With --days it prints what the backtest of a history of so many days costs, in CPU seconds of one process. Up to a day
and a half Auto is replayed three times.

With --through-prometheus the fixed fleet's histories are written into a real Prometheus and recorded from there; their
backtests are set against those of the histories that are handed over directly, with exact times and to the millisecond.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import orjson

sys.path[:0] = [str(Path(__file__).parent / "control")]

import cases  # noqa: E402
from history_in_prometheus import through_prometheus  # noqa: E402
from recorded_history import recorded  # noqa: E402
from tables import table  # noqa: E402

from servingpool.decision.pool import Pool  # noqa: E402
from servingpool.recording.format import Chunk, Header  # noqa: E402
from servingpool_backtest.result import Question  # noqa: E402
from servingpool_backtest.run import backtest  # noqa: E402
from servingpool_simulation.baselines import hpa  # noqa: E402
from servingpool_simulation.policies import Ours, Policy, Static  # noqa: E402
from servingpool_simulation.run import SimulationOptions, best_static, simulate  # noqa: E402
from servingpool_simulation.scrape import EPOCH, ScrapeOptions  # noqa: E402
from servingpool_simulation.traces import Trace  # noqa: E402

GOALS = {"gpu": (0.08, 0.15), "attainment": (0.015, 0.04)}
"""Mean and worst error: of GPU-hours as a share, of attainment in shares of all requests."""
USUAL = (*(case.slug for case in (*cases.BURSTS, *cases.FAMILIES)), "code-day")
PAGE = """\
# How far a backtest is off

Written by `python benchmarks/backtest.py {slugs}
--output docs/benchmarks/backtest.md`. **Simulated; no GPU ran.**

A fixed fleet and an HPA serve the traffic of a case, seen through scrapes. Each history is backtested, and the middle
one of three replays counts. Auto serves the same traffic with three seeds. An error is the backtest against their mean.
With gaps, one scrape in twenty is lost and Prometheus is away for ten minutes.
[What follows from it](../explanation/evidence.md#how-far-to-believe-a-backtest).

"""
TRUTHS = (1, 2, 3)
"""Seeds of Auto's own runs: start-up times and scrape phases alone change what it uses by some percent."""
OUTAGE = 600.0
"""Seconds."""
LONG, REPLICAS = "clients-day", 8
"""Case and fixed fleet of the history whose backtest's cost is measured."""
WATCHED = {
    "15 s": ScrapeOptions(interval=15.0),
    "30 s, gaps": ScrapeOptions(interval=30.0, lost_share=0.05),
}


@dataclass(frozen=True)
class Line:
    """One history."""

    case: str
    fleet: str
    """That the history was made by."""
    scrapes: str
    true_replicas: float
    replicas: float
    true_attainment: float
    attainment: float
    spread: float
    """Of Auto's own runs: most over least replicas, less 1."""
    seconds: float

    @property
    def gpu_error(self) -> float:
        """Share of what Auto really uses."""
        return self.replicas / self.true_replicas - 1.0

    @property
    def attainment_error(self) -> float:
        """In shares."""
        return self.attainment - self.true_attainment


def _traffic(slug: str) -> tuple[Trace, int]:
    """All of a case, and the smallest fixed fleet that holds its SLO."""
    case = cases.CASES[slug]
    trace, past = case.trace(0), case.past(0) if case.past is not None else None
    best = best_static(trace, case.profile, case.pool())
    assert best is not None
    return trace if past is None else past.then(trace), best.score.peak_replicas


def lines(slug: str) -> list[Line]:
    """All histories of one case."""
    traffic, size = _traffic(slug)
    found = []
    fleets: dict[str, Callable[[], Policy]] = {f"static {size}": lambda: Static(size), "HPA on running": hpa.on_running}
    for watched, scrape in WATCHED.items():
        for fleet, policy in fleets.items():
            found.append(_line(slug, traffic, fleet, policy(), watched, scrape, size))
    return found


def _line(
    slug: str, traffic: Trace, fleet: str, policy: Policy, watched: str, scrape: ScrapeOptions, size: int
) -> Line:
    case, options = cases.CASES[slug], SimulationOptions(scrape=scrape, initial_replicas=size)
    header, chunks, _ = recorded(traffic, case.profile, case.pool(), policy, options, _outages(traffic, scrape))
    began = time.perf_counter()
    tested = backtest(header, chunks, Question(case.pool()), processes=1)
    took = time.perf_counter() - began
    warm_up = tested.scored_from - header.begin
    initial = tested.auto_initial
    truths = [
        simulate(
            traffic,
            case.profile,
            case.pool(),
            Ours(),
            SimulationOptions(scrape=scrape, initial_replicas=initial, history=warm_up, seed=seed),
        ).score
        for seed in TRUTHS
    ]
    used = [one.average_replicas for one in truths]
    return Line(
        case=slug,
        fleet=fleet,
        scrapes=watched,
        true_replicas=fmean(used),
        replicas=tested.auto.replica_seconds / (tested.scored_until - tested.scored_from),
        true_attainment=fmean(one.attainment for one in truths),
        attainment=tested.auto.attainment or 0.0,
        spread=max(used) / min(used) - 1.0,
        seconds=took,
    )


def _outages(traffic: Trace, scrape: ScrapeOptions) -> list[tuple[float, float]]:
    """When Prometheus is away, in seconds from the beginning."""
    middle = 0.6 * traffic.duration
    return [(middle, middle + OUTAGE)] if scrape.lost_share else []


def cost(days: float) -> str:
    """What the backtest of a fixed fleet's history takes, stage by stage."""
    case = cases.CASES[LONG]
    day = case.trace(0)
    traffic = reduce(Trace.then, [day] * math.ceil(days)).between(0.0, days * day.duration)
    options = SimulationOptions(scrape=WATCHED["15 s"], initial_replicas=REPLICAS)
    header, chunks, _ = recorded(traffic, case.profile, case.pool(), Static(REPLICAS), options)
    stages: dict[str, float] = {}
    tested = backtest(
        header,
        chunks,
        Question(case.pool()),
        lambda stage: stages.update({stage: time.process_time()}),
        processes=1,
    )
    begins = [*stages.values(), time.process_time()]
    spent = ", ".join(f"{stage} {end - at:.1f} s" for stage, (at, end) in zip(stages, pairwise(begins), strict=True))
    size = f"{REPLICAS} replicas, {len(traffic):,} requests, {len(tested.auto.at):,} decisions"
    return f"{days:g} days of {size}: {begins[-1] - begins[0]:.1f} s of CPU ({spent})"


def told_through_prometheus(slug: str) -> list[str]:
    """A line for each history of a fixed fleet: what its backtests say."""
    (traffic, size), case = _traffic(slug), cases.CASES[slug]
    lines = []
    for watched, scrape in WATCHED.items():
        outages, options = _outages(traffic, scrape), SimulationOptions(scrape=scrape, initial_replicas=size)
        header, handed, _ = recorded(traffic, case.profile, case.pool(), Static(size), options, outages)
        away = [(EPOCH + begin, EPOCH + end) for begin, end in outages]
        with tempfile.TemporaryDirectory() as directory:
            read = through_prometheus(header, handed, scrape.interval, away, Path(directory))
        found = {"handed over": handed, "to the ms": [_rounded(chunk) for chunk in handed], "from Prometheus": read}
        told = (f"{name}: {_tested(header, chunks, case.pool())}" for name, chunks in found.items())
        lines.append(f"{slug:13} static {size:2} {watched:11} {'; '.join(told)}")
    return lines


def _rounded(chunk: Chunk) -> Chunk:
    """With the times that Prometheus keeps."""
    return replace(chunk, scrapes=tuple(replace(one, at=one.at.round(3)) for one in chunk.scrapes))


def _tested(header: Header, chunks: Sequence[Chunk], pool: Pool) -> str:
    """What the backtest says, and the scrapes that it rests on."""
    tested = backtest(header, chunks, Question(pool), processes=1)
    scrapes = {(one.pod, round(1000 * at)) for chunk in chunks for one in chunk.scrapes for at in one.at.tolist()}
    return f"{len(scrapes)} scrapes, {tested.hours[1]:.6f} GPU-hours, attained {tested.auto.attainment or 0.0:.6%}"


def summary(found: Sequence[Line]) -> str:
    """Means and worsts, against the goals."""
    said = []
    for watched in (*WATCHED, "all"):
        part = [one for one in found if watched in {one.scrapes, "all"}]
        if part:
            gpu, attainment = ([abs(getattr(one, name)) for one in part] for name in ("gpu_error", "attainment_error"))
            goals = {name: f"goal {100 * mean:g}, worst {100 * worst:g}" for name, (mean, worst) in GOALS.items()}
            bias = fmean(one.gpu_error for one in part)
            said.append(
                f"{watched}: {len(part)} histories, "
                f"GPU-hours {fmean(gpu):.1%} mean, {max(gpu):.1%} worst ({goals['gpu']}), bias {bias:+.1%}; "
                f"attainment {100 * fmean(attainment):.2f} points mean, {100 * max(attainment):.2f} worst "
                f"({goals['attainment']})"
            )
    return "\n".join(said)


def page(found: Sequence[Line]) -> str:
    """Markdown: means and worsts, then each history."""
    by_scrapes = {watched: [one for one in found if one.scrapes == watched] for watched in WATCHED}
    head = ("scrapes", "histories", "GPU-hours off, mean", "worst", "attainment off in points, mean", "worst")
    means = []
    for watched, part in by_scrapes.items():
        gpu, points = ([100 * abs(getattr(one, name)) for one in part] for name in ("gpu_error", "attainment_error"))
        figures = (f"{fmean(gpu):.1f}%", f"{max(gpu):.1f}%", f"{fmean(points):.1f}", f"{max(points):.1f}")
        means.append((watched, str(len(part)), *figures))
    fleets = {name: [one for one in found if one.fleet.startswith(name)] for name in ("static", "HPA")}
    columns = [(watched, fleet) for watched in WATCHED for fleet in fleets]
    errors = {(one.case, one.scrapes, fleet): f"{one.gpu_error:+.1%}" for fleet, part in fleets.items() for one in part}
    cases_ = dict.fromkeys(one.case for one in found)
    rows = [(case, *(errors[case, *column] for column in columns)) for case in cases_]
    titles = [f"{watched}: {'fixed fleet' if fleet == 'static' else fleet}" for watched, fleet in columns]
    text = PAGE.format(slugs=" ".join(cases_))
    return f"{text}{table(head, means)}\n\n## GPU-hours off, by case\n\n{table(('case', *titles), rows)}\n"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slugs", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--output", type=Path, help="write a Markdown page, such as docs/benchmarks/backtest.md")
    parser.add_argument("--through-prometheus", action="store_true")
    parser.add_argument("--days", type=float)
    asked = parser.parse_args()
    if asked.days is not None:
        print(cost(asked.days))
        return
    found: list[Line] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        if asked.through_prometheus:
            for said in pool.map(told_through_prometheus, asked.slugs or USUAL):
                print("\n".join(said), flush=True)
            return
        for each in pool.map(lines, asked.slugs or USUAL):
            for one in each:
                found.append(one)
                print(
                    f"{one.case:13} {one.fleet:15} {one.scrapes:11} "
                    f"replicas {one.true_replicas:6.2f} -> {one.replicas:6.2f} "
                    f"({one.gpu_error:+6.1%}, Auto's own spread {one.spread:.1%})  "
                    f"attained {one.true_attainment:.2%} -> {one.attainment:.2%} "
                    f"({100 * one.attainment_error:+.2f})  {one.seconds:.1f} s",
                    flush=True,
                )
    print(summary(found))
    if asked.output is not None:
        asked.output.write_text(page(found))
    if asked.json is not None:
        asked.json.write_bytes(orjson.dumps([asdict(one) for one in found], option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
