"""Worlds drawn at random, to meet what nobody thought of: traffic, engine, SLO, cold start, scrapes and fleet found.

`python benchmarks/control/worlds.py FIRST LAST [--jobs N]` runs ours in the worlds of these numbers, where nothing is
known and with history, beside the best static fleet of each, and prints a line each and the sums. A number is always
the same world. Worlds that no static fleet of MOST replicas holds are left out.

Mend what a world shows, then judge by numbers that nobody has looked at.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from validate_simulator import prefill

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.families.arrivals import arrivals, seconds
from servingpool_simulation.families.clients import clients_mix
from servingpool_simulation.families.correlated import correlated_lengths
from servingpool_simulation.families.lengths import Lengths, LogNormal, independent, like
from servingpool_simulation.families.long_prompts import long_prompts
from servingpool_simulation.families.on_off import on_off
from servingpool_simulation.families.reasoning import reasoning
from servingpool_simulation.families.regimes import regimes
from servingpool_simulation.families.renewal import renewal
from servingpool_simulation.families.stops import stops
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import EngineProfile, engine_profile, profile_names
from servingpool_simulation.offered import base_step, offered_load
from servingpool_simulation.policies import Ours
from servingpool_simulation.run import SimulationOptions, best_static, simulate
from servingpool_simulation.score import Score
from servingpool_simulation.scrape import ScrapeOptions
from servingpool_simulation.timetable import SELDOM
from servingpool_simulation.traces import Trace, azure2023_code, azure2023_conv

MOST = 24
"""Replicas that a pool may have."""
FEWEST, LARGEST = 50, 500_000
"""Requests of a world that is worth its time."""
PAST_HOURS = 2
OTHER = 1_000_000
"""Added to a world's number for the past, which is another draw of the same kind."""
LOADS = (0.6, 9.0)
"""Work in replicas kept busy on average."""
PROMPT_QUANTILE = 0.97
"""Of the prompts, whose prefill alone is within the TTFT bound."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What a kind of traffic takes of chance. Times are seconds."""

    hours: int
    lengths: Lengths
    prompt: LogNormal
    answer: LogNormal
    cv: float
    drift: float
    levels: tuple[float, ...]
    dwell: float
    burst: float
    idle: float
    trickle: float
    clumped: float
    memory: float
    clients: int
    hour: float
    pause: float
    period: float

    @property
    def duration(self) -> float:
        return 3600.0 * self.hours


Kind = Callable[[Habits, float, int], Trace]
"""Draws traffic of about so many requests/s from a seed."""


def _bursts(habits: Habits, rate: float, seed: int) -> Trace:
    full = rate * (habits.burst + habits.idle) / habits.burst
    trickle = habits.trickle * rate
    duration = habits.duration
    return on_off(full, habits.burst, habits.idle, habits.lengths, trickle=trickle, duration=duration, seed=seed)


def _waves(habits: Habits, rate: float, seed: int) -> Trace:
    """Up and down by 80%, once a `period`."""
    turns = seconds(habits.duration) / habits.period + habits.hour / 24.0
    random = np.random.default_rng(seed)
    at = arrivals(random, rate * (1.0 + 0.8 * np.sin(2.0 * math.pi * turns)), 1.0 + habits.cv / 3.0)
    return Trace("waves", at, *habits.lengths(random, len(at)), habits.duration)


def _stopping(habits: Habits, rate: float, seed: int) -> Trace:
    flowing = habits.duration - habits.pause
    steady = renewal(rate, 1.0 + habits.cv / 4.0, habits.lengths, duration=flowing, seed=seed)
    return stops(steady, at=flowing / 2.0, pause=habits.pause)


def _both(habits: Habits, rate: float, seed: int) -> Trace:
    """Chats all the time and code in bursts, on one pool."""
    chats = renewal(rate / 2.0, 1.5, like(azure2023_conv()), duration=habits.duration, seed=seed)
    code = _bursts(replace(habits, lengths=like(azure2023_code())), rate / 2.0, seed + 1)
    arrival = np.concatenate((chats.arrival, code.arrival))
    order = np.argsort(arrival, kind="stable")
    prompt, output = np.concatenate((chats.prompt, code.prompt)), np.concatenate((chats.output, code.output))
    return Trace("both", arrival[order], prompt[order], output[order], habits.duration)


KINDS: dict[str, Kind] = {
    "renewal": lambda h, rate, seed: renewal(rate, h.cv, h.lengths, drift=h.drift, duration=h.duration, seed=seed),
    "regimes": lambda h, rate, seed: regimes(
        [rate * level for level in h.levels], h.dwell, h.lengths, duration=h.duration, seed=seed
    ),
    "bursts": _bursts,
    "long prompts": lambda h, rate, seed: long_prompts(
        rate, replace(h.prompt, most=120_000), h.answer, drift=h.drift, duration=h.duration, seed=seed
    ),
    "clumps": lambda h, rate, seed: correlated_lengths(
        rate, h.prompt, h.answer, common=h.clumped, memory=h.memory, duration=h.duration, seed=seed
    ),
    "reasoning": lambda h, rate, seed: reasoning(rate, drift=h.drift, duration=h.duration, seed=seed),
    "clients": lambda h, rate, seed: clients_mix(
        h.clients, rate, h.prompt, h.answer, duration=h.duration, begin=3600.0 * h.hour, seed=seed
    ),
    "stops": _stopping,
    "waves": _waves,
    "both": _both,
}


@dataclass(frozen=True, slots=True)
class World:
    """One of them. Times are seconds."""

    number: int
    kind: str
    trace: Trace
    past: Trace
    profile: EngineProfile
    pool: Pool
    options: SimulationOptions
    found: float
    """Replicas that are found, over the best static fleet's."""


def draw(number: int) -> World | None:
    """The world of a number; None for one with too few requests to judge by, or too many to run."""
    random = np.random.default_rng((7, number))
    kind = list(KINDS)[number % len(KINDS)]
    profile, habits = _engine(random), _habits(random)
    busy, ttft, tpot = _even(random, *LOADS), random.uniform(1.5, 6.0), random.uniform(1.6, 5.0)
    attainment = float(random.choice((0.9, 0.95, 0.95, 0.95, 0.99)))
    scrape = ScrapeOptions(float(random.choice((5.0, 15.0, 30.0))), lost_share=float(random.choice((0.0, 0.0, 0.1))))
    cold_start = ColdStart(_even(random, 20.0, 300.0), 0.3)
    found = float(random.choice((0.5, 0.8, 1.0, 1.0, 1.5, 3.0)))
    tpot *= base_step(profile)
    sample = KINDS[kind](habits, 1.0, number + 2 * OTHER)
    work = float(offered_load(sample, profile, Slo(None, tpot), 60.0).mean())
    rate = float(np.clip(busy / max(work, 1e-6), 0.05, 400.0))
    trace = KINDS[kind](habits, rate, number)
    if not FEWEST <= len(trace) <= LARGEST:
        return None
    past = KINDS[kind](replace(habits, hours=PAST_HOURS), rate, number + OTHER)
    alone = prefill(profile, int(np.quantile(trace.prompt, PROMPT_QUANTILE)))
    slo = Slo(round(max(0.3, ttft * alone + 2.0 * tpot), 2), round(tpot, 4), attainment)
    options = SimulationOptions(cold_start=cold_start, scrape=scrape, seed=number)
    return World(number, kind, trace, past, profile, Pool(slo, 1, MOST), options, found)


def _even(random: np.random.Generator, least: float, most: float) -> float:
    """Each doubling is as likely as any other."""
    return math.exp(random.uniform(math.log(least), math.log(most)))


def _engine(random: np.random.Generator) -> EngineProfile:
    profile = engine_profile(str(random.choice(profile_names())))
    if random.random() < 0.15:
        profile = replace(profile, max_num_seqs=int(random.choice((32, 64, 128))))
    if random.random() < 0.2:
        profile = replace(profile, prefix_cache_hit_rate=float(random.choice((0.3, 0.6, 0.85))))
    return profile


def _habits(random: np.random.Generator) -> Habits:
    prompt = LogNormal(_even(random, 200.0, 4_000.0), random.uniform(0.4, 1.2), least=8, most=60_000)
    answer = LogNormal(_even(random, 20.0, 600.0), random.uniform(0.3, 1.0), least=1, most=4_000)
    lengths = (like(azure2023_conv()), like(azure2023_code()), independent(prompt, answer))
    return Habits(
        hours=int(random.integers(1, 4)),
        lengths=lengths[int(random.integers(0, 3))],
        prompt=prompt,
        answer=answer,
        cv=random.uniform(1.0, 10.0),
        drift=random.uniform(0.0, 0.5),
        levels=tuple(sorted(random.uniform(0.15, 2.0, 4).tolist())),
        dwell=random.uniform(180.0, 1_500.0),
        burst=random.uniform(20.0, 300.0),
        idle=random.uniform(60.0, 900.0),
        trickle=float(random.choice((0.0, 0.02, 0.2))),
        clumped=random.uniform(0.2, 0.9),
        memory=random.uniform(30.0, 900.0),
        clients=int(random.choice((20, 60, 200))),
        hour=random.uniform(0.0, 24.0),
        pause=random.uniform(600.0, 2_400.0),
        period=float(random.choice((1_800.0, 3_600.0, 7_200.0))),
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a world."""

    world: str
    target: float
    static: int
    static_hours: float
    found: int
    cold: Score
    known: Score

    def ratio(self, score: Score) -> float:
        """GPU-hours over the best static fleet's."""
        return score.gpu_hours / self.static_hours


def see(number: int) -> Seen | None:
    """Run one; None where it is left out."""
    world = draw(number)
    if world is None:
        return None
    seldom = replace(world.options, decide_every=SELDOM)
    static = best_static(world.trace, world.profile, world.pool, seldom)
    if static is None:
        return None
    best = static.score.peak_replicas
    found = min(MOST, max(1, round(best * world.found)))
    cold = replace(world.options, initial_replicas=found)
    known = replace(cold, history=world.past.duration)
    bounds, scrape = world.pool.slo, world.options.scrape
    told = (
        f"{number} {world.kind}, {world.profile.name}, {bounds.time_to_first_token:g} s, "
        f"{bounds.time_per_output_token:g} s, cold start {world.options.cold_start.mean:.0f} s, "
        f"scrapes {scrape.interval:g} s, {scrape.lost_share:.0%} lost"
    )
    return Seen(
        told,
        bounds.attainment,
        best,
        static.score.gpu_hours,
        found,
        simulate(world.trace, world.profile, world.pool, Ours(), cold).score,
        simulate(world.past.then(world.trace), world.profile, world.pool, Ours(), known).score,
    )


def main(numbers: Iterable[int], jobs: int) -> None:
    """Print them, and what they come to."""
    table = Table("world", "target", "static", "found", "behind 10 min", "ratio", "with history", "ratio")
    seen: list[Seen] = []
    with ProcessPoolExecutor(jobs) as crew:
        for one in crew.map(see, numbers):
            if one is None:
                continue
            seen.append(one)
            table.add_row(
                one.world,
                f"{one.target:.0%}",
                f"{one.static}",
                f"{one.found}",
                f"{one.cold.settled_attainment:.2%}",
                f"{one.ratio(one.cold):.2f}",
                f"{one.known.settled_attainment:.2%}",
                f"{one.ratio(one.known):.2f}",
            )
    console = Console(width=180)
    console.print(table)
    for name, scores in (("nothing known", [one.cold for one in seen]), ("with history", [one.known for one in seen])):
        pairs = list(zip(seen, scores, strict=True))
        above = [score.settled_attainment - one.target for one, score in pairs]
        ratios = sorted(one.ratio(score) for one, score in pairs)
        console.print(
            f"{name}: {sum(gap >= 0 for gap in above)} of {len(seen)} attain behind ten minutes, "
            f"{100 * sum(above) / len(above):+.2f} points on average; GPU-hours over the best static fleet's: "
            f"mean {sum(ratios) / len(ratios):.3f}, median {ratios[len(ratios) // 2]:.3f}, "
            f"nine in ten below {ratios[int(0.9 * len(ratios))]:.2f}, at most {ratios[-1]:.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    main(range(given.first, given.last + 1), given.jobs)
