"""The operator's own metrics: live figures of every pool, and how the loop itself does.

They are read by other threads, from a snapshot that is built at the end of a tick and never changed after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from servingpool.adapters.cluster.objects import Key
from servingpool.api.conditions import Condition
from servingpool.api.spec import BATCH_SLO, Mode, Slo
from servingpool.api.status import BatchStatus, Change
from servingpool.catalogue.metrics import BATCH, Metric
from servingpool.decision.decision import Decision
from servingpool.decision.figures import ROWS
from servingpool.decision.observation import Reading, Unknown
from servingpool.gpubudget.budgets import Shared
from servingpool.reconcile.keep.history import took
from servingpool.reconcile.keep.state import PoolState
from servingpool.reconcile.plan.expense import Expense
from servingpool.status.builder import FIGURE_NAMES, batch_of

TICK_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Decided:
    """The last decision for a pool, and the fleet that it was made for."""

    decision: Decision
    requested: int
    ready: int
    expense: Expense
    slo: Slo
    replica_cost: float | None
    """Dollars per hour of a replica; None where it is not given, or the pool has several targets."""
    change: Change | None
    """The last of the target's replicas; None where none was seen."""
    batch: BatchStatus | None
    """The work with deadlines; None of a pool without."""
    roles: Mapping[str, Decision] = field(default_factory=dict)
    """The decisions for prefill and for decode, where targets have roles."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """A pool for the metrics. It has conditions even where nothing could be decided."""

    mode: Mode
    conditions: tuple[Condition, ...]
    decided: Decided | None
    model: str = ""


Snapshot = Mapping[Key, PoolSnapshot]
NO_POOLS: Snapshot = MappingProxyType({})


def snapshot(states: Mapping[Key, PoolState]) -> Snapshot:
    """All pools as they are now."""
    return MappingProxyType(
        {key: PoolSnapshot(one.mode, one.conditions, _decided(one), one.kept.model) for key, one in states.items()}
    )


def _decided(state: PoolState) -> Decided | None:
    plan = state.plan
    if plan is None:
        return None
    return Decided(
        decision=plan.decision,
        requested=plan.seen.observation.requested,
        ready=len(plan.seen.observation.ready),
        expense=plan.expense,
        slo=plan.seen.pool.spec.slo,
        replica_cost=None if plan.seen.pool.spec.several else next(iter(plan.seen.pool.spec.costs(plan.at).values())),
        change=next(iter(state.history.changes), None),
        batch=batch_of(plan),
        roles={stage.role: stage.decision for stage in plan.stages if stage.role},
    )


UNCHANGED, NO_SLO = Unknown("no change was seen"), Unknown("the pool has no latency objective")
NOT_SET = Unknown("not set")


def _or_unknown(setting: float | datetime | None) -> Reading:
    return NOT_SET if setting is None else setting.timestamp() if isinstance(setting, datetime) else setting


def _expected_misses(decision: Decision) -> Reading:
    """Share of requests expected to miss with the desired replicas."""
    figures = decision.figures
    if len(decision.parts) > 1:
        return Unknown("sizes of several targets are weighed by their capacity")
    misses = next((one.misses for one in decision.candidates if round(one.replicas) == decision.replicas), None)
    if misses is None or isinstance(figures.forecast, Unknown) or isinstance(figures.backlog, Unknown):
        return Unknown("the desired size was not weighed")
    work = figures.forecast + figures.backlog
    return min(1.0, misses / work) if work > 0.0 else Unknown("no work is expected")


FIGURES: Mapping[Metric, Callable[[Decided], Reading]] = {
    Metric.DECIDED_AT: lambda d: d.decision.at,
    Metric.DESIRED_REPLICAS: lambda d: d.decision.replicas,
    Metric.NEEDED_REPLICAS: lambda d: d.decision.need,
    Metric.EXPECTED_MISSES: lambda d: _expected_misses(d.decision),
    Metric.MIN_REPLICAS: lambda d: d.decision.bounds.least.replicas,
    Metric.MAX_REPLICAS: lambda d: d.decision.bounds.most.replicas,
    Metric.REPLICA_COST: lambda d: _or_unknown(d.replica_cost),
    Metric.TTFT_BOUND: lambda d: NO_SLO if d.slo is BATCH_SLO else _or_unknown(d.slo.time_to_first_token),
    Metric.TPOT_BOUND: lambda d: _or_unknown(d.slo.time_per_output_token),
    Metric.LAST_CHANGE_FROM: lambda d: UNCHANGED if d.change is None else d.change.from_,
    Metric.LAST_CHANGE_TO: lambda d: UNCHANGED if d.change is None else d.change.to,
    Metric.REQUESTED_REPLICAS: lambda d: d.requested,
    Metric.READY_REPLICAS: lambda d: d.ready,
    Metric.GPUS: lambda d: d.expense.gpus,
    Metric.TOKENS_PER_GPU: lambda d: d.expense.per_gpu,
    Metric.TOKENS_PER_DOLLAR: lambda d: d.expense.per_dollar,
    Metric.COST: lambda d: d.expense.dollars,
    Metric.COMPARED_COST: lambda d: d.expense.compared,
    Metric.BREAK_EVEN: lambda d: d.expense.break_even,
    Metric.OBJECTIVE: lambda d: NO_SLO if d.slo is BATCH_SLO else d.slo.attainment_share,
    Metric.BATCH_BACKLOG: lambda d: _or_unknown(d.batch.backlog if d.batch else None),
    Metric.BATCH_RATE: lambda d: _or_unknown(d.batch.per_second if d.batch else None),
    Metric.BATCH_DEADLINE: lambda d: _or_unknown(d.batch.due_at if d.batch else None),
    Metric.BATCH_FINISH: lambda d: _or_unknown(d.batch.finishes_at if d.batch else None),
    Metric.BATCH_DEFERRED: lambda d: d.decision.wanted.may_wait if d.decision.wanted and d.batch else NOT_SET,
} | {row.metric: attrgetter(f"decision.figures.{name}") for name, row in ROWS.items() if row.metric is not None}
"""Metrics that are a single figure of a pool, by the field of `Figures`."""


class PoolCollector(Collector):
    """Reads the pools when it is scraped, in a thread of its own.

    A tick costs nothing for it, and deleted pools leave no series behind.
    """

    def __init__(
        self,
        pools: Callable[[], Snapshot],
        writes: Callable[[], Mapping[str, int]],
        failures: Callable[[], Mapping[str, int]],
        budgets: Callable[[], Mapping[str, Shared]] = dict,
        namespaces_left_out: Callable[[], Collection[str]] = tuple,
        objects_left_out: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """A collector. `namespaces_left_out`, and `objects_left_out` by kind, cannot be read."""
        self._pools, self._writes, self._failures, self._budgets = pools, writes, failures, budgets
        self._namespaces_left_out, self._objects_left_out = namespaces_left_out, objects_left_out

    def collect(self) -> Iterator[Family]:
        """Every pool's conditions and figures as of the last tick; what is unknown is absent."""
        pools = self._pools()  # once: the next tick may end in the middle of a scrape
        yield _infos(pools)
        yield from _conditions(pools)
        yield from _labelled(pools)
        yield from _by_target(pools)
        yield _by_role(pools)
        for metric, read in FIGURES.items():
            family = _gauge(metric)
            for key, pool in pools.items():
                if pool.decided is not None:
                    value = read(pool.decided)
                    if not isinstance(value, Unknown):
                        unit = (pool.decided.batch.unit,) if metric.labels == BATCH and pool.decided.batch else ()
                        family.add_metric((*key, *unit), value)
            yield family
        yield from _of_budgets(self._budgets())
        yield _by_label(Metric.OBJECTS_LEFT_OUT, self._objects_left_out())
        yield _by_label(Metric.API_WRITES, self._writes())
        yield _by_label(Metric.API_WRITE_FAILURES, self._failures())
        yield _by_label(Metric.LEFT_OUT_NAMESPACES, dict.fromkeys(self._namespaces_left_out(), 1))


def _infos(pools: Snapshot) -> Family:
    """What a query may join with any figure of a pool.

    A label of every figure instead would end all series of a pool when its mode changes, and windows with them.
    """
    family = _gauge(Metric.INFO)
    for key, pool in pools.items():
        family.add_metric((*key, pool.mode, pool.model), 1.0)
    return family


def _conditions(pools: Snapshot) -> Iterator[Family]:
    """A series for each condition of each pool, with its present state, and since when it is not good.

    Zeros for all that it is not, as kube-state-metrics has them, would be a million series for 5,000 pools.
    """
    family, since = _gauge(Metric.CONDITION), _gauge(Metric.CONDITION_SINCE)
    for key, pool in pools.items():
        for one in pool.conditions:
            family.add_metric((*key, one.type, one.status, one.reason), 1.0)
            if one.status is not one.type.good:
                since.add_metric((*key, one.type), one.last_transition_time.timestamp())
    yield from (family, since)


def _labelled(pools: Snapshot) -> Iterator[Family]:
    """Metrics with several series a pool, or with a label of their own."""
    limits, candidates = _gauge(Metric.LIMIT), _gauge(Metric.CANDIDATE_MISSES)
    scheduled, change = _gauge(Metric.SCHEDULE_BOUND), _gauge(Metric.LAST_CHANGE)
    ended = _gauge(Metric.LAST_CHANGE_OUTCOME)
    for key, pool in pools.items():
        if pool.decided is None:
            continue
        decision, last = pool.decided.decision, pool.decided.change
        for order, limit in enumerate(decision.limits, start=1):
            limits.add_metric((*key, limit.name, str(order)), limit.after)
        for one in () if len(decision.parts) > 1 else decision.candidates:  # parts of a replica drift: a series each
            candidates.add_metric((*key, size_of(one.replicas)), one.misses)
        for name, bound in (("min", decision.bounds.least), ("max", decision.bounds.most)):
            if bound.schedule is not None:
                scheduled.add_metric((*key, name, bound.schedule), bound.replicas)
        if last is not None:
            change.add_metric((*key, last.by), last.at.timestamp())
            outcome = took(last)
            if outcome is not None:
                ended.add_metric((*key, outcome[0]), outcome[1])
    yield from (limits, candidates, scheduled, change, ended)


def size_of(replicas: float) -> str:
    """A fleet size as a label. Sizes of a pool of several targets differ by less than a replica."""
    return f"{replicas:.2f}" if replicas % 1.0 else f"{replicas:.0f}"


def _by_target(pools: Snapshot) -> Iterator[Family]:
    """Metrics of each target, of pools of several targets."""
    requested, ready = _gauge(Metric.TARGET_REQUESTED), _gauge(Metric.TARGET_READY)
    desired, speed = _gauge(Metric.TARGET_DESIRED), _gauge(Metric.TARGET_SPEED)
    for key, pool in pools.items():
        parts = () if pool.decided is None else pool.decided.decision.parts
        for one in parts if len(parts) > 1 else ():
            labels = (*key, one.target)
            requested.add_metric(labels, one.requested)
            ready.add_metric(labels, one.ready)
            desired.add_metric(labels, one.replicas)
            if one.measured:
                speed.add_metric(labels, one.weight)
    yield from (requested, ready, desired, speed)


def _by_role(pools: Snapshot) -> Family:
    """Figures of the decisions for prefill and decode, under one name: else sums over pools had figures twice."""
    family = _gauge(Metric.ROLE_FIGURE)
    for key, pool in pools.items():
        for role, decision in () if pool.decided is None else pool.decided.roles.items():
            capacity = math.fsum(part.replicas * part.weight for part in decision.parts)
            requested, ready = (sum(getattr(part, name) for part in decision.parts) for name in ("requested", "ready"))
            told: dict[str, object] = {"need": decision.need, "replicas": decision.replicas, "capacity": capacity}
            told |= {"requested": requested, "ready": ready}
            told |= {shown: getattr(decision.figures, name) for name, shown in FIGURE_NAMES.items()}
            for figure, value in told.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    family.add_metric((*key, role, figure), value)
    return family


def _of_budgets(budgets: Mapping[str, Shared]) -> Iterator[Family]:
    """GPUs of each budget, and the GPUs that its pools hold, get and want."""
    gpus, held = _gauge(Metric.BUDGET_GPUS), _gauge(Metric.BUDGET_HELD)
    due, wanted = _gauge(Metric.BUDGET_DUE), _gauge(Metric.BUDGET_WANTED)
    room = _gauge(Metric.HEADROOM_GPUS)
    for name, shared in budgets.items():
        gpus.add_metric((name,), shared.budget.spec.gpus)
        free = max(0, shared.budget.spec.gpus - (shared.held or 0))
        for key, mine in shared.by_pool().items():
            held.add_metric((name, *key), mine.held)
            due.add_metric((name, *key), mine.due)
            wanted.add_metric((name, *key), mine.wanted)
            room.add_metric((name, *key), free)
    yield from (gpus, held, due, wanted, room)


def _gauge(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.value, metric.help, labels=metric.labels)


def _by_label(metric: Metric, counts: Mapping[str, int]) -> Family:
    form = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = form(metric.value, metric.help, labels=metric.labels)
    for label, count in counts.items():
        family.add_metric((label,), count)
    return family


class LoopMetrics:
    """How the loop does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        late, long = Metric.TICK_LATENESS, Metric.TICK_DURATION
        self.duration = Histogram(long.value, long.help, registry=registry, buckets=TICK_BUCKETS)
        self.lateness = Histogram(late.value, late.help, registry=registry, buckets=TICK_BUCKETS)
        self.pools = Gauge(Metric.POOLS.value, Metric.POOLS.help, registry=registry)
        self.owned = Gauge(Metric.OWNED_POOLS.value, Metric.OWNED_POOLS.help, registry=registry)
        self.leading = Gauge(Metric.LEADER.value, Metric.LEADER.help, registry=registry)
        queries, failures = Metric.PROMETHEUS_QUERIES, Metric.POOL_FAILURES
        self.queries = Counter(queries.value, queries.help, registry=registry)
        unreadable = Metric.UNREADABLE_ROWS
        self.unreadable = Counter(unreadable.value, unreadable.help, registry=registry)
        self.failures = Counter(failures.value, failures.help, registry=registry)
