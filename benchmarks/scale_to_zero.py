"""To zero and back: what first requests meet, and what idle nights save, by what the gateway does at 0 replicas.

`python benchmarks/scale_to_zero.py` simulates two office days and their nights, and writes docs/benchmarks/zero.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from servingpool.decision.pool import Pool, Slo, Window
from servingpool_simulation.families.arrivals import arrivals, seconds
from servingpool_simulation.families.lengths import LogNormal, independent
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Ours
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.scrape import EPOCH, ScrapeOptions
from servingpool_simulation.traces import DAY, Trace

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "zero.md"
PROFILE = "l40s-8b-tp1"
DAYS = 2
OPENS, CLOSES = 8.0, 19.0
"""Hours of the day."""
BUSIEST = 10.0
"""Requests/s at noon."""
NIGHT_REQUESTS = 3
"""Single requests in each night."""
FIRST, WITHIN = 10, 600.0
"""Clients of each return from zero that are looked at, and seconds from the first in which they came."""
TTFT, TPOT = 5.0, 0.1
"""Seconds of the SLO."""
IDLE_AFTER = 900.0
"""Seconds."""
POOL = Pool(Slo(time_to_first_token=TTFT, time_per_output_token=TPOT), 1, 12)
ZERO = replace(POOL, min_replicas=0, idle_after=IDLE_AFTER, gateway="gateway")
COLD_START = ColdStart(mean=120.0, jitter=0.1)

PUBLISHED = """\
# To zero and back

Written by `python benchmarks/scale_to_zero.py`. Simulated: the operator's decision core and a scrape every 15 s,
engines with the step times of {profile}, cold starts of {cold:.0f} s ± {jitter:.0%}, `idleAfter` {idle:.0f} min.

{days} days: requests from {opens:.0f}:00 to {closes:.0f}:00, {busiest:g}/s at the busiest, and {night} single ones
each night. SLO: 95% with TTFT within {ttft:g} s and {tpot:.0f} ms per token. `holds` and `retries`: the gateway keeps a
request for so long while no replica is ready, and refuses it then. `rejects`: it refuses at once.

| gateway | GPU-hours | saved | hours at 0 | attainment | refused | late |
|---|---:|---:|---:|---:|---:|---:|
{runs}

## The first ten clients of each return

The first clients to come once there was no replica: ten at most, within ten minutes of the first. `reaction` is the
time from the first request to the order: one scrape and one tick at most.

| gateway | at hour | reaction | ordered | served of the first | their TTFT: first, median, longest |
|---|---:|---:|---:|---:|---|
{returns}
"""


class Case(NamedTuple):
    """One run."""

    name: str
    pool: Pool
    holds_for: float
    """Seconds."""


def office(days: int, seed: int = 7) -> Trace:
    """Days that rise from the opening to noon and fall again, and nights with a few single requests."""
    random = np.random.default_rng(seed)
    at = seconds(days * DAY)
    hour = at % DAY / 3600.0
    wave = np.sin(np.pi * np.clip((hour - OPENS) / (CLOSES - OPENS), 0.0, 1.0))
    moments = arrivals(random, BUSIEST * wave)
    nights = [
        random.uniform(CLOSES + 1.0, 24.0 + OPENS - 1.0, NIGHT_REQUESTS) * 3600.0 + (day - 1) * DAY
        for day in range(days + 1)
    ]
    single = np.concatenate(nights)
    moments = np.sort(np.concatenate((moments, single[(single >= 0.0) & (single < days * DAY)])))
    prompt, output = independent(LogNormal(1500, 0.7, most=8000), LogNormal(250, 0.7, most=1500))(random, len(moments))
    return Trace("office days", moments, prompt, output, days * DAY)


def scheduled(days: int) -> Pool:
    """With replicas from the opening on."""
    begins = [EPOCH + day * DAY + OPENS * 3600.0 for day in range(days)]
    windows = (Window("office", begin, begin + (CLOSES - OPENS) * 3600.0, 1, None) for begin in begins)
    return replace(ZERO, windows=tuple(windows))


def cases(days: int) -> list[Case]:
    """The fleet that never goes to zero first."""
    return [
        Case("min 1", POOL, math.inf),
        Case("holds 10 min", ZERO, 600.0),
        Case("retries 60 s", ZERO, 60.0),
        Case("rejects", ZERO, 0.0),
        Case("rejects, schedule with min 1 from 08:00", scheduled(days), 0.0),
    ]


def play(case: Case, trace: Trace) -> Result:
    """One case."""
    options = SimulationOptions(
        cold_start=COLD_START,
        scrape=ScrapeOptions(interval=15.0, gateway=case.holds_for > 0.0, arrivals=True),
        holds_for=case.holds_for,
    )
    return simulate(trace, engine_profile(PROFILE), case.pool, Ours(), options)


class Returned(NamedTuple):
    """One return from zero."""

    hour: float
    """Since the begin."""
    reaction: float
    """Seconds from the first request to the order; NaN where a schedule ordered."""
    replicas: int
    """That were ordered first."""
    served: int
    """What each of the first clients at or after it saw."""
    waits: tuple[float, ...]
    """Their TTFT in seconds, of those that were served."""
    asked: int
    """Clients that were looked at."""


def returns(found: Result) -> Iterator[Returned]:
    """Each time that the fleet came back from zero."""
    series, truth = found.series, found.outcomes
    for before, now in zip(range(len(series.time) - 1), range(1, len(series.time)), strict=True):
        if series.requested[before] > 0 or series.requested[now] == 0:
            continue
        down = next(i for i in range(before, -1, -1) if i == 0 or series.requested[i - 1] > 0)
        first = int(np.searchsorted(truth.arrival, series.time[down]))
        ordered = series.time[now]
        came = truth.arrival[first] if first < len(truth.arrival) else math.inf
        until = min(came, ordered) + WITHIN
        part = slice(first, min(first + FIRST, int(np.searchsorted(truth.arrival, until))))
        served = ~np.isnan(truth.ttft[part])
        yield Returned(
            ordered / 3600.0,
            ordered - came if came <= ordered else math.nan,
            series.requested[now],
            int(served.sum()),
            tuple(truth.ttft[part][served].tolist()),
            len(served),
        )


def zero_hours(found: Result) -> float:
    """Hours with no replica ordered."""
    times = [*found.series.time, DAYS * DAY]
    asleep = (
        end - at for at, end, count in zip(times[:-1], times[1:], found.series.requested, strict=True) if count == 0
    )
    return sum(asleep) / 3600.0


def page(found: Sequence[tuple[Case, Result]]) -> str:
    """The page."""
    usual = found[0][1].score.gpu_hours
    return PUBLISHED.format(
        profile=PROFILE,
        cold=COLD_START.mean,
        jitter=COLD_START.jitter,
        idle=IDLE_AFTER / 60.0,
        days=DAYS,
        opens=OPENS,
        closes=CLOSES,
        busiest=BUSIEST,
        night=NIGHT_REQUESTS,
        ttft=TTFT,
        tpot=1000.0 * TPOT,
        runs="\n".join(_run(case, result, usual) for case, result in found),
        returns="\n".join(_returned(case, one) for case, result in found[1:] for one in returns(result)),
    )


def _run(case: Case, result: Result, usual: float) -> str:
    score = result.score
    saved = "-" if case.pool is POOL else f"{1.0 - score.gpu_hours / usual:.0%}"
    return (
        f"| {case.name} | {score.gpu_hours:.1f} | {saved} | {zero_hours(result):.1f} | {score.attainment:.2%} | "
        f"{score.rejected} | {score.ttft_misses} |"
    )


def _returned(case: Case, one: Returned) -> str:
    waits = "-"
    if one.waits:
        waits = f"{one.waits[0]:.1f} s, {float(np.median(one.waits)):.1f} s, {max(one.waits):.1f} s"
    reaction = "by schedule" if math.isnan(one.reaction) else f"{one.reaction:.0f} s"
    served = f"{one.served} of {one.asked}"
    return f"| {case.name} | {one.hour:.1f} | {reaction} | {one.replicas} | {served} | {waits} |"


def main() -> None:
    """Play all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    trace, console = office(DAYS), Console()
    found = [(case, play(case, trace)) for case in track(cases(DAYS), "simulating", console=console)]
    text = page(found)
    given.out.write_text(text)
    console.print(text)


if __name__ == "__main__":
    main()
