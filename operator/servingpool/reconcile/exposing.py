"""The operator's own metrics: live figures of every pool, and how the loop itself does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from servingpool.decision.observation import Reading, Unknown
from servingpool.reconcile.snapshot import Decided, Snapshot

LABELS = ("namespace", "pool")
TICK_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Shown:
    """One figure of a decision as a metric."""

    name: str
    help: str
    read: Callable[[Decided], Reading]


FIGURES = (
    Shown("desired_replicas", "What the last decision wants.", lambda d: d.desired),
    Shown("needed_replicas", "Raw need before any limit.", lambda d: d.need),
    Shown("requested_replicas", "What the target asks for.", lambda d: d.requested),
    Shown("ready_replicas", "Replicas that serve.", lambda d: d.ready),
    Shown("gpus", "GPUs that the ordered replicas occupy.", lambda d: d.gpus),
    Shown("arrival_rate", "Requests per second, last half minute.", lambda d: d.figures.arrivals),
    Shown("generation_tokens_rate", "Output tokens per second over all replicas.", lambda d: d.figures.generation_rate),
    Shown("prompt_tokens_rate", "Prompt tokens per second over all replicas.", lambda d: d.figures.prompt_rate),
    Shown("queue_depth", "Requests waiting in engines and gateway.", lambda d: d.figures.queue),
    Shown("running_requests", "Requests in running batches.", lambda d: d.figures.running),
    Shown(
        "time_to_first_token_seconds",
        "TTFT at the SLO's percentile, 5 minutes.",
        lambda d: d.figures.time_to_first_token,
    ),
    Shown(
        "time_per_output_token_seconds",
        "TPOT at the SLO's percentile, 5 minutes.",
        lambda d: d.figures.time_per_output_token,
    ),
    Shown("objective_ratio", "Share of requests that the SLO asks for.", lambda d: d.objective),
    Shown("attainment_ratio", "Share of the last hour's requests that met the SLO.", lambda d: d.figures.attainment),
    Shown(
        "recent_attainment_ratio",
        "Share of the last 5 minutes' requests that met the SLO.",
        lambda d: d.figures.attainment_now,
    ),
    Shown("longest_wait_seconds", "Wait of the request that has waited longest.", lambda d: d.figures.longest_wait),
    Shown("full_replica_batch", "Requests that a full replica decodes at a time.", lambda d: d.figures.full_batch),
    Shown("full_replica_requests_rate", "Requests per second of a full replica.", lambda d: d.figures.full_requests),
    Shown("full_replica_tokens_rate", "Output tokens per second of a full replica.", lambda d: d.figures.full_tokens),
    Shown("load_ratio", "Offered work over capacity of the ready replicas.", lambda d: d.figures.load),
    Shown("safe_load_ratio", "Highest load at which the SLO is expected to hold.", lambda d: d.figures.safe_load),
    Shown(
        "forecast_busy_replicas", "Expected work at the horizon, in replicas kept busy.", lambda d: d.figures.forecast
    ),
    Shown("horizon_seconds", "How far ahead the forecast looks: the cold start.", lambda d: d.figures.horizon),
)


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

    def collect(self) -> Iterator[Metric]:
        """Every pool's conditions and figures as of the last tick; what is unknown is absent."""
        pools = self._pools()  # once: the next tick may end in the middle of a scrape
        yield _conditions(pools)
        for shown in FIGURES:
            family = GaugeMetricFamily(f"servingpool_{shown.name}", shown.help, labels=LABELS)
            for key, pool in pools.items():
                if pool.decided is not None:
                    value = shown.read(pool.decided)
                    if not isinstance(value, Unknown):
                        family.add_metric(key, value)
            yield family
        yield _by_kind("servingpool_api_writes", "Writes to the API server.", self._writes())
        yield _by_kind("servingpool_api_write_failures", "Writes that the API server did not take.", self._failures())


def _conditions(pools: Snapshot) -> Metric:
    """One series for each condition of each pool: how it is now.

    Zeros for all that it is not, as kube-state-metrics has them, would be a million series for 5,000 pools.
    """
    said = "1 for the status and reason that a pool's condition has now."
    family = GaugeMetricFamily("servingpool_condition", said, labels=(*LABELS, "type", "status", "reason"))
    for key, pool in pools.items():
        for one in pool.conditions:
            family.add_metric((*key, one.type, one.status, one.reason), 1.0)
    return family


def _by_kind(name: str, documentation: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=("kind",))
    for kind, count in counts.items():
        family.add_metric((kind,), count)
    return family


class LoopMetrics:
    """How the loop does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.duration = Histogram(
            "servingpool_tick_duration_seconds",
            "Time of one turn over all pools.",
            registry=registry,
            buckets=TICK_BUCKETS,
        )
        self.lateness = Histogram(
            "servingpool_tick_lateness_seconds",
            "How much later than due a tick began.",
            registry=registry,
            buckets=TICK_BUCKETS,
        )
        self.pools = Gauge("servingpool_pools", "Pools that are watched.", registry=registry)
        self.leading = Gauge("servingpool_leader", "1 on the replica that writes.", registry=registry)
        self.queries = Counter("servingpool_prometheus_queries", "Queries sent to Prometheus.", registry=registry)
        self.failures = Counter(
            "servingpool_pool_failures", "Pools whose turn ended in an exception.", registry=registry
        )
