"""Work with deadlines, 200 random mixes: the rule of the operator, against the bound, KEDA and llm-d's published law.

A mix is a day of a pool: bursts of requests of sizes over two orders, each to be done in half an hour to eight, or by
the end of a shift; cold starts of 60 to 480 s; a replica's tokens/s and the requests' lengths drift by a quarter; the
source of the backlog is silent for minutes, and replicas are lost. Fleets are a fluid model, `servingpool backtest`'s.

`--prices`: the operator's rule alone, without and with prices by the hour, eight hours of each day at half price.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from servingpool.decision.learn.ledger import Ledger
from servingpool.decision.observation import Unknown
from servingpool.decision.params import DAY, HOUR
from servingpool.decision.pool import Batch, Tariff
from servingpool_simulation import fluid
from servingpool_simulation.fluid import Job, Mix, Rule, Seen, ours

REST = 3.0
"""Hours after the last deadline that are simulated: what is late is done then."""


def work(of: Mix, job: Job) -> float:
    """Replica-seconds of a burst, at the mean speed between its coming and its deadline."""
    speeds = [of.speed(at) for at in np.linspace(job.at, job.due, 9)]
    return job.requests * job.length * of.cost / float(np.mean(speeds))


def drift(draw: np.random.Generator) -> Callable[[float], float]:
    """A figure that moves by a quarter in each direction, over hours."""
    turns, shift, width = draw.uniform(2, 12) * HOUR, draw.uniform(0, 2 * math.pi), draw.uniform(0.1, 0.25)
    return lambda at: 1.0 + width * math.sin(2 * math.pi * at / turns + shift)


def mix(seed: int) -> Mix:
    """One of the mixes."""
    draw = np.random.default_rng(seed)
    start, within = float(np.exp(draw.uniform(*np.log((60.0, 480.0))))), 0.0
    if draw.uniform() < 0.8:
        within = float(np.exp(draw.uniform(*np.log((0.5 * HOUR, 8 * HOUR)))))
        batch = Batch(within=within)
    else:
        shift = float(draw.choice([4.0, 6.0, 8.0])) * HOUR
        batch = Batch(ends=tuple(shift * (1 + number) for number in range(12)))
    length, cost, jobs = drift(draw), float(np.exp(draw.uniform(*np.log((0.2, 5.0))))), []
    largest = float(np.exp(draw.uniform(*np.log((0.3, 30.0))))) * HOUR / cost
    for at in sorted(draw.uniform(0.0, DAY, size=int(draw.integers(5, 18)))):
        size = largest * 10.0 ** draw.uniform(-2.0, 0.0)
        due = batch.due(at)
        if due - at >= 0.5 * HOUR:
            jobs.append(Job(at, size, length(at), due))
    silent = tuple((at, at + draw.uniform(120.0, 600.0)) for at in draw.uniform(0.0, DAY, size=4))
    lost = tuple(sorted(draw.uniform(0.0, DAY, size=6).tolist()))
    found = Mix(tuple(jobs), batch, start, cost, drift(draw), silent, lost)
    return found._replace(most=math.ceil(1.5 * bound(found)[0]) + 1)


def bound(of: Mix) -> tuple[int, float]:
    """The least peak of replicas that know all in advance, and their GPU-hours: the work, and a start of each."""
    peak, works = 0, [work(of, job) for job in of.jobs]
    for first in of.jobs:
        for last in of.jobs:
            inside = sum(w for w, job in zip(works, of.jobs, strict=True) if job.at >= first.at and job.due <= last.due)
            if inside > 0.0:
                peak = max(peak, math.ceil(inside / (last.due - max(first.at, of.start))))
    return peak, (sum(works) + peak * of.start) / HOUR


def slow(seed: int) -> Mix:
    """The same work, due in eight hours to a day."""
    of = mix(seed)
    batch = Batch(within=np.random.default_rng(seed).uniform(8.0, 24.0) * HOUR)
    of = of._replace(batch=batch, jobs=tuple(job._replace(due=batch.due(job.at)) for job in of.jobs))
    return of._replace(most=math.ceil(1.5 * bound(of)[0]) + 1)


def prices(seed: int) -> tuple[Tariff, ...]:
    """Eight hours of each day at half price."""
    first = np.random.default_rng(seed).uniform(-24.0, 0.0)
    return tuple(Tariff((first + 24 * (n // 2) + 8 * (n % 2)) * HOUR, 0.5 + 0.5 * (n % 2)) for n in range(10))


def billed(of: Mix, tariffs: tuple[Tariff, ...], *, told: bool) -> tuple[int, float, float, int]:
    """Deadlines met, dollars at $1, replica-hours and cold starts. `told`: whether the rule knows the prices."""
    known = of._replace(batch=replace(of.batch, tariffs=tariffs if told else ()))
    course = fluid.play(known, ours(known, of.cost), max(job.due for job in of.jobs) + REST * HOUR)
    begins, each, _ = np.array(tariffs).T
    hours = np.array(course.ordered) * fluid.STEP / HOUR
    at = np.searchsorted(begins, np.arange(len(hours)) * fluid.STEP, "right") - 1
    return len(of.jobs) - len(course.missed), float(hours @ each[at]), float(hours.sum()), course.starts


class Stabilized:
    """The HPA's scale-down window, which is KEDA's cooldown too: 5 minutes."""

    def __init__(self) -> None:
        self.last: list[tuple[float, int]] = []

    def held(self, seen: Seen, replicas: int) -> int:
        """The most that was wanted in the window, of what there is."""
        self.last = [(at, count) for at, count in self.last if at > seen.now - 300.0] + [(seen.now, replicas)]
        return max(replicas, min(seen.ready + len(seen.ages), max(count for _, count in self.last)))


def keda(of: Mix, threshold: float) -> Rule:
    """KEDA on the backlog: a replica for each `threshold` seconds of work."""
    behaves, last = Stabilized(), 0

    def decide(seen: Seen) -> int:
        nonlocal last
        if not isinstance(seen.backlog, Unknown):
            last = math.ceil(seen.backlog * of.cost / threshold - 1e-9)
        return behaves.held(seen, last)

    return decide


def law(of: Mix) -> Rule:
    """llm-d's published law through KEDA: the backlog over rate times time left less cold start, both fixed by hand."""
    ledger, behaves, last = Ledger(), Stabilized(), 0

    def decide(seen: Seen) -> int:
        nonlocal ledger, last
        # Its queue exports the time that is left of each request.
        ledger = ledger.update(seen.backlog, 0.0, seen.served, of.batch, seen.now)
        wanted, requests = 0.0, 0.0
        for due in ledger.dues:
            requests += due.amount
            left = due.at - seen.now - of.start
            wanted = max(wanted, requests * of.cost / left) if left > 0.0 else of.most
        if not isinstance(seen.backlog, Unknown):
            last = math.ceil(min(of.most, wanted) - 1e-9)
        return behaves.held(seen, last)

    return decide


def always(of: Mix) -> Rule:
    """All replicas that can be had."""
    return lambda _: of.most


class Result(NamedTuple):
    """What a rule did in a mix."""

    met: int
    """Deadlines."""
    ratio: float
    """GPU-hours over the bound's."""
    starts: int


def play(of: Mix, rule: Rule, noise: int = 0) -> Result:
    """The day under a rule, and some hours more, in which what is late is done."""
    course = fluid.play(of, rule, max(job.due for job in of.jobs) + REST * HOUR, noise)
    hours = sum(course.ordered) * fluid.STEP / HOUR
    return Result(len(of.jobs) - len(course.missed), hours / bound(of)[1], course.starts)


THRESHOLDS = tuple(60.0 * 2.0**power for power in range(9))


def best(results: Iterable[Sequence[Result]]) -> Sequence[Result]:
    """Most deadlines met, then least GPU-hours over the bound."""
    return min(results, key=lambda each: (-sum(one.met for one in each), spread([one.ratio for one in each])[0]))


def spread(ratios: Sequence[float]) -> tuple[float, float]:
    """Geometric mean and 90th percentile."""
    return float(np.exp(np.mean(np.log(ratios)))), float(np.quantile(ratios, 0.9))


def rows(mixes: Sequence[Mix]) -> Iterator[tuple[str, Sequence[Result]]]:
    """The results of each rule, in all mixes."""
    yield "this operator", [play(one, ours(one, one.cost)) for one in mixes]
    yield "llm-d's published law", [play(one, law(one)) for one in mixes]
    yield "always max", [play(one, always(one)) for one in mixes]
    thresholds = [[play(one, keda(one, threshold)) for one in mixes] for threshold in THRESHOLDS]
    yield "KEDA on backlog, the best threshold for all", best(thresholds)
    yield (
        "KEDA on backlog, in hindsight the best of each mix",
        [best([[one] for one in of])[0] for of in zip(*thresholds, strict=True)],
    )


def main() -> None:
    """Print a row for each rule."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mixes", type=int, default=200)
    options.add_argument("--prices", action="store_true")
    seeds = range((asked := options.parse_args()).mixes)
    if asked.prices:
        for name, of in (("half an hour to eight", mix), ("eight hours to a day", slow)):
            for told in (False, True):
                every = np.sum([billed(of(seed), prices(seed), told=told) for seed in seeds], axis=0)
                figures = "{:,.0f} met, {:,.0f} dollars, {:,.0f} replica-hours, {:,.0f} starts".format(*every)
                print(f"due in {name}, prices {'known' if told else 'not known'}: {figures}", flush=True)
        return
    mixes = [mix(seed) for seed in seeds]
    every = sum(len(one.jobs) for one in mixes)
    print(f"{len(mixes)} mixes, {every} deadlines, all of which the bound meets")
    for name, results in rows(mixes):
        mean, high = spread([one.ratio for one in results])
        met, starts = sum(one.met for one in results), sum(one.starts for one in results)
        print(
            f"{name}: {met} met ({met / every:.2%}), {mean:.3f} geometric mean, {high:.2f} p90, {starts} starts",
            flush=True,
        )


if __name__ == "__main__":
    main()
