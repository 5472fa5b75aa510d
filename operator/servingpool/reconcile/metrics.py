"""The operator's own metrics: live figures of every pool, and how the loop itself does.

They are read by other threads, from a snapshot that is built at the end of a tick and never changed after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from servingpool.adapters.cluster.objects import Key
from servingpool.api.conditions import Condition
from servingpool.catalogue.metrics import Metric
from servingpool.decision.decision import Figures
from servingpool.decision.observation import Reading, Unknown
from servingpool.reconcile.expense import Expense
from servingpool.reconcile.state import PoolState

TICK_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Decided:
    """The last decision for a pool, and the fleet that it was made for."""

    desired: int
    """Replicas."""
    need: Reading
    """Replicas, before any limit."""
    figures: Figures
    requested: int
    ready: int
    gpus: int
    """Of all requested replicas."""
    expense: Expense
    objective: float
    """Share of requests that the SLO asks for, 0 to 1."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool. It has conditions even where nothing could be decided."""

    conditions: tuple[Condition, ...]
    decided: Decided | None


Snapshot = Mapping[Key, PoolSnapshot]
NO_POOLS: Snapshot = MappingProxyType({})


def snapshot(states: Mapping[Key, PoolState]) -> Snapshot:
    """All pools as they are now."""
    return MappingProxyType({key: PoolSnapshot(state.conditions, _decided(state)) for key, state in states.items()})


def _decided(state: PoolState) -> Decided | None:
    pool, decision, observation = state.pool, state.decision, state.observation
    if pool is None or decision is None or observation is None:
        return None
    return Decided(
        desired=decision.replicas,
        need=decision.need,
        figures=decision.figures,
        requested=observation.requested,
        ready=len(observation.ready),
        gpus=observation.requested * state.gpus,
        expense=state.expense,
        objective=pool.spec.slo.attainment / 100.0,
    )


FIGURES: Mapping[Metric, Callable[[Decided], Reading]] = {
    Metric.DESIRED_REPLICAS: lambda d: d.desired,
    Metric.NEEDED_REPLICAS: lambda d: d.need,
    Metric.REQUESTED_REPLICAS: lambda d: d.requested,
    Metric.READY_REPLICAS: lambda d: d.ready,
    Metric.GPUS: lambda d: d.gpus,
    Metric.TOKENS_PER_GPU: lambda d: d.expense.per_gpu,
    Metric.TOKENS_PER_DOLLAR: lambda d: d.expense.per_dollar,
    Metric.COST: lambda d: d.expense.dollars,
    Metric.COMPARED_COST: lambda d: d.expense.compared,
    Metric.BREAK_EVEN: lambda d: d.expense.break_even,
    Metric.ARRIVAL_RATE: lambda d: d.figures.arrivals,
    Metric.GENERATION_TOKENS_RATE: lambda d: d.figures.generation_rate,
    Metric.PROMPT_TOKENS_RATE: lambda d: d.figures.prompt_rate,
    Metric.QUEUE_DEPTH: lambda d: d.figures.queue,
    Metric.RUNNING_REQUESTS: lambda d: d.figures.running,
    Metric.TIME_TO_FIRST_TOKEN: lambda d: d.figures.time_to_first_token,
    Metric.TIME_PER_OUTPUT_TOKEN: lambda d: d.figures.time_per_output_token,
    Metric.OBJECTIVE: lambda d: d.objective,
    Metric.ATTAINMENT: lambda d: d.figures.attainment,
    Metric.RECENT_ATTAINMENT: lambda d: d.figures.attainment_now,
    Metric.LONGEST_WAIT: lambda d: d.figures.longest_wait,
    Metric.FULL_REPLICA_BATCH: lambda d: d.figures.full_batch,
    Metric.FULL_REPLICA_REQUESTS: lambda d: d.figures.full_requests,
    Metric.FULL_REPLICA_TOKENS: lambda d: d.figures.full_tokens,
    Metric.LOAD: lambda d: d.figures.load,
    Metric.SAFE_LOAD: lambda d: d.figures.safe_load,
    Metric.FORECAST: lambda d: d.figures.forecast,
    Metric.HORIZON: lambda d: d.figures.horizon,
    Metric.STEP_BASE: lambda d: d.figures.step_base,
    Metric.STEP_PER_REQUEST: lambda d: d.figures.step_per_request,
    Metric.STEP_PER_PREFILL_TOKEN: lambda d: d.figures.step_per_prefill_token,
    Metric.WORK_PER_REQUEST: lambda d: d.figures.work_per_request,
    Metric.MISS_FLOOR: lambda d: d.figures.miss_floor,
    Metric.MISS_CALIBRATION: lambda d: d.figures.miss_calibration,
    Metric.PERSISTENCE: lambda d: d.figures.persistence,
    Metric.USUAL_PERSISTENCE: lambda d: d.figures.usual_persistence,
    Metric.BURST: lambda d: d.figures.burst,
    Metric.BACKLOG: lambda d: d.figures.backlog,
    Metric.FAST_BUDGET_FACTOR: lambda d: d.figures.fast_factor,
    Metric.SLOW_BUDGET_FACTOR: lambda d: d.figures.slow_factor,
    Metric.ALLOWANCE: lambda d: d.figures.allowance,
    Metric.MISS_PENALTY: lambda d: d.figures.penalty,
    Metric.NEEDED_FOR_FORECAST: lambda d: d.figures.for_forecast,
    Metric.NEEDED_FOR_INITIAL_FLEET: lambda d: d.figures.for_initial_fleet,
    Metric.NEEDED_FOR_PRESENT_LOAD: lambda d: d.figures.for_present_load,
    Metric.RECOMMENDED_REPLICAS: lambda d: d.figures.recommended,
}
"""Each figure of a decision that is a metric."""


class PoolCollector(Collector):
    """Reads the pools when it is scraped, in a thread of its own.

    A tick costs nothing for it, and deleted pools leave no series behind.
    """

    def __init__(
        self,
        pools: Callable[[], Snapshot],
        writes: Callable[[], Mapping[str, int]],
        failures: Callable[[], Mapping[str, int]],
    ) -> None:
        self._pools, self._writes, self._failures = pools, writes, failures

    def collect(self) -> Iterator[Family]:
        """Every pool's conditions and figures as of the last tick; what is unknown is absent."""
        pools = self._pools()  # once: the next tick may end in the middle of a scrape
        yield _conditions(pools)
        for metric, read in FIGURES.items():
            family = _gauge(metric)
            for key, pool in pools.items():
                if pool.decided is not None:
                    value = read(pool.decided)
                    if not isinstance(value, Unknown):
                        family.add_metric(key, value)
            yield family
        yield _by_kind(Metric.API_WRITES, self._writes())
        yield _by_kind(Metric.API_WRITE_FAILURES, self._failures())


def _conditions(pools: Snapshot) -> Family:
    """One series for each condition of each pool: how it is now.

    Zeros for all that it is not, as kube-state-metrics has them, would be a million series for 5,000 pools.
    """
    family = _gauge(Metric.CONDITION)
    for key, pool in pools.items():
        for one in pool.conditions:
            family.add_metric((*key, one.type, one.status, one.reason), 1.0)
    return family


def _gauge(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.value, metric.help, labels=metric.labels)


def _by_kind(metric: Metric, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(metric.value, metric.help, labels=metric.labels)
    for kind, count in counts.items():
        family.add_metric((kind,), count)
    return family


class LoopMetrics:
    """How the loop does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        late, long = Metric.TICK_LATENESS, Metric.TICK_DURATION
        self.duration = Histogram(long.value, long.help, registry=registry, buckets=TICK_BUCKETS)
        self.lateness = Histogram(late.value, late.help, registry=registry, buckets=TICK_BUCKETS)
        self.pools = Gauge(Metric.POOLS.value, Metric.POOLS.help, registry=registry)
        self.leading = Gauge(Metric.LEADER.value, Metric.LEADER.help, registry=registry)
        queries, failures = Metric.PROMETHEUS_QUERIES, Metric.POOL_FAILURES
        self.queries = Counter(queries.value, queries.help, registry=registry)
        self.failures = Counter(failures.value, failures.help, registry=registry)
