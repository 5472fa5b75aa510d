"""Queries on worker threads, so that the event loop waits for none: each from expression to samples.

Few threads, a client each: `PrometheusConnect` blocks, and its session is not to be shared.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import Missing, PodKey, causes, question
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.http_client import MetricsUnavailable, PrometheusClient, Unsent
from servingpool.adapters.prometheus.plan import Plan, gather, gather_range
from servingpool.adapters.prometheus.promql import DOUBLED, Queries, Scope
from servingpool.adapters.prometheus.samples import Layout, ReadRequest
from servingpool.decision.observation import ReplicaMetrics

GRACE = 1.0
"""Seconds between a client's own deadline and cutting its connection."""

LOOK_BACK = 300.0
"""Seconds for which Prometheus shows a sample by default (`--query.lookback-delta`)."""
MOST_LOOKS = 24
"""Times in a history at which its buckets are looked up. Each costs Prometheus as much as one step of the history."""

LEAST_LEFT = 0.1
"""Share of the timeout: a queued query is dropped when less than this remains."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _Job:
    """What is known of a job on its thread."""

    began: bool = False
    """False where no thread was free for it."""
    client: PrometheusClient | None = None
    """While it uses it."""


class Workers:
    """Runs blocking jobs of one backend within deadlines."""

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix=f"prometheus-{config.name}")
        self._local = threading.local()
        self._clients: list[PrometheusClient] = []

    def deadline(self) -> float:
        """The monotonic time until which a job started now may take."""
        return time.monotonic() + self._config.timeout

    def run(
        self,
        deadline: float,
        job: Callable[Concatenate[PrometheusClient, float, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[T]:
        """`job(client, seconds left, *args)` on a thread, in the order of the calls, whatever is awaited first.

        The answer raises MetricsUnavailable if it is not there by the deadline, Unsent if no thread was free in time.
        """
        asked, state = time.monotonic(), _Job()

        def work() -> T:
            state.began = True
            now, least = time.monotonic(), LEAST_LEFT * self._config.timeout
            left = deadline - now
            if left < least < now - asked:
                raise self._unsent()
            if left <= 0:
                raise self._late()
            state.client = self._client()
            try:
                return job(state.client, left, *args, **kwargs)
            finally:
                state.client = None

        return self._in_time(deadline, asyncio.get_running_loop().run_in_executor(self._threads, work), state)

    async def _in_time(self, deadline: float, answer: Awaitable[T], state: _Job) -> T:
        try:
            # A client keeps its deadline by itself, except while a server drips headers, or stalls behind them.
            async with asyncio.timeout(deadline - time.monotonic() + GRACE):
                return await answer
        except TimeoutError:
            if (client := state.client) is not None:
                client.cut()  # else its thread waits for as long as the server drips, and is missing
            raise (self._late() if state.began else self._unsent()) from None

    def close(self) -> None:
        """Let go of threads and connections, those of queries under way too."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            client.cut()
            client.close()

    def _client(self) -> PrometheusClient:
        client: PrometheusClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = PrometheusClient(self._config)
            self._clients.append(client)
        return client

    def _unsent(self) -> Unsent:
        return Unsent(self._config.name, f"was busy with other queries for {self._config.timeout:g} s")

    def _late(self) -> MetricsUnavailable:
        return MetricsUnavailable(self._config.name, f"did not answer within {self._config.timeout:g} s")


Samples = dict[PodKey, dict[str, ReplicaMetrics]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The samples of one slice at one time."""

    at: float
    """Unix seconds, by Prometheus's clock."""
    samples: Samples
    stale: dict[PodKey, float]
    lacks_buckets: bool
    warnings: int


def read_layout(
    client: PrometheusClient, timeout: float, queries: Queries, scope: Scope, during: tuple[float, float] | None
) -> Layout:
    """The buckets that existed at some time from begin to end (Unix seconds), or that exist now.

    Those at the end are not enough: no pod may be up then, and without buckets no latency can be compared with a bound.
    """
    when, window = {}, ""
    if during is not None:
        begin, end = during
        step = max(LOOK_BACK, (end - begin) / MOST_LOOKS)
        # Times of a subquery are multiples of its step: one step more reaches back to the begin.
        when, window = {"time": f"{end:.3f}"}, f"{end - begin + step:.0f}s:{step:.0f}s"
    answer = client.custom_query(queries.buckets(scope, window), when, timeout)

    def read() -> Layout:
        rows = list(answer.rows())
        doubled = [row["metric"] for row in rows if row["metric"].get("part") == DOUBLED]
        counts = [row for row in rows if row["metric"].get("part") != DOUBLED]
        return Layout.read(
            (
                (row["metric"]["__name__"].removesuffix("_bucket"), row["metric"]["le"], float(row["value"][1]))
                for row in counts
            ),
            map(queries.pod_of, doubled),
        )

    return _shaped(client, read)


def read_samples(client: PrometheusClient, timeout: float, plan: Plan, scope: Scope) -> Evaluation:
    """The samples of a scope now."""
    answer = client.custom_query(plan.query(scope), timeout=timeout)
    table = _shaped(client, lambda: gather(answer.rows(), plan.columns))
    at = _shaped(client, lambda: float(answer.ends[0]["value"][0]) if answer.ends else 0.0)
    fresh, stale = table.samples(at, client.config.staleness)
    return Evaluation(at, fresh, stale, table.lacks_buckets, len(answer.warnings))


def read_range(
    client: PrometheusClient, timeout: float, plan: Plan, scope: Scope, times: tuple[float, float, float]
) -> dict[float, Samples]:
    """The samples of a scope by time of evaluation, from, to and by a step (seconds)."""
    answer = client.custom_query_range(plan.query(scope), *times, timeout=timeout)
    if answer.warnings:
        raise MetricsUnavailable(client.config.name, partial(len(answer.warnings)))
    tables = _shaped(client, lambda: gather_range(answer.rows(), plan.columns))
    return {at: table.samples(at, client.config.staleness)[0] for at, table in tables.items()}


def read_line(
    client: PrometheusClient, timeout: float, query: str, times: tuple[float, float, float]
) -> list[tuple[float, float]]:
    """One series over time, as (Unix seconds, value), from, to and by a step; empty where there is none."""
    answer = client.custom_query_range(query, *times, timeout=timeout)
    return _shaped(client, lambda: [(float(at), float(value)) for row in answer.rows() for at, value in row["values"]])


def read_causes(
    client: PrometheusClient,
    timeout: float,
    queries: Queries,
    known: Mapping[str, EngineMetrics],
    request: ReadRequest,
    pods: Collection[PodKey],
) -> Mapping[PodKey, Missing]:
    """Why these pods have no sample; nothing where the answer may lack series."""
    answer = client.custom_query(question(queries, known, pods), timeout=timeout)
    if answer.warnings:
        return {}
    return _shaped(client, lambda: causes(queries, request.engine, known, pods, answer.rows(), request.match_labels))


def ask_one(client: PrometheusClient, timeout: float) -> None:
    """Ask for the number 1. Raises MetricsUnavailable where another answer comes."""
    answer = client.custom_query("vector(1)", timeout=timeout)
    if _shaped(client, lambda: [float(row["value"][1]) for row in answer.rows()]) != [1.0]:
        raise MetricsUnavailable(client.config.name, "did not answer the query vector(1) with 1")


def partial(warnings: int) -> str:
    """What a backend did that warned. Its own words are kept out: Thanos names its stores' addresses."""
    return f"warned ({warnings}x) that its answer may be incomplete"


def _shaped(client: PrometheusClient, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise MetricsUnavailable(client.config.name, "answered in an unexpected format") from error
