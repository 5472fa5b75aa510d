"""What the recommended replicas would have cost beside those that stood, from the operator's own record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from servingpool.adapters.prometheus.own_record import OwnRecord, Record, one
from servingpool.catalogue.metrics import Metric

ASKED = (
    Metric.REQUESTED_REPLICAS,
    Metric.DESIRED_REPLICAS,
    Metric.NEEDED_REPLICAS,
    Metric.GPUS,
    Metric.REPLICA_COST,
    Metric.ARRIVAL_RATE,
    Metric.RECENT_ATTAINMENT,
    Metric.EXPECTED_MISSES,
    Metric.TARGET_DESIRED,
)
HOUR = 3600.0


class SeveralTargets(Exception):
    """The pool had several targets: an hour of a replica is another amount of each."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two fleets; a figure is None where the record does not have it."""

    replica_hours: float
    gpu_hours: float | None
    dollars: float | None
    attainment: float | None
    """Share of requests that met the SLO: observed of the fleet that stood, expected of the one recommended."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both fleets over the time in which both are known."""

    seconds: float
    """In which both are known."""
    asked: float
    """Seconds that were asked for."""
    judged: float
    """Share of the requests of which both attainments are known."""
    objective: float | None
    stood: Side
    recommended: Side

    def to_dict(self) -> dict[str, Any]:
        """For JSON: camelCase would be a second vocabulary, so the names are those of the fields."""
        return asdict(self)


@dataclass(slots=True)
class _Sums:
    """One fleet, summed over the steps."""

    replicas: float = 0.0
    gpus: float = 0.0
    dollars: float = 0.0
    met: float = 0.0

    def side(self, *, gpus: bool, dollars: bool, requests: float) -> Side:
        return Side(
            self.replicas / HOUR,
            self.gpus / HOUR if gpus else None,
            self.dollars / HOUR if dollars else None,
            self.met / requests if requests > 0.0 else None,
        )


def compare_fleets(source: OwnRecord, start: float, end: float, step: float) -> Comparison | None:
    """Both fleets from `start` to `end`, Unix seconds, at every `step` seconds; None where neither is known.

    Dollars and GPU-hours are given if they were known at every step that counts. Raises SeveralTargets, and as
    `OwnRecord.over`.
    """
    stood, recommended = _Sums(), _Sums()
    seconds = requests = judged = 0.0
    gpus_known = dollars_known = True
    objective: float | None = None
    # Each look stands for the step before it, so the one at `start` would count beyond the time that was asked for.
    for _, record in source.over((*ASKED, Metric.OBJECTIVE), min(start + step, end), end, step):
        if Metric.TARGET_DESIRED in record:
            raise SeveralTargets
        standing, wanted = _fleets(record)
        if standing is None or wanted is None:
            continue
        seconds += step
        objective = one(record, Metric.OBJECTIVE) or objective
        gpus, price = one(record, Metric.GPUS), one(record, Metric.REPLICA_COST)
        gpus_known = gpus_known and bool(gpus)
        dollars_known = dollars_known and price is not None
        for sums, replicas in ((stood, standing), (recommended, wanted)):
            sums.replicas += replicas * step
            sums.gpus += (gpus or 0.0) / max(standing, 1.0) * replicas * step
            sums.dollars += (price or 0.0) * replicas * step
        arrived = (one(record, Metric.ARRIVAL_RATE) or 0.0) * step
        requests += arrived
        met, missed = one(record, Metric.RECENT_ATTAINMENT), one(record, Metric.EXPECTED_MISSES)
        if met is not None and missed is not None:
            judged += arrived
            stood.met += met * arrived
            recommended.met += (1.0 - missed) * arrived
    if not seconds:
        return None
    return Comparison(
        seconds=seconds,
        asked=end - start,
        judged=judged / requests if requests > 0.0 else 0.0,
        objective=objective,
        stood=stood.side(gpus=gpus_known, dollars=dollars_known, requests=judged),
        recommended=recommended.side(gpus=gpus_known, dollars=dollars_known, requests=judged),
    )


def _fleets(record: Record) -> tuple[float | None, float | None]:
    """Replicas that stood and that were recommended. Where the need was unknown nothing was recommended."""
    if one(record, Metric.NEEDED_REPLICAS) is None:
        return None, None
    return one(record, Metric.REQUESTED_REPLICAS), one(record, Metric.DESIRED_REPLICAS)
