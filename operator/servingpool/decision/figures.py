"""The figures of a decision, a row for each: its metric, where it is found, and what a pool with roles has of two.

Metrics, status, records and the figures of both roles together are derived from the rows. Unit and meaning are those of
the metric, in the catalogue.
"""

# ruff: noqa: RUF009 - a row is `dataclasses.field` with metadata
from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from servingpool.catalogue.metrics import Metric
from servingpool.decision.learn.forecast import Rule
from servingpool.decision.learn.memory import Memory, UpdateResult
from servingpool.decision.learn.step_time import Saturation
from servingpool.decision.observation import Reading, Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.lateness import Lateness, Queues, Witness
from servingpool.decision.observe.window import rate_window
from servingpool.decision.params import LONGEST_GAP, MINUTE
from servingpool.decision.plan import Plan
from servingpool.decision.pool import Pool
from servingpool.decision.words import span

NEVER_FULL = Unknown("no replica was seen full")
NO_SCRAPES = Unknown("no scrapes to take a rate from")
EACH_ROLE = Unknown("prefill and decode have one each")
Part = TypeVar("Part")
Join = Callable[[Any, Any], Any]
"""The figure of a pool with roles, from those of prefill and decode."""


class Sources(NamedTuple):
    """What the figures are found in."""

    pool: Pool
    memory: Memory
    update: UpdateResult
    plan: Plan | None
    """The raw need; None where it is not known."""
    queues: Queues
    now: float
    judge: Lateness
    unjudged: Unknown | None
    """Why the SLO is not judged."""
    overdue: float
    """Requests that have waited for too long already."""
    no_rate: Unknown
    """Why no demand is known."""

    @property
    def full(self) -> Saturation:
        """The full batch of a replica."""
        return self.memory.profile.engine.saturation

    def while_full(self, count: float) -> Reading:
        """So much in the time in which replicas were full, a second."""
        return count / self.full.seconds if self.full.seconds > 0.0 else NEVER_FULL


class Row(NamedTuple):
    """How a figure is told, found and joined."""

    metric: Metric | None
    """None where no metric has its name."""
    find: Callable[[Sources], Any]
    join: Join


def each(*_: Any) -> Unknown:
    """Each role has its own."""
    return EACH_ROLE


def first(prefill: Any, _: Any) -> Any:
    """That of prefill."""
    return prefill


def second(_: Any, decode: Any) -> Any:
    """That of decode."""
    return decode


def both(join: Callable[[float, float], float]) -> Callable[[Reading, Reading], Reading]:
    """Of both, where both are known."""
    return lambda one, other: (
        one if isinstance(one, Unknown) else other if isinstance(other, Unknown) else join(one, other)
    )


total, product = both(operator.add), both(operator.mul)


def figure(metric: Metric | None, find: Callable[[Sources], Any], join: Join = each) -> Any:
    """The row of a figure."""
    return field(metadata={"row": Row(metric, find, join)})


def of(
    part: Callable[[Sources], Part | None], metric: Metric, read: Callable[[Part], Reading], join: Join = each
) -> Any:
    """The row of a figure of a part that may not be known."""
    return figure(metric, lambda on: on.no_rate if (found := part(on)) is None else read(found), join)


plan, demand, step = attrgetter("plan"), attrgetter("update.demand"), attrgetter("update.step")


def rule(on: Sources) -> Rule | None:
    """How demand goes on."""
    return None if on.update.forecast is None else on.update.forecast.rule


def rate(column: int) -> Callable[[Sources], float | None]:
    """Rate of a column over the last half minute."""
    return lambda on: on.memory.window.last(rate_window(on.memory.interval, on.pool.params)).rate(column)


def gauge(column: int) -> Callable[[Sources], Reading]:
    """A column at the last observation."""

    def find(on: Sources) -> Reading:
        value = on.memory.window.rows[-1, column] if len(on.memory.window.rows) else np.nan
        return Unknown("not read at the last observation") if np.isnan(value) else float(value)

    return find


def load(on: Sources) -> float | None:
    """Offered work over what is ready."""
    window, found = on.memory.window, on.update.demand
    return None if found is None or not window.rows[-1, Column.READY] > 0.0 else window.per_replica(found.level)


def safe_load(plan: Plan) -> Reading:
    """Unknown where no load is safe."""
    if plan.feasible:
        return plan.safe_load
    many = "more requests miss than may, at any load"
    return Unknown(many if plan.has_evidence else "too few requests were seen to tell")


def highest(on: Sources) -> float | None:
    """The highest recommendation of the scale-down window."""
    return None if on.plan is None else on.memory.highest_recommendation


def first_token(on: Sources) -> Reading:
    """TTFT at the SLO's percentile; with the time in the queue where the histogram excludes it."""
    memory, pool, judge = on.memory, on.pool, on.judge
    inferred = memory.ttft_inferred and judge.believed is not Witness.GATEWAY
    shown = _mean_prefill(on) if inferred else memory.ttft_tail.at(pool.slo.attainment)
    if judge.believed is not Witness.QUEUE or isinstance(shown, Unknown):
        return shown
    rows = memory.window.last(pool.params.recent_window).rows
    begun, waited = rows[:, Column.BEGUN], rows[:, Column.WAITED]
    each = np.divide(waited, begun, out=np.zeros(len(rows)), where=begun > 0.0)
    order = each.argsort()
    place = begun[order].cumsum().searchsorted(pool.slo.attainment * begun.sum())
    return shown + float(each[order][min(place, len(rows) - 1)]) if len(rows) else shown


def _mean_prefill(on: Sources) -> Reading:
    window = on.memory.window.last(on.pool.params.mean_window)
    requests = window.sums[Column.TTFT_COUNT]
    return window.sums[Column.TTFT_SUM] / requests if requests > 0.0 else Unknown("no request began in ten minutes")


def attained_in(on: Sources, seconds: float) -> Reading:
    """Attainment of so many seconds; requests that are overdue count as late."""
    if on.unjudged is not None:
        return on.unjudged
    misses = on.memory.window.last(seconds).misses
    requests = misses.requests + on.overdue
    if requests * on.pool.slo.allowed < 1.0:
        return Unknown(f"too few requests in {span(seconds)}")
    return 1.0 - (misses.late + on.overdue) / requests


def attainment(on: Sources) -> Reading:
    """Attainment of the last hour."""
    if on.unjudged is not None:
        return on.unjudged
    # Bins go when a new one begins: while nothing is read none does.
    score = on.memory.score_of_last_hour(on.now)
    requests = sum([entry.requests for entry in score]) + on.overdue
    if requests <= 0.0:
        return Unknown("no request was judged in the last hour")
    return 1.0 - (sum([entry.late for entry in score]) + on.overdue) / requests


@dataclass(frozen=True, slots=True)
class Figures:
    """Measured and estimated figures of a pool; Unknown where a figure could not be told."""

    arrivals: Reading = of(demand, Metric.ARRIVAL_RATE, attrgetter("arrivals"), first)
    """Requests/s over the last half minute, or two scrapes."""
    generation_rate: Reading = of(rate(Column.GENERATED), Metric.GENERATION_TOKENS_RATE, float, second)
    """Output tokens/s, aggregate over the pool."""
    prompt_rate: Reading = of(rate(Column.PROMPTS), Metric.PROMPT_TOKENS_RATE, float, first)
    """Prompt tokens/s, aggregate over the pool."""
    queue: Reading = figure(Metric.QUEUE_DEPTH, gauge(Column.WAITING), total)
    """Requests waiting in engines and gateway."""
    running: Reading = figure(Metric.RUNNING_REQUESTS, gauge(Column.RUNNING), total)
    """Requests in running batches."""
    time_to_first_token: Reading = figure(Metric.TIME_TO_FIRST_TOKEN, first_token, total)
    """Seconds at the SLO's percentile over the last 5 minutes, as far as the buckets can tell."""
    time_per_output_token: Reading = figure(
        Metric.TIME_PER_OUTPUT_TOKEN, lambda on: on.memory.tpot_tail.at(on.pool.slo.attainment), second
    )
    """Seconds at the SLO's percentile over the last 5 minutes."""
    attainment: Reading = figure(Metric.ATTAINMENT, attainment, product)
    """Share of requests of the last hour that met every bound of the SLO, by the source that is believed."""
    attainment_now: Reading = figure(
        Metric.RECENT_ATTAINMENT, lambda on: attained_in(on, on.pool.params.recent_window), product
    )
    """Share of requests of the last 5 minutes that met every bound of the SLO."""
    attainment_minute: Reading = figure(Metric.MINUTE_ATTAINMENT, lambda on: attained_in(on, MINUTE), product)
    """The share of the last minute: it shows a recovery first."""
    judged: bool = figure(None, lambda on: on.unjudged is None, operator.and_)
    """Whether the SLO is judged: False where it is measured at the gateway, and the gateway does not tell."""
    witness: str = figure(None, lambda on: on.judge.believed, first)
    """Source that tells whether a first token was late: a value of `Witness`."""
    longest_wait: float = figure(Metric.LONGEST_WAIT, lambda on: on.queues.longest_wait, max)
    """Seconds that the longest-waiting request has waited, by the length of the queues."""
    full_batch: Reading = figure(Metric.FULL_REPLICA_BATCH, lambda on: on.full.batch if on.full.known else NEVER_FULL)
    """Requests that a replica decodes at a time while requests wait; before that, the limit in its arguments."""
    full_requests: Reading = figure(Metric.FULL_REPLICA_REQUESTS, lambda on: on.while_full(on.full.requests))
    """Requests/s that a replica served while requests waited for it."""
    full_tokens: Reading = figure(Metric.FULL_REPLICA_TOKENS, lambda on: on.while_full(on.full.tokens))
    """Output tokens/s that a replica yielded while requests waited for it."""
    step_base: Reading = of(step, Metric.STEP_BASE, attrgetter("base"))
    """Seconds of an engine step with no work in it."""
    step_per_request: Reading = of(step, Metric.STEP_PER_REQUEST, attrgetter("per_request"))
    """Seconds that each decoding request adds to a step."""
    step_per_prefill_token: Reading = of(step, Metric.STEP_PER_PREFILL_TOKEN, attrgetter("per_prefill_token"))
    """Seconds that each prefill token adds to a step."""
    work_per_request: Reading = of(demand, Metric.WORK_PER_REQUEST, attrgetter("work_per_request"))
    """Replica-seconds that the usual request costs."""
    load: Reading = of(load, Metric.LOAD, float)
    """Offered work over the capacity of the ready replicas; near 1 queues grow."""
    safe_load: Reading = of(plan, Metric.SAFE_LOAD, safe_load)
    """The highest load at which the expected misses are still within the allowance; Unknown where none is."""
    miss_floor: Reading = of(plan, Metric.MISS_FLOOR, attrgetter("curve.floor"))
    """Share of requests expected to miss at any fleet size."""
    miss_calibration: Reading = figure(
        Metric.MISS_CALIBRATION, lambda on: on.memory.profile.calibration.ratio(on.pool.params)
    )
    """Misses observed for each that the curve predicted, 1 to 4."""
    persistence: Reading = of(rule, Metric.PERSISTENCE, attrgetter("persistence"))
    """Part of a jump above the usual demand that lasts for a cold start, 0 to 1."""
    usual_persistence: Reading = of(rule, Metric.USUAL_PERSISTENCE, attrgetter("reversion"))
    """Part of the usual demand's distance from the hour's mean that lasts for a cold start, 0 to 1."""
    forecast: Reading = of(plan, Metric.FORECAST, attrgetter("expected"))
    """Expected work at the horizon, in replicas kept fully busy."""
    burst: Reading = of(plan, Metric.BURST, attrgetter("burst"))
    """Work at the horizon that 1 in 20 of the possible outcomes exceeds, in replicas kept fully busy."""
    backlog: Reading = of(plan, Metric.BACKLOG, attrgetter("backlog"))
    """Replicas that the queues keep busy at the horizon."""
    horizon: float = figure(Metric.HORIZON, lambda on: on.memory.horizon(on.pool), max)
    """Seconds: how long a replica ordered now takes to serve."""
    fast_factor: Reading = figure(Metric.FAST_BUDGET_FACTOR, lambda on: on.memory.profile.budget.fast_factor)
    """Factor on the planned misses by the misses of the last hour, 0.5 to 1."""
    slow_factor: Reading = figure(
        Metric.SLOW_BUDGET_FACTOR, lambda on: on.memory.profile.budget.slow_factor(on.pool.params)
    )
    """Factor on the planned misses by the misses of the last day, 0.7 to 1.29."""
    allowance: Reading = of(plan, Metric.ALLOWANCE, attrgetter("allowance"))
    """Share of requests that the fleet is sized to miss."""
    penalty: Reading = of(plan, Metric.MISS_PENALTY, attrgetter("penalty"))
    """Penalty of a miss, in replicas for the work that keeps a replica busy."""
    for_forecast: Reading = of(plan, Metric.NEEDED_FOR_FORECAST, attrgetter("for_forecast"))
    """Cheapest fleet for the possible demand at the horizon. The need is the largest of these three."""
    for_initial_fleet: Reading = of(plan, Metric.NEEDED_FOR_INITIAL_FLEET, attrgetter("for_initial_fleet"))
    """Replicas kept because the initial fleet is evidence of demand."""
    for_present_load: Reading = of(plan, Metric.NEEDED_FOR_PRESENT_LOAD, attrgetter("for_present_load"))
    """Cheapest fleet for the demand of now, where less is forecast than stands; else 0."""
    recommended: Reading = of(highest, Metric.RECOMMENDED_REPLICAS, float)
    """Most replicas that were recommended within the scale-down window."""
    idle_for: Reading = figure(Metric.IDLE_TIME, lambda on: on.memory.idle_for(on.now), both(min))
    """Seconds since a request was seen last, at the gateway or the engines, of a pool that may go to zero."""


ROWS: dict[str, Row] = {one.name: one.metadata["row"] for one in fields(Figures)}
"""The row of each figure, by its field."""


def figures(
    pool: Pool, memory: Memory, update: UpdateResult, plan: Plan | Unknown, queues: Queues, now: float
) -> Figures:
    """Figures of the pool, measured and estimated; Unknown where a figure is not known."""
    judge = Lateness(memory.window, memory.profile.queue_in_ttft.excluded, pool)
    # Where the gateway has not told the client's TTFT for longer than a lost scrape takes, the SLO is not judged.
    told = memory.last.client is not None and now - memory.last.client.at <= LONGEST_GAP
    unjudged = None if told or memory.last.client_unknown is None else Unknown(memory.last.client_unknown)
    overdue = queues.overdue(pool.slo.time_to_first_token)
    known, no_rate = (None, plan) if isinstance(plan, Unknown) else (plan, NO_SCRAPES)
    on = Sources(pool, memory, update, known, queues, now, judge, unjudged, overdue, no_rate)
    return Figures(**{name: row.find(on) for name, row in ROWS.items()})


def of_roles(prefill: Figures, decode: Figures) -> Figures:
    """Figures of a pool with roles.

    The share that meets all bounds is taken as the product: a late prefill tells nothing of its decode. TTFT is the
    sum: the client waits for the one and then for the other.
    """
    return Figures(**{name: row.join(getattr(prefill, name), getattr(decode, name)) for name, row in ROWS.items()})


def slo_met(figures: Figures, attainment: float) -> bool | None:
    """Whether the SLO holds: over the last hour, and roughly now; None where no request was judged."""
    if isinstance(figures.attainment, Unknown):
        return None
    now = figures.attainment_now
    # The SLO counts as missed now where the last 5 minutes missed twice what it allows.
    burning = not isinstance(now, Unknown) and 1.0 - now > 2.0 * (1.0 - attainment)
    return figures.attainment >= attainment and not burning
