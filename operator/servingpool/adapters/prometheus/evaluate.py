"""One query each, from expression to pages: what a worker thread does, so that the event loop does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from servingpool.adapters.prometheus.backend_config import GatewayQueue
from servingpool.adapters.prometheus.buckets import Layout
from servingpool.adapters.prometheus.errors import MetricsUnavailable
from servingpool.adapters.prometheus.gateway import GatewayReading
from servingpool.adapters.prometheus.http_client import PrometheusClient
from servingpool.adapters.prometheus.pages import gather, gather_range
from servingpool.adapters.prometheus.plan import Plan
from servingpool.adapters.prometheus.promql import Queries, Scope, gateway_queue
from servingpool.adapters.prometheus.samples import PodKey
from servingpool.decision.observation import ReplicaMetrics

T = TypeVar("T")
Pages = dict[PodKey, dict[str, ReplicaMetrics]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The pages of one slice at one time."""

    at: float
    """Unix seconds, by Prometheus's clock."""
    pages: Pages
    stale: dict[PodKey, float]
    lacks_buckets: bool
    warnings: int


def read_layout(client: PrometheusClient, timeout: float, queries: Queries, scope: Scope, at: float | None) -> Layout:
    """The buckets that exist `at` that time, or now."""
    answer = client.custom_query(queries.buckets(scope), {} if at is None else {"time": f"{at:.3f}"}, timeout)
    return _shaped(
        client,
        lambda: Layout.read(
            (row["metric"]["__name__"].removesuffix("_bucket"), row["metric"]["le"], float(row["value"][1]))
            for row in answer.rows()
        ),
    )


def read_pages(client: PrometheusClient, timeout: float, plan: Plan, scope: Scope) -> Evaluation:
    """The pages of a scope now."""
    answer = client.custom_query(plan.query(scope), timeout=timeout)
    table = _shaped(client, lambda: gather(answer.rows(), plan.columns))
    at = _shaped(client, lambda: float(answer.ends[0]["value"][0]) if answer.ends else 0.0)
    fresh, stale = table.pages(at, client.config.staleness)
    return Evaluation(at, fresh, stale, table.lacks_buckets, len(answer.warnings))


def read_range(
    client: PrometheusClient, timeout: float, plan: Plan, scope: Scope, times: tuple[float, float, float]
) -> dict[float, Pages]:
    """The pages of a scope by time of evaluation, from, to and by a step (seconds)."""
    answer = client.custom_query_range(plan.query(scope), *times, timeout=timeout)
    if answer.warnings:
        raise MetricsUnavailable(client.config.name, partial(len(answer.warnings)))
    tables = _shaped(client, lambda: gather_range(answer.rows(), plan.columns))
    return {at: table.pages(at, client.config.staleness)[0] for at, table in tables.items()}


def read_gateway(client: PrometheusClient, timeout: float, gateway: GatewayQueue) -> GatewayReading:
    """The gateway's queues now."""
    answer = client.custom_query(gateway_queue(gateway, client.config.staleness), timeout=timeout)
    if answer.warnings:
        raise MetricsUnavailable(client.config.name, partial(len(answer.warnings)))
    return _shaped(client, lambda: GatewayReading.of(gateway, answer.rows()))


def ask_one(client: PrometheusClient, timeout: float) -> None:
    """Ask for the number 1. Raises MetricsUnavailable where another answer comes."""
    answer = client.custom_query("vector(1)", timeout=timeout)
    if _shaped(client, lambda: [float(row["value"][1]) for row in answer.rows()]) != [1.0]:
        raise MetricsUnavailable(client.config.name, "did not answer the query vector(1) with 1")


def partial(warnings: int) -> str:
    """What a backend did that warned. Its own words are kept out: Thanos names its stores' addresses."""
    return f"warned ({warnings}x) that its answer may lack series"


def _shaped(client: PrometheusClient, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise MetricsUnavailable(client.config.name, "answered with rows of another shape than asked for") from error
