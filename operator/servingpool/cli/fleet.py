"""`servingpool fleet`: all pools of all clusters of one Prometheus at a glance, from the operators' own metrics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.adapters.prometheus.own_record import Record, fleet_record, one
from servingpool.api.conditions import ConditionType, Reason, Truth
from servingpool.api.duration import brief
from servingpool.catalogue.metrics import Metric
from servingpool.cli.kubectl import Output, printed
from servingpool.cli.output import echo, table
from servingpool.cli.own_record import NO_RECORD, Match, Source
from servingpool.cli.source import Options, asks, unavailable

SUMS = {
    "ready": Metric.READY_REPLICAS,
    "wanted": Metric.DESIRED_REPLICAS,
    "outputTokensPerSecond": Metric.GENERATION_TOKENS_RATE,
    "gpus": Metric.GPUS,
    "dollarsPerHour": Metric.COST,
}
"""Figures of a model that are sums over its pools."""
BUDGET = {"gpus": Metric.BUDGET_GPUS, "held": Metric.BUDGET_HELD, "free": Metric.HEADROOM_GPUS}
ROOM = Metric.READY_REPLICAS, Metric.GENERATION_TOKENS_RATE, Metric.FULL_REPLICA_TOKENS, Metric.LOAD, Metric.SAFE_LOAD
SAID = Metric.INFO, Metric.CONDITION, Metric.CONDITION_SINCE, Metric.OBJECTIVE, Metric.RECENT_ATTAINMENT
ASKED = {*SUMS.values(), *BUDGET.values(), *ROOM, *SAID, Metric.DECIDED_AT}
WAITS = (Reason.GPU_BUDGET, Reason.UNSCHEDULABLE, Reason.WAITING_FOR_NODE, Reason.SCHEDULING_GATED)
STATES: Mapping[str, str] = {
    **dict.fromkeys(WAITS, "waits for GPUs"),
    Reason.TOO_MANY_REPLICAS: "at max",
    Reason.DEADLINE_AT_RISK: "deadline at risk",
    Reason.DEADLINE_MISSED: "deadline missed",
    ConditionType.SLO_MET: "SLO missed",
    ConditionType.METRICS_AVAILABLE: "no metrics",
    ConditionType.READY: "not ready",
}
"""State of a pool by a condition's reason, else by the type of a condition that is False."""


@asks
def fleet(
    *,
    options: Options,
    match: Match = None,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="Print the figures for programs.")] = None,
) -> None:
    """Show all pools at a glance: replicas, headroom, GPUs and dollars by model, and which pools are in trouble.

    It reads the operators' own metrics in Prometheus. Clusters that share a Prometheus are told apart by their label
    `cluster`. Headroom is what the ready replicas could serve in addition before the SLO breaks. A figure that is
    unknown of one pool is unknown of the sum. Pools in trouble wait for GPUs, are at max, or have an SLO or a deadline
    at risk or missed. Each is listed with how long this has lasted.

    Example: `servingpool fleet`

    Example: `servingpool fleet --match cluster=eu --match namespace=chat`

    Exit codes: 0 shown, 2 wrong usage, 3 no pool has a record, 4 the cluster did not answer, 6 Prometheus did not
    answer.
    """
    labels, asked = Source(options, match).labels(), options.found().source
    try:
        found = read(asked, labels)
    except MetricsUnavailable as error:
        echo(unavailable(str(error), asked), err=True)
        raise typer.Exit(NO_RECORD) from None
    if not found["models"]:
        echo("Prometheus has no record of a ServingPool. Does it scrape the operator?", err=True)
        raise typer.Exit(3)
    if output is not None:
        printed(found, output)
        return
    for title, rows in found.items():
        if rows:
            echo(f"{'' if title == 'models' else chr(10)}{title}")
            table([tuple(rows[0]), *(tuple(map(_cell, row.values())) for row in rows)])


def _cell(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else "?" if value is None else str(value) or "-"


def read(config: BackendConfig, labels: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Models, budgets and pools in trouble, as the page and `-o json` show them. Raises MetricsUnavailable."""
    models: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    budgets: dict[tuple[str, ...], dict[str, float | None]] = defaultdict(lambda: dict.fromkeys(BUDGET))
    trouble = []
    for (cluster, (namespace, pool)), record in sorted(fleet_record(config, labels, ASKED).items()):
        for figure, metric in BUDGET.items():
            for point in record.get(metric, ()):
                mine = budgets[cluster, point.labels["budget"]]
                mine[figure] = point.value + ((mine["held"] or 0.0) if figure == "held" else 0.0)
        for info in record.get(Metric.INFO, ())[:1]:
            models[cluster, namespace, info.labels["model"]].append(record)
        at = {"cluster": cluster, "pool": f"{namespace}/{pool}"}
        trouble += [{**at, "state": state, "why": why, "for": since} for state, why, since in _trouble(record)]
    return {
        "models": [_model(place, found) for place, found in models.items()],
        "budgets": [{"cluster": place[0], "budget": place[1], **found} for place, found in budgets.items()],
        "trouble": trouble,
    }


def _model(place: tuple[str, ...], records: list[Record]) -> dict[str, Any]:
    """A line on the pools of a model in a namespace."""
    known = {name: [one(record, metric) for record in records] for name, metric in SUMS.items()}
    known["headroomTokensPerSecond"] = [_headroom(record) for record in records]
    sums = {name: None if None in each else sum(filter(None, each), 0.0) for name, each in known.items()}
    return {**dict(zip(("cluster", "namespace", "model"), place, strict=True)), "pools": len(records), **sums}


def _headroom(record: Record) -> float | None:
    """Output tokens per second that the ready replicas could serve in addition; None where it is not known."""
    ready, output, full, load, safe = (one(record, metric) for metric in ROOM)
    if load is None or safe is None:
        return None
    if load and output:  # at the present lengths of requests
        return output / load * (safe - load)
    return None if full is None or ready is None else full * ready * safe


def _trouble(record: Record) -> Iterator[tuple[str, str, str | None]]:
    """What a pool is in, why, and for how long."""
    since = {point.labels["type"]: point.value for point in record.get(Metric.CONDITION_SINCE, ())}
    for type_, status, reason in (point.labels.values() for point in record.get(Metric.CONDITION, ())):
        state = STATES.get(reason) or (STATES.get(type_) if status == Truth.FALSE else None)
        if state is not None:
            yield state, reason, brief(max(0, round(time.time() - since[type_]))) if type_ in since else None
    met, objective = one(record, Metric.RECENT_ATTAINMENT), one(record, Metric.OBJECTIVE)
    if met is not None and objective is not None and met < objective and ConditionType.SLO_MET not in since:
        yield "SLO at risk", f"{met:.1%} of {objective:.1%}", "5m"
