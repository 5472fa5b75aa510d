"""Work with deadlines, 200 random mixes: the rule of the operator, against the bound, KEDA and llm-d's published law.

A mix is a day of a pool: bursts of requests of sizes over two orders, each to be done in half an hour to eight, or by
the end of a shift; cold starts of 60 to 480 s; a replica's tokens/s and the requests' lengths drift by a quarter; the
source of the backlog is silent for minutes, and replicas are lost. Fleets are a fluid model. The operator's rule is the
very function that a decision calls.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from servingpool.decision.learn.ledger import Ledger
from servingpool.decision.need.throughput import Standing, needed
from servingpool.decision.observation import Reading, Unknown
from servingpool.decision.params import DAY, DEFAULT, HOUR
from servingpool.decision.pool import Batch

STEP = 30.0
"""Seconds between two decisions."""
HOLD = DEFAULT.scale_down_window
"""Seconds for which the last replica stays without work."""
REST = 3.0
"""Hours after the last deadline that are simulated: what is late is done then."""
SILENT = Unknown("the source is silent")


class Job(NamedTuple):
    """A burst of requests."""

    at: float
    requests: float
    length: float
    """Length of its requests over the mean length."""
    due: float


class Mix(NamedTuple):
    """A day of a pool. Seconds begin with the day."""

    jobs: tuple[Job, ...]
    batch: Batch
    start: float
    """Seconds of a cold start."""
    cost: float
    """Replica-seconds of a request of mean length at mean speed."""
    speed: Callable[[float], float]
    """Speed of a replica over its mean."""
    silent: tuple[tuple[float, float], ...]
    """When the source is silent."""
    lost: tuple[float, ...]
    """When a replica is lost, if one is Ready then."""
    most: int = 0

    def work(self, job: Job) -> float:
        """Replica-seconds of a burst, at the mean speed between its coming and its deadline."""
        speeds = [self.speed(at) for at in np.linspace(job.at, job.due, 9)]
        return job.requests * job.length * self.cost / float(np.mean(speeds))


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
    peak, works = 0, [of.work(job) for job in of.jobs]
    for first in of.jobs:
        for last in of.jobs:
            inside = sum(w for w, job in zip(works, of.jobs, strict=True) if job.at >= first.at and job.due <= last.due)
            if inside > 0.0:
                peak = max(peak, math.ceil(inside / (last.due - max(first.at, of.start))))
    return peak, (sum(works) + peak * of.start) / HOUR


class Seen(NamedTuple):
    """What a rule is told at one time."""

    now: float
    backlog: Reading
    served: float
    """Requests since the last decision."""
    cost: float | None
    """Replica-seconds of a request, as the last minutes show it; None while nothing is served."""
    ready: int
    ages: tuple[float, ...]
    """Seconds since each replica that loads was ordered."""


Rule = Callable[[Seen], int]


def ours(of: Mix) -> Rule:
    """The operator's rule."""
    ledger, start = Ledger(cost=of.cost), of.start + STEP

    def decide(seen: Seen) -> int:
        nonlocal ledger
        ledger = ledger.update(seen.backlog, 0.0, seen.served, of.batch, seen.now).costing(seen.cost, STEP)
        coming = ((max(0.0, start - age), 1.0) for age in seen.ages)
        fleet = Standing(((0.0, seen.ready), *coming), of.most, start)
        replicas = needed(ledger, 0.0, 0.0, fleet, HOLD, seen.now).replicas
        return int(max(replicas, fleet.all) if isinstance(seen.backlog, Unknown) else replicas)

    return decide


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
    """The day under a rule."""
    draw = np.random.default_rng(noise)
    queue: list[list[float]] = []
    ready, loading = 0, list[float]()
    missed = set[int]()
    hours = served_since = shown_requests = shown_work = 0.0
    cost: float | None = None
    jobs, lost, starts = list(enumerate(of.jobs)), list(of.lost), 0
    end = max(job.due for job in of.jobs) + REST * HOUR
    for tick in range(math.ceil(end / STEP)):
        now = tick * STEP
        while jobs and jobs[0][1].at <= now:
            number, job = jobs.pop(0)
            queue.append([job.requests, job.length * of.cost, job.due, number])
        came = [at for at in loading if now - at >= of.start]
        ready, loading = ready + len(came), [at for at in loading if now - at < of.start]
        if lost and now >= lost[0]:
            lost.pop(0)
            if ready:
                ready, loading, starts = ready - 1, [*loading, now], starts + 1
        missed.update(int(one[3]) for one in queue if one[2] < now)
        silent = any(begin <= now < until for begin, until in of.silent)
        backlog = SILENT if silent else float(sum(one[0] for one in queue))
        ages = tuple(now - at for at in loading)
        wanted = min(of.most, max(0, rule(Seen(now, backlog, served_since, cost, ready, ages))))
        loading = loading[: max(0, wanted - ready)]
        ready = min(ready, wanted - len(loading))
        more = max(0, wanted - ready - len(loading))
        starts += more
        loading += [now] * more
        speed, room, served_since = of.speed(now), ready * STEP, 0.0
        used = 0.0
        while queue and room > 1e-9:
            one = queue[0]
            done = min(one[0], room * speed / one[1])
            room, used = room - done * one[1] / speed, used + done * one[1] / speed
            served_since += done
            one[0] -= done
            if one[0] <= 1e-6:
                queue.pop(0)
        keep = math.exp(-STEP / 600.0)
        shown_requests, shown_work = shown_requests * keep + served_since, shown_work * keep + used
        seen = float(np.exp(draw.normal(0.0, 0.03)))
        cost = shown_work / shown_requests * seen if served_since > 0.0 else None
        hours += (ready + len(loading)) * STEP / HOUR
    missed.update(int(one[3]) for one in queue)
    return Result(len(of.jobs) - len(missed), hours / bound(of)[1], starts)


THRESHOLDS = tuple(60.0 * 2.0**power for power in range(9))


def best(results: Iterable[Sequence[Result]]) -> Sequence[Result]:
    """Most deadlines met, then least GPU-hours over the bound."""
    return min(results, key=lambda each: (-sum(one.met for one in each), spread([one.ratio for one in each])[0]))


def spread(ratios: Sequence[float]) -> tuple[float, float]:
    """Geometric mean and 90th percentile."""
    return float(np.exp(np.mean(np.log(ratios)))), float(np.quantile(ratios, 0.9))


def rows(mixes: Sequence[Mix]) -> Iterator[tuple[str, Sequence[Result]]]:
    """The results of each rule, in all mixes."""
    yield "this operator", [play(one, ours(one)) for one in mixes]
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
    mixes = [mix(seed) for seed in range(options.parse_args().mixes)]
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
