"""The need of a pool whose work has no bound on latency: the fewest replicas that finish it in time, or serve its rate.

In: what waits and by when it is due, what it costs, and the fleet. Out: the replicas, and what they rest on. The rule
is earliest deadline first: all work that is due by a deadline must fit into the seconds that the fleet serves until
then. What is added serves a cold start later. Kept free are the measured spread of the cost, and one cold start of one
replica, so that the loss of a replica loses no deadline.

As many replica-seconds are spent whether few replicas work for long or many for a short time; only cold starts differ.
So replicas are added for the least peak, and stay while there is work for them. A start that would work for less than
`WORTH` cold starts waits for more work, as long as waiting asks for no further replica.

Replicas that others have on loan never wait: they are asked for, so that the pool keeps its right to them. While the
backlog is unknown, what was known of it counts, and nothing is removed.

Where prices change by the hour, work waits for cheaper hours as far as `SHARE` of the replicas that can be had do it
there, with all that is kept free: what does not fit has the other hours alone. Dearer hours are left free as far as
that share does the work before them. What does not fit falls as it is done and grows as work comes: no threshold is
crossed from one moment to the next.

A rate takes as many full replicas as serve it, or as its money pays. What runs, and what waits within `SHORT` cold
starts, may keep fewer nearly full: then these suffice, for more would serve no more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from servingpool.decision.learn.kinds import OVERDUE
from servingpool.decision.learn.ledger import Due, Ledger
from servingpool.decision.learn.memory import UpdateResult
from servingpool.decision.learn.miss_curve import BINS, Curve
from servingpool.decision.observation import EPSILON, Observation, Reading, TimeLeft, Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.counters import added
from servingpool.decision.observe.window import Slice, rate_window
from servingpool.decision.params import Params
from servingpool.decision.plan import Course, Wanted
from servingpool.decision.pool import Batch, Pool, Rate, Tariff
from servingpool.decision.words import clock, shown

WORTH = 6.0
"""Cold starts, 1 to 10: replicas that would work for less than this are ordered as late as their number allows."""
SHORT = 2.0
"""Cold starts, 1.5 to 4: for less work than this no replica stays, and in so long is done what is late."""
SPREADS = 2.0
"""Spreads of the cost, 1 to 3, that are kept free."""
SHARE = 0.5
"""Share of max, 0.25 to 1, that is planned on in cheaper hours: the rest is for work that comes later."""
NOTHING_LATE = Curve(np.zeros(len(BINS)), floor=0.0, limit=math.inf, aftermath=0.0)
"""Nothing that arrives now can be late yet."""


class Standing(NamedTuple):
    """The fleet, in replicas of the reference."""

    waits: tuple[tuple[float, float], ...]
    """Seconds until each part of it serves, with its capacity; 0 s of what is Ready."""
    most: float
    """Replicas that can be had."""
    start: float
    """Seconds until a replica that is ordered now serves."""
    tariffs: tuple[Tariff, ...] = ()
    """As in `Batch`."""

    @property
    def all(self) -> float:
        """Replicas that serve or will."""
        return math.fsum(weight for _, weight in self.waits)

    def serves(self, seconds: float) -> float:
        """Replica-seconds that it serves in so many seconds."""
        return math.fsum(max(0.0, seconds - wait) * weight for wait, weight in self.waits)


def elsewhere(fleet: Standing, lefts: list[float], now: float) -> tuple[list[list[float]], Tariff | None]:
    """Hours of another price before each time left, and the cheapest ones, with the ratio to the price of now.

    A row has the replica-seconds that cheaper hours take, the seconds that are cheaper, and those that are dearer.
    Hours that save less than `WORTH` cold starts cost count as those of now.
    """
    if len(fleet.tariffs) < 2 or not lefts:
        return [[0.0, 0.0, 0.0]] * len(lefts), None
    begins, prices, most = np.array(fleet.tariffs).T
    begins = np.clip(begins - now, 0.0, lefts[-1])
    lengths, least = np.diff(begins, append=lefts[-1]), WORTH * fleet.start
    present = int((lengths > 0.0).argmax())
    prices /= prices[present]
    cheaper = (1.0 - prices) * lengths >= least * prices
    dearer = (prices - 1.0) * lengths[present] >= least
    inside = np.clip(np.array(lefts)[:, None] - begins, 0.0, lengths)
    serves = SHARE * np.minimum(most, fleet.most) * np.maximum(inside - fleet.start, 0.0)
    rows = np.stack([serves @ cheaper, inside @ cheaper, inside @ dearer], axis=1).tolist()
    first = int(np.where(cheaper, prices, math.inf).argmin())
    return rows, Tariff(now + float(begins[first]), float(prices[first])) if cheaper.any() else None


def needed(ledger: Ledger, running: float, flow: float, fleet: Standing, hold: float, now: float) -> Wanted:
    """The fewest replicas that do all work in time. While its cost is not known, one replica shows it.

    `running`: what is in batches, half done on average; `flow`: replicas kept busy by what comes. `hold`: seconds for
    which the last replica stays without work.
    """
    if ledger.cost is None and ledger.dues:
        return Wanted(max(fleet.all, 1.0), due=ledger.dues[0])
    start, spare, cost, waits_until = fleet.start, 1.0 + SPREADS * ledger.spread, ledger.cost or 0.0, math.inf
    work, amount, add, least = 0.5 * running * cost, 0.0, 0.0, 0.0
    at_risk, room, short = None, fleet.most - fleet.all, list[tuple[float, float, Due, float]]()
    apart, cheap = elsewhere(fleet, [at - now for at, _ in ledger.dues], now)
    rest = work

    def adds(need: float, time: float) -> float:
        missing = need - fleet.serves(time)
        return math.ceil(missing / (time - start) - EPSILON) if time > start else math.inf if missing > 0.0 else 0.0

    for (at, more), (taken, cheaper, dearer) in zip(ledger.dues, apart, strict=True):
        work, amount, left = work + more * cost, amount + more, at - now
        whole = work * spare + start
        rest = max(rest, whole - taken if cheaper > 0.0 else work)
        short.append((whole - fleet.serves(left), left, Due(at, amount), work))
        if left <= start:  # what is ordered now comes too late for it
            least, lost = fleet.all, work > fleet.serves(left)
            late = work - fleet.serves(SHORT * start)
            add = max(add, math.ceil(late / ((SHORT - 1.0) * start) - EPSILON))
        else:
            lost, same = adds(whole, left) > room, left - cheaper - dearer
            parts = [min((whole - taken, left - cheaper), (whole, left), key=lambda one: adds(*one))]
            if dearer > 0.0 and same > WORTH * start:
                full = fleet.serves(same) + (math.ceil(SHARE * fleet.most) - fleet.all) * (same - start)
                parts.append((min(whole - taken, full), same))
            for need, time in parts:
                missing, wanted, later = need - fleet.serves(time), adds(need, time), time - 2.0 * start
                least = max(least, fleet.all - max(0.0, -missing / max(time, start)))
                then = math.ceil(missing / later - EPSILON) if later > 0.0 else math.inf
                urgent = missing >= WORTH * start * wanted or then > min(wanted, room)
                add = max(add, wanted if urgent else min(wanted, int(ledger.had - fleet.all)))
                if wanted > add:
                    waits_until = min(waits_until, now + later - missing / wanted)
        at_risk = at_risk or (Due(at, amount) if lost else None)
    if apart and apart[-1][1] > 0.0:  # what comes can wait for cheaper hours as well
        flow = hold = 0.0
    lasts = max(math.floor(rest / (SHORT * start) + flow), float(now - ledger.busy_at < hold))
    replicas = fleet.all + add if add > 0 else min(fleet.all, max(math.ceil(least - EPSILON), lasts))
    lag = fleet.all * start - fleet.serves(start) + add * start
    _, _, decides, of_due = max(short, key=itemgetter(0), default=(0.0, 0.0, None, 0.0))
    finishes = now + (of_due + lag) / replicas if replicas > 0.0 and decides is not None else None
    waits = cheap and decides and decides.at - cheap.begin > start and of_due > replicas * (cheap.begin - now)
    cheap, finishes = (cheap, None) if waits else (None, finishes)
    # One that is asked for a cold start later serves another one later. One that serves takes longer to be worth giving
    # away: so near its end no work is interrupted.
    more, away = min(replicas, fleet.most) - fleet.all, SHORT * start
    slack = min([more * left - add * start - missing for missing, left, _, _ in short], default=math.inf)
    spared = min(slack / away, max(0.0, more) + max(0.0, slack / away - max(0.0, more)) * SHORT / WORTH)
    may_wait, may_be_late = (max(0.0, math.floor(min(one, replicas) + EPSILON)) for one in (spared, slack / start))
    return Wanted(replicas, "", None, decides, finishes, at_risk, waits_until, may_wait, may_be_late, 0.0, cheap)


def steady(ledger: Ledger, rate: Rate, paid: float, flow: float, fleet: Standing, params: Params, now: float) -> Wanted:
    """The replicas of a rate. `paid`: that its money pays; `flow`: that what runs keeps busy.

    Replicas are nearly full from the knee that is expected of any engine on. What a token costs moves, so what stands
    is not removed for the last tenth.
    """
    busy = float(now - ledger.busy_at < params.scale_down_window)
    if ledger.cost is None:
        return Wanted(max(fleet.all, 1.0) * busy, "what an output token costs is not known yet: what stands shows it")
    goal, asked = min(rate.output * ledger.cost, paid), flow + ledger.waiting * ledger.cost / (SHORT * fleet.start)
    full = min(goal, asked / params.knee_share)
    replicas = max(full, min(fleet.all, (1.0 + params.worth_moving) * full, paid), busy)
    why = f"{goal / ledger.cost:,.0f} output tokens/s{', as paid for,' * (goal == paid)} need {shown(goal)} replicas; "
    why += f"what runs, and {ledger.waiting:,.0f} queued tokens, fill {asked:.1f}"
    return Wanted(replicas, why)


def plan(
    observation: Observation, pool: Pool, batch: Batch, update: UpdateResult, most: float, paid: float, now: float
) -> tuple[Wanted, Ledger]:
    """The replicas for the work, and the ledger with it. `most`: that can be had; `paid`: that a rate's money pays."""
    memory, start = update.memory, update.memory.start(pool)
    mean, last = memory.window.last(pool.params.mean_window), Slice(memory.window.rows[-1:])
    requests = mean.sums[Column.TTFT_COUNT]
    tokens = mean.sums[Column.GENERATED] + (0.0 if batch.rate else mean.sums[Column.PROMPTS])
    each = tokens / requests if batch.unit != "requests" and min(requests, tokens) > 0.0 else 1.0
    held = memory.last.waiting if observation.ready else memory.last.gateway
    waiting = added(observation.backlog, held if isinstance(held, Unknown) else held * each)
    left, before = observation.time_left, 0.0 if isinstance(held, Unknown) else held
    told = [] if isinstance(left, Unknown) else [Due(now + after, due + before) for after, due in left if due > 0.0]
    doubt, what = (left, "time left") if isinstance(left, Unknown) else (waiting, "backlog")
    running = (last.highest(Column.RUNNING) or 0.0) * each
    served = (last.rate(Column.BEGUN) or 0.0) * last.seconds * each
    known = memory.profile.ledger  # of another objective: what a request cost is no cost of a token
    ledger = known if known.unit == batch.unit else Ledger(unit=batch.unit)
    if now != ledger.at:
        cost = None if update.demand is None or min(served, tokens) <= 0.0 else update.demand.work_per_request / each
        ledger = ledger.update(waiting, running, served, batch, now).costing(cost, memory.interval)
        overdue = max([one.amount for one in told if one.at <= now], default=0.0)
        twice = min(overdue, ledger.overdue)  # what two ticks in a row call late stays late
        ledger = replace(ledger.sooner([Due(now, twice)] if twice else ()), overdue=overdue)
    flow, hung = 0.0 if update.demand is None else update.demand.level, len(memory.last.standing)
    pods = [(max(0.0, start - one.age), one.weight) for one in observation.starting if one.age <= OVERDUE * start]
    without_pod = max(0.0, observation.ordered - observation.serving - math.fsum(weight for _, weight in pods))
    waits = ((0.0, observation.serving - hung), *pods, (start, without_pod))
    fleet = Standing(waits, most - hung, start, batch.tariffs)
    if batch.rate is not None:  # what waits is in the ledger, so that growth of the queues is no flow
        recent = memory.window.last(rate_window(memory.interval, pool.params))
        flow = (recent.rate(Column.GENERATED) or 0.0) * (ledger.cost or 0.0)
        found = steady(ledger, batch.rate, paid, flow, fleet, pool.params, now)
    else:
        found = needed(ledger.sooner(told), running, flow, fleet, pool.params.scale_down_window, now)
        if fleet.all >= found.replicas and found.waits_until == math.inf:
            ledger = replace(ledger, had=found.replicas)
    if (unknown := isinstance(doubt, Unknown)) or len(pool.targets) > 1:  # which of several could be had again?
        replicas = max(found.replicas, fleet.all * unknown)
        # While it is unknown no more is lent, and what is lent is not called back for that.
        lent = min(found.may_wait, replicas - fleet.all) if len(pool.targets) == 1 else 0.0
        found = found._replace(replicas=replicas, may_wait=lent)
    found = found._replace(replicas=found.replicas + hung * (found.replicas > 0.0), had=ledger.had)
    # Each replica less leaves the work of one undone, but for those that it lends.
    fleets, must = np.arange(1.0, max(1.0, math.ceil(found.replicas)) + 1.0), math.ceil(found.replicas) - found.lends
    found = found._replace(course=Course(fleets, np.maximum(must - fleets, 0.0), must, 0.0, NOTHING_LATE))
    return found._replace(why=found.why or _said(found, ledger, doubt, what, running, batch)), ledger


def _said(found: Wanted, ledger: Ledger, doubt: Reading | TimeLeft, what: str, running: float, batch: Batch) -> str:
    """The sentence on the replicas."""
    unit, due = batch.unit, found.due
    said = f"the {what} is unknown ({doubt.reason}), so nothing is removed; " if isinstance(doubt, Unknown) else ""
    if due is None:
        return f"{said}0 {unit} are known to wait and {running:,.0f} run"
    said += f"{due.amount:,.0f} {unit} due by {clock(due.at)}"
    if ledger.cost is None:
        return f"{said}: what they cost is not known yet, so 1 replica shows it"
    fleet = "1 replica" if found.replicas == 1.0 else f"{shown(found.replicas)} replicas"
    if (cheap := found.waits_for) is not None:
        said += f" wait until {clock(cheap.begin)}, when a replica costs {cheap.price:.0%} of what it costs now"
        return f"{said}; what has no room then is done now, with {fleet}" if found.replicas > 0.0 else said
    if found.finishes_at is None:
        return f"{said} wait for more work until {clock(min(found.waits_until, due.at))}, which saves a cold start"
    said += f" finish at {clock(found.finishes_at)} with {fleet} at {found.replicas / ledger.cost:,.2f} {unit}/s"
    return said if found.waits_until == math.inf else f"{said}; others are added by {clock(found.waits_until)}"
