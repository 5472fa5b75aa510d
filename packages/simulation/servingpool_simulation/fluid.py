"""A batch's queue and its fleet as a fluid: work that comes, replicas that serve it one after the other, a rule.

The operator's rule is the very function that a decision calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from servingpool.decision.learn.ledger import Ledger
from servingpool.decision.need.throughput import Standing, needed
from servingpool.decision.observation import Reading, Unknown
from servingpool.decision.params import DEFAULT
from servingpool.decision.pool import Batch

STEP = 30.0
"""Seconds between two decisions."""
SHOWN = 600.0
"""Seconds over which a rule sees what work costs."""
SILENT = Unknown("the source is silent")


class Job(NamedTuple):
    """Work that comes at once."""

    at: float
    requests: float
    """Or tokens, as everywhere here."""
    length: float
    """Length of its requests over the mean length."""
    due: float


class Mix(NamedTuple):
    """Work, and the replicas that there may be for it. Seconds begin with it."""

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
    lost: tuple[float, ...] = ()
    """When a replica is lost, if one is Ready then."""
    most: int = 0
    least: int = 0
    ready: int = 0
    """Replicas at the begin."""


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


def ours(of: Mix, cost: float | None) -> Rule:
    """The operator's rule. `cost`: what it has learned before; None where nothing."""
    ledger, start = Ledger(cost=cost), of.start + STEP

    def decide(seen: Seen) -> int:
        nonlocal ledger
        ledger = ledger.update(seen.backlog, 0.0, seen.served, of.batch, seen.now).costing(seen.cost, STEP)
        coming = ((max(0.0, start - age), 1.0) for age in seen.ages)
        fleet = Standing(((0.0, seen.ready), *coming), of.most, start, of.batch.tariffs)
        replicas = needed(ledger, 0.0, 0.0, fleet, DEFAULT.scale_down_window, seen.now).replicas
        return int(max(replicas, fleet.all) if isinstance(seen.backlog, Unknown) else replicas)

    return decide


class Course(NamedTuple):
    """What a rule did."""

    missed: set[int]
    """Numbers of the jobs that were not done in time."""
    ordered: list[int]
    """Replicas from each decision on."""
    starts: int
    late: float
    """Requests that were done after their deadline, or not yet."""
    left: float
    """Requests that wait at the end."""


def play(of: Mix, rule: Rule, end: float, noise: int = 0) -> Course:
    """The course under a rule, up to `end`."""
    draw = np.random.default_rng(noise)
    queue: list[list[float]] = []
    ready, loading, ordered, missed = of.ready, list[float](), list[int](), set[int]()
    served_since = shown_requests = shown_work = late = 0.0
    cost: float | None = None
    jobs, lost, starts = list(enumerate(of.jobs)), list(of.lost), 0
    for tick in range(math.ceil(end / STEP)):
        now = tick * STEP
        while jobs and jobs[0][1].at <= now:
            number, job = jobs.pop(0)
            queue.append([job.requests, job.length * of.cost, job.due, number])
        waiting = [at for at in loading if now - at < of.start]
        ready, loading = ready + len(loading) - len(waiting), waiting
        if lost and now >= lost[0]:
            lost.pop(0)
            if ready:
                ready, loading, starts = ready - 1, [*loading, now], starts + 1
        missed.update(int(one[3]) for one in queue if one[2] < now)
        silent = any(begin <= now < until for begin, until in of.silent)
        backlog = SILENT if silent else float(sum(one[0] for one in queue))
        ages = tuple(now - at for at in loading)
        wanted = min(of.most, max(of.least, rule(Seen(now, backlog, served_since, cost, ready, ages))))
        loading = loading[: max(0, wanted - ready)]
        ready = min(ready, wanted - len(loading))
        more = max(0, wanted - ready - len(loading))
        starts, loading = starts + more, loading + [now] * more
        speed, room, served_since, used = of.speed(now), ready * STEP, 0.0, 0.0
        while queue and room > 1e-9:
            one = queue[0]
            done = min(one[0], room * speed / one[1])
            room, used = room - done * one[1] / speed, used + done * one[1] / speed
            served_since, late = served_since + done, late + done * (one[2] <= now)
            one[0] -= done
            if one[0] <= 1e-6:
                queue.pop(0)
        keep = math.exp(-STEP / SHOWN)
        shown_requests, shown_work = shown_requests * keep + served_since, shown_work * keep + used
        seen = float(np.exp(draw.normal(0.0, 0.03)))
        cost = shown_work / shown_requests * seen if served_since > 0.0 else None
        ordered.append(ready + len(loading))
    undone = [one for one in queue if one[2] < end]
    late, missed = late + sum(one[0] for one in undone), missed | {int(one[3]) for one in undone}
    return Course(missed, ordered, starts, late, sum(one[0] for one in queue))
