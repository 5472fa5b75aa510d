"""`servingpool compare`: the operator's own recommendation beside the requested replicas."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from servingpool.adapters.prometheus.own_record import OwnRecord, Record, one
from servingpool.api.conditions import ConditionType, Truth
from servingpool.catalogue.metrics import Metric
from servingpool.cli.kubectl import Namespace, Output, PoolName, named, printed, same_place
from servingpool.cli.output import echo, table
from servingpool.cli.own_record import ENDED, SINCE, Asked, Match, Source, no_record
from servingpool.cli.source import Options, asks
from servingpool.cli.usage import span
from servingpool.decision.params import HOUR
from servingpool.recording.verdict import History, band

STEP, MOST_STEPS = 15.0, 40_000
"""Seconds between two looks, the operator's interval; and the most looks, for which the step grows."""


@asks
def compare(
    pool: PoolName,
    *,
    namespace: Namespace = None,
    since: Annotated[str, typer.Option(help="How far to look back, such as 12h or 3d.")] = "1d",
    options: Options,
    match: Match = None,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="Print the figures for programs.")] = None,
) -> None:
    """Compare the requested replicas with those that the operator recommended: GPU-hours, dollars, attainment.

    For a pool in mode Recommend beside an HPA or a ScaledObject. It reads the operator's own metrics in Prometheus.
    The attainment of the requested replicas is observed; that of the recommendation is what the operator expected.

    Example: `servingpool compare chat --since 3d`

    There is no verdict, and a band in place of the expected attainment, on a record under 2 hours or with gaps over
    10%, while the operator calibrates, and where its expectation is more than 3 points off what was observed.

    Exit codes: 0 compared, 2 wrong usage, 3 no recommendation in that time or a pool of several targets, 4 the
    kubeconfig cannot be read, 6 Prometheus did not answer or several pools have this name in it.
    """
    seconds = span("--since", since, SINCE)
    key, step = named(pool, namespace, options.kubeconfig, options.context), max(STEP, seconds / MOST_STEPS)
    shown = "/".join(key)
    explain = ["servingpool", "explain", key[1], "-n", key[0], *same_place(options.kubeconfig, options.context)]

    def fleets(asked: Asked) -> Comparison | str:
        try:
            found = compare_fleets(asked.record, asked.now - seconds, asked.now, step)
        except SeveralTargets:
            return (
                f"{shown} has several targets, and compare takes pools of one. Metrics servingpool_target_* have each."
            )
        goes_on = asked.goes_on()
        if found is None:
            if not goes_on:
                return no_record(key, f"in the last {since}")
            return f"No recommendation for {shown} in the last {since}. `{shlex.join(explain)}` says what is missing."
        if not goes_on:
            echo(ENDED, err=True)
        return found

    found = Source(options, match).ask(key, fleets)
    if isinstance(found, str):
        echo(found, err=True)
        raise typer.Exit(3)
    if output is not None:
        printed(found.to_dict(), output)
    else:
        _show(shown, since, found)


def _show(pool: str, since: str, found: Comparison) -> None:
    stood, wanted = found.stood, found.recommended
    echo(f"ServingPool {pool}, last {since}: both fleets known for {found.seconds / found.asked:.0%} of the time\n")
    if found.doubts:
        echo(f"No verdict yet. {' '.join(found.doubts)}\n")
    rows: list[tuple[str, ...]] = [("", "requested", "recommended", "difference")]
    rows.append(_amounts("replica-hours", stood.replica_hours, wanted.replica_hours))
    rows.append(_amounts("GPU-hours", stood.gpu_hours, wanted.gpu_hours))
    rows.append(_amounts("dollars", stood.dollars, wanted.dollars))
    if stood.attainment is None or wanted.attainment is None:
        rows.append(("attainment", "unknown", "unknown", ""))
    elif found.doubts:
        expected = band(wanted.attainment, found.apart)
        rows.append(("attainment", f"{stood.attainment:.1%}", f"{expected} expected", ""))
    else:
        points = 100.0 * (wanted.attainment - stood.attainment)
        rows.append(
            ("attainment", f"{stood.attainment:.1%}", f"{wanted.attainment:.1%} expected", f"{points:+.1f} points")
        )
    table(rows)
    objective = "" if found.objective is None else f" The objective is {found.objective:.1%}."
    echo(f"\nAttainment covers {found.judged:.0%} of the requests.{objective}")
    if stood.dollars is None:
        echo("Dollars need targets[0].costPerReplicaHour in the pool.")
    if stood.gpu_hours is None:
        echo("GPU-hours need GPU limits in the pod template, or targets[0].gpusPerReplica in the pool.")


def _amounts(name: str, stood: float | None, wanted: float | None) -> tuple[str, ...]:
    if stood is None or wanted is None:
        return name, "unknown", "unknown", ""
    share = f" ({wanted / stood - 1.0:+.0%})" if stood > 0.0 else ""
    return name, f"{stood:,.1f}", f"{wanted:,.1f}", f"{wanted - stood:+,.1f}{share}"


FLEETS = Metric.REQUESTED_REPLICAS, Metric.DESIRED_REPLICAS, Metric.NEEDED_REPLICAS, Metric.TARGET_DESIRED
SERVED = Metric.ARRIVAL_RATE, Metric.RECENT_ATTAINMENT, Metric.EXPECTED_MISSES, Metric.CONDITION
ASKED = (*FLEETS, *SERVED, Metric.GPUS, Metric.REPLICA_COST)
TELLING = 200.0
"""Requests from which on what was expected is held against what was observed."""


class SeveralTargets(Exception):
    """The pool had several targets: an hour of a replica is another amount of each."""


@dataclass(slots=True)
class Side:
    """Figures of one of the two fleets; None where the record does not have a figure."""

    replica_hours: float = 0.0
    gpu_hours: float | None = 0.0
    dollars: float | None = 0.0
    attainment: float | None = None
    """Share of requests that met the SLO: observed of the requested replicas, expected of the recommended replicas."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both fleets over the time in which both are known."""

    seconds: float
    """Seconds in which both are known."""
    asked: float
    """Seconds of the asked time."""
    judged: float
    """Share of the requests of which both attainments are known."""
    objective: float | None
    stood: Side
    recommended: Side
    apart: float | None
    """Share of requests by which the expectation was off while both fleets were the same; None without such a time."""
    doubts: tuple[str, ...]
    """Why this is no verdict; empty where it is one."""

    def to_dict(self) -> dict[str, Any]:
        """Fields for JSON, by the names of the fields: camelCase would be a second vocabulary."""
        return asdict(self)


def compare_fleets(source: OwnRecord, start: float, end: float, step: float) -> Comparison | None:
    """Both fleets from `start` to `end`, Unix seconds, at every `step` seconds; None where neither is known.

    Dollars and GPU-hours are given if they were known at every step that counts. Raises SeveralTargets, and as
    `OwnRecord.over`.
    """
    stood, recommended = Side(), Side()
    both: list[tuple[float, float, float, bool]] = []
    """Share of requests that met the SLO as expected and as observed, the requests, and whether the fleets were one."""
    seconds = requests = learning = 0.0
    first = end
    objective: float | None = None
    # Each look stands for the step before it, so the one at `start` would count beyond the time that was asked for.
    for time, record in source.over((*ASKED, Metric.OBJECTIVE), min(start + step, end), end, step):
        if Metric.TARGET_DESIRED in record:
            raise SeveralTargets
        standing, wanted = _fleets(record)
        if standing is None or wanted is None:
            continue
        seconds += step
        first = min(first, time - step)
        learning += step if _calibrates(record) else 0.0
        objective = one(record, Metric.OBJECTIVE) or objective
        gpus, price = one(record, Metric.GPUS), one(record, Metric.REPLICA_COST)
        for side, replicas in ((stood, standing), (recommended, wanted)):
            hours = replicas * step / HOUR
            side.replica_hours += hours
            side.gpu_hours = _sum(side.gpu_hours, gpus / max(standing, 1.0) * hours if gpus else None)
            side.dollars = _sum(side.dollars, None if price is None else price * hours)
        arrived = (one(record, Metric.ARRIVAL_RATE) or 0.0) * step
        requests += arrived
        met, missed = one(record, Metric.RECENT_ATTAINMENT), one(record, Metric.EXPECTED_MISSES)
        if met is not None and missed is not None:
            both.append((1.0 - missed, met, arrived, standing == wanted))
    if not seconds:
        return None
    covered = max(seconds, end - first)
    recommended.attainment, stood.attainment, judged = _attained(both)
    *alike, telling = _attained([each for each in both if each[3]])
    history = History(covered, covered - seconds, learning, *(alike if telling >= TELLING else (None, None)))
    return Comparison(
        apart=history.apart,
        doubts=tuple(history.doubts()),
        seconds=seconds,
        asked=end - start,
        judged=judged / requests if requests > 0.0 else 0.0,
        objective=objective,
        stood=stood,
        recommended=recommended,
    )


def _sum(so_far: float | None, more: float | None) -> float | None:
    return None if so_far is None or more is None else so_far + more


def _attained(both: list[tuple[float, float, float, bool]]) -> tuple[float | None, float | None, float]:
    """Attainment as expected and as observed, and of how many requests."""
    requests = sum(each[2] for each in both)
    if requests <= 0.0:
        return None, None, 0.0
    expected, observed = (sum(each[place] * each[2] for each in both) / requests for place in (0, 1))
    return expected, observed, requests


def _calibrates(record: Record) -> bool:
    """Whether the operator still learns the engine and the traffic."""
    return any(
        point.labels.get("type") == ConditionType.CALIBRATING and point.labels.get("status") == Truth.TRUE
        for point in record.get(Metric.CONDITION, ())
    )


def _fleets(record: Record) -> tuple[float | None, float | None]:
    """Replicas that were requested, and replicas that were recommended: none where the need was unknown."""
    if one(record, Metric.NEEDED_REPLICAS) is None:
        return None, None
    return one(record, Metric.REQUESTED_REPLICAS), one(record, Metric.DESIRED_REPLICAS)
