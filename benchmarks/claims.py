"""Which text states which figures of a benchmark page. `stated.py` compares them; a test fails where they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from stated import Claim, Kept

README, EVIDENCE = "README.md", "docs/explanation/evidence.md"
GUARD = "The guard: today's core on every case"
DAYS = {"a day of 150 clients": "clients-day", "a day of conversations": "conv-day", "a day of code bursts": "code-day"}
SAVES = {
    "a day of 150 clients": "clients-day",
    "a day of conversations (Azure 2024)": "conv-day",
    "a day of code bursts": "code-day",
}
OBJECTIVE = 95.0
"""Percent, of every case."""
TTFT = "Llama-2-7B (converted), H100, 20 requests/s, 575 in 209 out: TTFT mean"
INTERVAL, PHASES = 15.0, 3
"""Seconds of a tick; the last columns of a table of `make bench`: after the start, a day on, and idle."""

Read = Callable[[Kept], Sequence[str | None]]


def numbers(cell: str) -> list[float]:
    """All in a cell."""
    return [float(each.replace(",", "")) for each in re.findall(r"[+-]?\d[\d,]*(?:\.\d+)?", cell)]


def number(cell: str) -> float:
    return numbers(cell)[0]


def times(cell: str) -> str:
    """`1.59x`, without the letter."""
    return cell.partition("x")[0]


def least(shares: Sequence[float]) -> str:
    """Below which none falls: rounded down."""
    return f"{math.floor(10 * min(shares)) / 10:.1f}"


def span(shares: Sequence[float], form: str = ".1f") -> tuple[str, str]:
    return f"{min(shares):{form}}", f"{max(shares):{form}}"


def guard(case: str) -> Read:
    """Attained and GPU-hours with nothing known."""
    return lambda kept: kept.row(GUARD, case)[:2]


def guard_all(kept: Kept) -> tuple[str, ...]:
    """Held, of all, GPU-hours; with nothing known, then with history."""
    first, cost, second, saved = kept.row(GUARD, "**all**")
    return (*_held(first), cost, *_held(second), saved)


def _held(cell: str) -> tuple[str, str]:
    held, of = cell.split()[0:3:2]
    return held, of


def goals(kept: Kept, which: int) -> Sequence[str]:
    """A row of the table of goals, by its place."""
    return kept.figures["Goals"][1 + which]


def cheaper(kept: Kept, how: str, goal: int) -> tuple[str, str, str]:
    """Cases in which another autoscaler is cheaper, of how many, and by how many percent at most."""
    lost = [line for line in kept.lines("What we lose, and where") if how in line]
    most = max((int(numbers(line)[-1]) for line in lost), default=0)
    return str(len(lost)), goals(kept, goal)[3].split()[-1], str(most)


def saves(case: str) -> Read:
    def read(kept: Kept) -> tuple[str | None, ...]:
        _, ours, attained, _, _, static, best, _ = kept.row("Cases", f"[{case}](cases.md#{case})")
        holds = "no" if "missed" in attained else "yes"
        return times(ours), holds, f"{numbers(attained)[0]:.1f}", times(static), None, times(best)

    return read


def hpa(case: str) -> Read:
    """The fifth figure of the same line."""

    def read(kept: Kept) -> tuple[str | None, ...]:
        attained, *others = kept.row(case, "HPA on running")
        met = numbers(attained)[0]
        cell = f"misses: {met:.0f}%" if "missed" in attained else f"{times(others[2])}×"
        return None, None, None, None, cell, None

    return read


def over_all(kept: Kept) -> tuple[str, ...]:
    table = "Baselines over all cases"
    ours, hpa, slo_aware = (kept.row(table, name) for name in ("**ours**", "HPA on running", "llm-d slo-aware"))
    held, of = _held(ours[0])
    return of, times(ours[1]), held, times(hpa[1]), _held(hpa[0])[0], times(slo_aware[1]), _held(slo_aware[0])[0]


def seeds(kept: Kept) -> tuple[str, ...]:
    """Head to head: cases held, of how many, and the worst miss in points. With history: cases held with every seed and
    on the mean, and the lowest attainment."""
    first, second, mean = goals(kept, 0), goals(kept, 2), goals(kept, 3)
    lowest = [number(row[6]) for row in kept.figures["Luck"][1:]]
    missed = [OBJECTIVE - float(share) for share in re.findall(r"([\d.]+)%", first[5])]
    by = f"{max(missed, default=0.0):.1f}"
    return (*_held(first[3]), by, _held(second[3])[0], _held(mean[3])[0], least(lowest))


def sweep(column: int, name: str, form: str) -> Read:
    return lambda kept: (f"{numbers(kept.row('Sweeps', name)[column])[0]:{form}}",)


def stops(kept: Kept) -> tuple[str]:
    return (f"{min(number(kept.row('Sweeps', f'{case}, stops for two hours')[0]) for case in ('conv', 'code')):.0f}",)


def strict(kept: Kept) -> tuple[str]:
    """Points that code misses."""
    missed = [asked - number(kept.row("Sweeps", f"code, attainment {asked / 100:g}")[0]) for asked in (99.0, 99.9)]
    return (f"{max(missed):.1f}",)


def long_prompts(kept: Kept) -> tuple[str, ...]:
    met, cost, past, _ = kept.row(GUARD, "long-prompts")
    return (*span(numbers(past)), *span(numbers(met)), f"{float(cost) + 1e-9:.2f}")


def admitted(kept: Kept) -> tuple[str, ...]:
    """Lowest and highest of the cases that miss, and how many of the engines with TTFT from admission do."""
    table = kept.figures["Engines that are unlike the model"]
    rows = [row for row in table if row[1:] and row[1].endswith("; TTFT from admission")]
    missing = [row for row in rows if row[4].endswith("!")]
    return (*span([value for row in missing for value in numbers(row[3])]), str(len(missing)), str(len(rows)))


def ramp_at_3(kept: Kept) -> tuple[str, str]:
    return span(numbers(kept.row("Engines that are unlike the model", "ramp-at-3")[2]))


def pairs(kept: Kept) -> tuple[str, ...]:
    """GPU-hours over the best pair's: least and most; least attained."""
    found = [numbers(row[0])[:2] for rows in kept.figures.values() for row in rows if row[0].startswith("In the mean")]
    return (*span([ratio for _, ratio in found], ".2f"), f"{min(attained for attained, _ in found):.1f}")


def errors(scrapes: str) -> Read:
    """Errors of a backtest: mean and worst of GPU-hours, then mean and worst of attainment."""

    def read(kept: Kept) -> tuple[str, ...]:
        values = [number(cell) for cell in kept.row("How far a backtest is off", scrapes)[1:]]
        return tuple(f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in values)

    return read


def judged(scrapes: str) -> Read:
    """The same, each pair with whether it reaches the goals."""

    def read(kept: Kept) -> tuple[str, ...]:
        gpu_mean, gpu, mean, most = (str(value) for value in errors(scrapes)(kept))
        return gpu_mean, gpu, _verdict((gpu_mean, gpu), (8.0, 15.0)), mean, most, _verdict((mean, most), (1.5, 4.0))

    return read


def _verdict(errors: tuple[str, str], goals: tuple[float, float]) -> str:
    mean, worst = (float(error) <= goal for error, goal in zip(errors, goals, strict=True))
    if mean and worst:
        return "met"
    return f"mean {'met' if mean else 'missed'}, worst {'met' if worst else 'missed'}"


def highest(kept: Kept, pools: int, figure: str) -> float:
    """The largest value of a figure in the last PHASES of the run with so many pools."""
    return max(number(cell) for cell in kept.row(f"{pools} pools", figure)[-PHASES:] if cell)


def loop(pools: int, *asked: str) -> Read:
    """The figures asked for, of the run with so many pools."""

    def read(kept: Kept) -> tuple[str, ...]:
        seconds = highest(kept, pools, "cpu seconds")
        found = {
            "seconds": f"{seconds:.1f}",
            "cores": f"{seconds / INTERVAL:.1f}",
            "memory": f"{highest(kept, pools, 'rss mib'):.0f}",
            "queries": f"{highest(kept, pools, 'queries'):.0f}",
            "writes": f"{highest(kept, pools, 'status writes'):,.0f}",
        }
        return tuple(found[name] for name in asked)

    return read


def by_phase(kept: Kept) -> tuple[str, ...]:
    """With 1,000 pools: seconds of CPU in each phase, memory and queries at most, status writes in each phase."""
    seconds, writes = (kept.row("1000 pools", name)[-PHASES:] for name in ("cpu seconds", "status writes"))
    most = map(str, loop(1000, "memory", "queries")(kept))
    return (*(f"{number(cell):.1f}" for cell in seconds), *most, *(f"{number(cell):,.0f}" for cell in writes))


def real_loop(kept: Kept) -> tuple[str, str]:
    seconds, memory = (kept.row("1000 pools, real API server", name)[1] for name in ("cpu seconds", "rss mib"))
    return f"{number(seconds):.1f}", f"{number(memory):.0f}"


def replayed(*runs: str) -> Read:
    """Attained and replica-hours of each of these rows of the published runs."""

    def read(kept: Kept) -> tuple[str, ...]:
        rows = [kept.row("Published runs, replayed", run) for run in runs]
        return tuple(figure for row in rows for figure in (f"{number(row[1]):.1f}", f"{number(row[-1]):.2f}"))

    return read


FRONT = (
    *(Claim(README, f"| {title} | {{}} | {{}}× |", "guard", guard(case)) for title, case in DAYS.items()),
    Claim(README, "run on {} ([all cases](docs/benchmarks/guard.md))", "guard", lambda kept: (kept.written,)),
    Claim(README, "without their first ten minutes | {} of {} | {}× |", "guard", lambda kept: guard_all(kept)[:3]),
    Claim(README, "of history, with all minutes | {} of {} | {}× |", "guard", lambda kept: guard_all(kept)[3:]),
    Claim(README, "objective 95%, run on {}. The best", "day", lambda kept: (kept.written,)),
)
HEAD_TO_HEAD = (
    *(
        Claim(EVIDENCE, f"| {title} | {{}}× | {{}}, {{}}% | {{}}× | {{}} | {{}}× |", page, read(case))
        for title, case in SAVES.items()
        for page, read in (("README", saves), ("cases", hpa))
    ),
    Claim(
        EVIDENCE,
        "| all {} cases | {}× | {} with seed 0 | | {}× in the {} that it holds | {}× in {} cases (llm-d SLO-aware) |",
        "README",
        over_all,
    ),
    Claim(
        EVIDENCE,
        "it holds the SLO in {} of {} cases with every random seed; the rest misses it by up to {} points in the worst "
        "seed. After two hours of history, and judged from the first second, it holds {} with every seed and {} on the "
        "mean; no seed falls below {}%.",
        "README",
        seeds,
    ),
    Claim(
        EVIDENCE,
        "In {} of {} cases another autoscaler is cheaper if its parameter is tuned on that very trace, "
        "in one case by {}%.",
        "README",
        lambda kept: cheaper(kept, "tuned in hindsight", 9),
    ),
    *(
        Claim(page, said, "README", lambda kept: cheaper(kept, "tuned in hindsight", 9)[:2])
        for page, said in (
            (
                "docs/explanation/compare.md",
                "in {} of {} cases another one is cheaper if its parameter is tuned on that very trace.",
            ),
            (
                "docs/decisions/0004-learned-capacity.md",
                "tuned in hindsight for one trace is cheaper in {} of {} cases.",
            ),
        )
    ),
    Claim(
        EVIDENCE,
        "In {} of {} cases one is cheaper with its defaults, by up to {}%.",
        "README",
        lambda kept: cheaper(kept, "with defaults", 8),
    ),
    Claim(
        EVIDENCE,
        "attainment is {}% in the busier half of the code hour.",
        "README",
        sweep(0, "code, half 1 seen like half 2 before", ".0f"),
    ),
    Claim(
        EVIDENCE,
        "In that of the conversation hour it is {}%.",
        "README",
        sweep(0, "conv, half 1 seen like half 2 before", ".0f"),
    ),
    Claim(
        EVIDENCE,
        "takes {} times the GPU-hours of its best fixed fleet in that hour",
        "README",
        sweep(3, "conv, found at 1, half an hour of it seen, scrapes every 5 s", ".1f"),
    ),
    Claim(
        EVIDENCE,
        "a burst that it had not seen, up to {} times the best fixed fleet.",
        "README",
        sweep(3, "code, half 2 seen like half 1 before", ".1f"),
    ),
    Claim(EVIDENCE, "returns at full rate** attains {}% in the worse of two cases.", "README", stops),
    Claim(EVIDENCE, "Code bursts at 99% and 99.9% are missed by up to {} points.", "README", strict),
)
OTHERS = (
    *(
        Claim(
            EVIDENCE,
            f"| {said} | {{}}% / {{}}% | 8% / 15%: {{}} | {{}} / {{}} points | 1.5 / 4 points: {{}} |",
            "backtest",
            judged(scrapes),
        )
        for said, scrapes in (
            ("each 15 s, none lost", "15 s"),
            ("each 30 s, one in 20 lost, ten minutes missing", "30 s, gaps"),
        )
    ),
    *(
        Claim(
            "packages/backtest/servingpool_backtest/report.py",
            f"{said}: GPU-hours {{}}% off ({{}}% at worst), attainment {{}} ({{}}) points",
            "backtest",
            errors(scrapes),
        )
        for said, scrapes in (("none lost", "15 s"), ("ten minutes missing", "30 s, gaps"))
    ),
    Claim(
        EVIDENCE,
        "of this section are of core commit {}, run on {}. [The guard]",
        "README",
        lambda kept: (kept.core, kept.written),
    ),
    Claim(
        EVIDENCE, "after two hours of history attain {} to {}% by seed", "guard", lambda kept: long_prompts(kept)[:2]
    ),
    Claim(
        EVIDENCE,
        "With nothing known they attain {} to {}%, at {} times.",
        "guard",
        lambda kept: long_prompts(kept)[2:],
    ),
    Claim(EVIDENCE, "leaves out the queue** attain {} to {}% by seed in {} of {} cases", "odd", admitted),
    Claim(EVIDENCE, "a ramp attains {} to {}% after ten minutes.", "odd", ramp_at_3),
    Claim(
        EVIDENCE,
        "in the mean of three seeds, {} to {} times the GPU-hours of the best static pair at {}% and more",
        "prefill-decode",
        pairs,
    ),
    Claim(
        EVIDENCE,
        "The ramp attains {}% at {} replica-hours, prompts of 8,192 tokens {}% at {}. "
        "llm-d's rules, replayed, attain {}% at {} and {}% at {}. llm-d published 95.8% for the ramp. "
        "After the published burn-in the ramp attains {}% at {}. [What",
        "published-runs",
        replayed(
            "ramp: ServingPool",
            "8192/256: ServingPool",
            "ramp: llm-d slo-aware",
            "8192/256: llm-d token-aware",
            "ramp: ServingPool after the published burn-in",
        ),
    ),
)
COSTS = (
    *(
        Claim(
            EVIDENCE,
            f"| {pools:,} | {{}} s | {{}} MiB | {{}} | {{}} |",
            "thousand-pools",
            loop(pools, "seconds", "memory", "queries", "writes"),
        )
        for pools in (1000, 5000)
    ),
    *(
        Claim(
            "charts/servingpool-operator/values.yaml",
            f"{before} {{}} MiB and {{}} cores at {pools:,}",
            "thousand-pools",
            loop(pools, "memory", "cores"),
        )
        for before, pools in (("operator uses", 1000), ("1,000 pools,", 5000))
    ),
    Claim(EVIDENCE, "On a real API server, 1,000 pools take {} s and {} MiB.", "thousand-pools", real_loop),
    Claim(
        "docs/index.md", "Measured: {} cores and {} MiB at 1,000 pools", "thousand-pools", loop(1000, "cores", "memory")
    ),
    Claim("docs/index.md", "| {} queries every 15 s for 1,000 pools", "thousand-pools", loop(1000, "queries")),
    Claim(
        "docs/design.md",
        "4,000 idle | {} s steady, {} s a day on, {} s idle | {} MiB | {} | {}, a day on {} / {} |",
        "thousand-pools",
        by_phase,
    ),
    Claim(
        "operator/servingpool/catalogue/alerts.py",
        'raise the limit; 1,000 pools take {}" " cores',
        "thousand-pools",
        loop(1000, "cores"),
    ),
)
ENGINES = (
    Claim(
        "docs/how-to/choose-an-slo.md",
        "which made a measured TTFT {} times as long",
        "simulator",
        lambda kept: (f"{1 / (1 + numbers(kept.row('Real servers', TTFT)[2])[0] / 100):.1f}",),
    ),
)
CLAIMS = (*FRONT, *ENGINES, *HEAD_TO_HEAD, *OTHERS, *COSTS)
