"""Pools that share a budget of GPUs, by the operator's own core, against pools that have GPUs without end.

`python benchmarks/gpu_budget.py [POOLS ...]` writes docs/benchmarks/budget.md. Each pool is a simulated fleet with a
compressed day of two hours. All are decided tick by tick, and shared by `gpubudget.sharing` as the operator does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from servingpool.decision.decide import decide
from servingpool.decision.decision import Decision
from servingpool.decision.learn.memory import Memory
from servingpool.decision.pool import Pool, Slo
from servingpool.gpubudget.sharing import Claim, share
from servingpool_simulation.fleet import Fleet, Phase
from servingpool_simulation.hardware import EngineProfile, engine_profile
from servingpool_simulation.offered import offered_load
from servingpool_simulation.oracle import Effort, oracle
from servingpool_simulation.policies import TICK
from servingpool_simulation.run import SimulationOptions
from servingpool_simulation.score import outcomes
from servingpool_simulation.scrape import Scraper
from servingpool_simulation.traces import Trace

PAGE = Path(__file__).parents[1] / "docs/benchmarks/budget.md"
DAY, WARM = 7200.0, 1800.0
"""Seconds of a compressed day, and before it, in which pools are learned and nothing is scored."""
PRIORITIES = (9, 5, 1)
PROMPT, OUTPUT = 600, 150
"""Median tokens of requests."""
NIGHT = 0.15
"""Traffic at night over that at noon."""
GRACE = 150.0
"""Seconds until a pod that drains is killed, as docs/how-to/lossless-scale-down.md sets it."""
EFFORT = Effort(requests=1_500_000)
"""How long each clairvoyant fleet is searched for."""
INTRODUCTION = """\
Pools of three kinds take turns: an 8B model on 1 GPU with priority 9, a 70B model on 4 GPUs with priority 5, and a
batch tier of the 8B model with priority 1. A day lasts two hours. Held are GPUs of replicas that load, serve or drain;
a run stops if they are more than the budget. Alone, each pool has GPUs without end. Where "alone, most" is within the
budget, it does not bind. The clairvoyant holds a pool if the cheapest course found for it alone fits beside those of
higher priority at every tick. It is a search with an effort of 1.5 million requests for each pool, so another course
may fit where this one does not. Changes are orders in two and a half hours. A pool that needs another one's GPU waits
until that replica has drained, for up to 150 s, the grace period that the how-to of scale-downs gives a pod; what an
overloaded replica has not served by then is lost, and counts as missed.
"""
KINDS = (
    (engine_profile("h100-8b-tp1"), Slo(1.0, 0.04), 6.0),
    (engine_profile("h100-70b-tp4"), Slo(2.0, 0.1), 2.5),
    (engine_profile("h100-8b-tp1"), Slo(1.0, 0.04), 4.0),
)
"""Engine, SLO, and work at noon in replicas kept busy: a small model, a large one, a batch tier."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One pool: what comes, on what."""

    name: str
    trace: Trace
    profile: EngineProfile
    slo: Slo
    priority: int

    @property
    def pool(self) -> Pool:
        return Pool(self.slo, min_replicas=1, max_replicas=64)


@dataclass(slots=True)
class Running:
    """A pool in a run."""

    tenant: Tenant
    options: SimulationOptions
    fleet: Fleet = field(init=False)
    scraper: Scraper = field(init=False)
    memory: Memory = field(default_factory=Memory)
    decision: Decision | None = None

    def __post_init__(self) -> None:
        tenant, options = self.tenant, self.options
        self.fleet = Fleet(tenant.profile, tenant.trace, options.cold_start, options.routing, options.seed, grace=GRACE)
        self.fleet.start_ready(2)
        self.scraper = Scraper(self.fleet, tenant.slo, options.scrape, False)

    def decide(self, now: float) -> int:
        self.scraper.arm(now)
        self.fleet.advance(now)
        epoch = self.options.scrape.epoch
        self.decision, self.memory = decide(self.scraper.observe(), self.tenant.pool, self.memory, epoch + now)
        return self.decision.replicas

    @property
    def held(self) -> int:
        return len(self.fleet.of(Phase.LOADING, Phase.READY, Phase.DRAINING)) * self.tenant.profile.gpus

    def claim(self) -> Claim:
        assert self.decision is not None
        course, wanted = self.decision.course, self.decision.replicas
        allowed = 1.0 - self.tenant.slo.attainment
        misses = None if course is None else tuple(each / allowed for each in course.beyond(wanted))
        gpus, least = self.tenant.profile.gpus, self.decision.bounds.least.replicas
        return Claim(
            self.tenant.name, gpus, self.fleet.requested, self.held, wanted, misses, least, 0, self.tenant.priority
        )

    def end(self) -> float:
        """Attainment of the scored time."""
        end = self.tenant.trace.duration
        self.fleet.advance(end)
        self.fleet.advance(end + self.options.tail)
        return float(outcomes(self.fleet.requests, self.tenant.slo, WARM, end).met.mean())


@dataclass(frozen=True, slots=True)
class Run:
    """What a run made of its pools."""

    attained: tuple[float, ...]
    held: tuple[int, ...]
    """GPUs of all pools at each tick of the scored time."""
    peaks: tuple[int, ...]
    """Of each pool."""
    changes: int


def run(tenants: Sequence[Tenant], budget: int | None) -> Run:
    """All pools tick by tick; with no budget each has what it wants."""
    running = [Running(tenant, SimulationOptions(seed=at)) for at, tenant in enumerate(tenants)]
    held, peaks, changes = [], [0] * len(tenants), 0
    for now in np.arange(0.0, WARM + DAY, TICK).tolist():
        wanted = [one.decide(now) for one in running]
        for at, one in enumerate(running):
            to = wanted[at]
            if budget is not None:
                # One after the other, each with what the others hold now, as in the rounds of several Prometheus.
                grants = share(budget, [each.claim() for each in running], lending=True)
                to = min(to, grants[one.tenant.name].most)
            changes += to != one.fleet.requested
            one.fleet.scale(to)
            if now >= WARM:
                peaks[at] = max(peaks[at], one.held)
        total = sum(one.held for one in running)
        if budget is not None and total > budget:
            raise AssertionError(f"{total} GPUs of {budget} are held at {now:.0f} s")
        if now >= WARM:
            held.append(total)
    return Run(tuple(one.end() for one in running), tuple(held), tuple(peaks), changes)


def tenants(count: int, *, correlated: bool) -> list[Tenant]:
    """So many pools, of three kinds and priorities; their noons all at once, or spread over the day."""
    found = []
    for at in range(count):
        profile, slo, work = KINDS[at % len(KINDS)]
        random = np.random.default_rng((7, at))
        noon = 0.0 if correlated else at / count
        probe = _trace(random, 2.0, noon, "probe")
        each = float(offered_load(probe, profile, slo, TICK).sum()) * TICK / len(probe)
        name = f"pool-{at}"
        trace = _trace(np.random.default_rng((8, at)), work / each, noon, name)
        found.append(Tenant(name, trace, profile, slo, PRIORITIES[at % len(PRIORITIES)]))
    return found


def _trace(random: np.random.Generator, peak: float, noon: float, name: str) -> Trace:
    """Poisson arrivals with a day's course, `peak` requests/s at noon; before the day, its first half hour as it is."""
    duration = WARM + DAY
    count = random.poisson(peak * duration)
    at = np.sort(random.uniform(0.0, duration, count))
    sun = 0.5 * (1.0 + np.cos(2.0 * np.pi * ((at - WARM) / DAY - 0.5 - noon)))
    rate = NIGHT + (1.0 - NIGHT) * sun**2
    at = at[random.uniform(0.0, 1.0, count) < rate]
    lengths = [
        np.maximum(1, median * random.lognormal(0.0, 0.5, len(at))).astype(np.int64) for median in (PROMPT, OUTPUT)
    ]
    return Trace(name, at, lengths[0], lengths[1], duration)


@dataclass(frozen=True, slots=True)
class Row:
    """One case."""

    title: str
    tenants: list[Tenant]
    alone: Run
    shared: Run
    budget: int
    clairvoyant: tuple[bool, ...]
    """Whether a clairvoyant holds the SLO of each pool with what those of higher priority leave."""
    seconds: float


def clairvoyant(found: Sequence[Tenant], budget: int) -> tuple[bool, ...]:
    """By priority: the cheapest course known for each pool must fit beside those before it, tick by tick."""
    left = np.full(round(DAY / TICK), float(budget))
    fits = [False] * len(found)
    for at in sorted(range(len(found)), key=lambda at: (-found[at].priority, at)):
        tenant = found[at]
        day = tenant.trace.between(WARM, WARM + DAY)
        options = SimulationOptions(seed=at, initial_replicas=2)
        best = oracle(day, tenant.profile, tenant.pool, options, EFFORT)
        if best is None:
            continue
        series = best.series
        gpus = (np.array(series.requested) + np.array(series.draining)) * float(tenant.profile.gpus)
        fits[at] = bool((gpus <= left).all())
        left -= gpus if fits[at] else 0.0
    return tuple(fits)


def case(count: int, *, correlated: bool) -> Row:
    """One case, measured."""
    began = time.perf_counter()
    found = tenants(count, correlated=correlated)
    alone = run(found, None)
    budget = int(0.8 * max(alone.held)) if correlated else int(0.75 * sum(alone.peaks))
    asked = "correlated, 80% of what all need" if correlated else "anti-correlated, 75% of the sum of peaks"
    title = f"{count} pools, {asked}"
    shared = run(found, budget)
    return Row(title, found, alone, shared, budget, clairvoyant(found, budget), time.perf_counter() - began)


def _case(asked: tuple[int, bool]) -> Row:
    return case(asked[0], correlated=asked[1])


def text(rows: Sequence[Row], left_out: Sequence[int]) -> Iterator[str]:
    """The page."""
    yield "# Pools that share GPUs\n"
    yield "Written by `python benchmarks/gpu_budget.py`. Simulated, as all of these pages; seed 0.\n"
    yield INTRODUCTION
    names = ("case", "budget", "most held", "alone, most", "pools that hold: ours", "alone", "clairvoyant")
    yield "| " + " | ".join((*names, "changes, alone", "seconds")) + " |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        ours, alone = (_holding(row, each.attained) for each in (row.shared, row.alone))
        yield (
            f"| {row.title} | {row.budget} | {max(row.shared.held)} | {max(row.alone.held)} | {ours} | {alone} "
            f"| {sum(row.clairvoyant)} of {len(row.tenants)} | {row.shared.changes}, {row.alone.changes} "
            f"| {row.seconds:.0f} |"
        )
    yield "\nAttainment by priority, of all pools with it: mean, least; and how many pools the clairvoyant holds.\n"
    yield "| case | " + " | ".join(f"priority {each}" for each in PRIORITIES) + " |"
    yield "|---" * (len(PRIORITIES) + 1) + "|"
    for row in rows:
        yield f"| {row.title} | " + " | ".join(_priority(row, each) for each in PRIORITIES) + " |"
    if left_out:
        yield f"\nNot run: {', '.join(map(str, left_out))} pools."


def _holding(row: Row, attained: Sequence[float]) -> str:
    held = sum(share >= one.slo.attainment for share, one in zip(attained, row.tenants, strict=True))
    return f"{held} of {len(row.tenants)}"


def _priority(row: Row, priority: int) -> str:
    which = [at for at, one in enumerate(row.tenants) if one.priority == priority]
    ours, alone = ([run.attained[at] for at in which] for run in (row.shared, row.alone))
    fits = sum(row.clairvoyant[at] for at in which)
    return (
        f"{np.mean(ours):.1%}, {min(ours):.1%} (alone {np.mean(alone):.1%}, {min(alone):.1%}; "
        f"clairvoyant {fits} of {len(which)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pools", nargs="*", type=int, default=[3, 8, 20], help="Numbers of pools (default: 3 8 20).")
    parser.add_argument("--jobs", type=int, default=1, help="Processes (default: 1).")
    given = parser.parse_args()
    counts, rows = given.pools, []
    asked = [(count, correlated) for count in counts for correlated in (False, True)]
    with ProcessPoolExecutor(given.jobs) as crew:
        for row in crew.map(_case, asked):
            rows.append(row)
            print("\n".join(text([row], ())), flush=True)
    PAGE.write_text("\n".join(text(rows, [each for each in (3, 8, 20) if each not in counts])) + "\n")


if __name__ == "__main__":
    main()
