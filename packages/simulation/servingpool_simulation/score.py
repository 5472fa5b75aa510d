"""How well a run did, judged on the truth: every request that arrived, every GPU second that was paid for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.pool import Slo
from servingpool_simulation.tables import FINISHED, TURNED_AWAY, Floats, Records

QUANTILES = (50, 90, 95, 99)

SETTLING = 600.0
"""Seconds in which a pool that was never seen before is learned."""


@dataclass(frozen=True, slots=True)
class Score:
    """One run in figures. Attainment only compares with equal attainment: a policy that misses is not cheap."""

    requests: int
    """All arrivals of the scored time."""
    attained: int
    """Those that met every bound of the SLO."""
    attainment: float
    """attained / requests; 1 without any request."""
    ttft_misses: int
    """Finished, first token too late."""
    tpot_misses: int
    """Finished, tokens too slow; may also be among ttft_misses."""
    rejected: int
    unfinished: int
    """Neither finished nor rejected when the run ended, some minutes after the last arrival."""
    goodput: float
    """attained / scored second."""
    replica_hours: float
    gpu_hours: float
    """From order to release: loading and draining count."""
    average_replicas: float
    peak_replicas: int
    """Most that were asked for."""
    scale_changes_per_hour: float
    flapping: float
    """Share of the changes that went down and were followed by one that went up within two cold starts."""
    settled_attainment: float
    """As attainment, of the requests that arrived after the first SETTLING seconds."""
    tokens_per_gpu_second: float
    """Prompt and output tokens of finished requests."""
    cost: float | None
    """In the currency of the price; None without a price."""
    ttft: dict[str, float | None]
    """Seconds at p50, p90, p95, p99 of the requests with a first token; None without any."""
    tpot: dict[str, float | None]
    """Seconds, of the finished requests with two tokens or more."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What became of each request: arrays, one place a request."""

    arrival: Floats
    ttft: Floats
    """Seconds from arrival; NaN without a first token."""
    tpot: Floats
    """(E2E - TTFT) / (output tokens - 1), seconds; 0 for a single token, NaN for an unfinished request."""
    ended: Floats
    """When it finished or was turned away; NaN for neither."""
    tokens: NDArray[np.int64]
    """Prompt and output tokens of a finished request, 0 of any other."""
    rejected: NDArray[np.bool_]
    late: NDArray[np.bool_]
    """Finished and over the TTFT bound."""
    slow: NDArray[np.bool_]
    """Finished and over the TPOT bound."""
    met: NDArray[np.bool_]
    """Finished within every bound."""


def outcomes(requests: Records, slo: Slo, begin: float, end: float) -> Outcomes:
    """Outcomes of the requests that arrived in [begin, end) seconds."""
    part = slice(*(int(i) for i in np.searchsorted(requests.arrival, (begin, np.nextafter(end, np.inf)))))
    q = requests[part]
    finished = q.status == FINISHED
    ttft = q.first - q.arrival
    decode = np.maximum(q.output - 1, 1)
    tpot = np.where(finished, np.where(q.output > 1, (q.finished - q.first) / decode, 0.0), np.nan)
    late = finished & (ttft > (slo.time_to_first_token or np.inf))
    slow = finished & (tpot > (slo.time_per_output_token or np.inf))
    # Copies, not views: a view would keep the whole table of requests alive with the result.
    return Outcomes(
        arrival=q.arrival.copy(),
        ttft=ttft,
        tpot=tpot,
        ended=q.finished.copy(),
        tokens=np.where(finished, q.prompt + q.output, 0),
        rejected=q.status == TURNED_AWAY,
        late=late,
        slow=slow,
        met=finished & ~late & ~slow,
    )


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run used."""

    seconds: float
    """Scored time."""
    replica_seconds: float
    peak_replicas: int
    scale_changes: int
    flaps: int
    """Changes down that were followed by one up within two cold starts."""
    begin: float
    """Of the scored time, in seconds of the trace."""
    gpus_per_replica: float
    price: float | None
    """Of a GPU-hour."""


def score(of: Outcomes, spent: Spending) -> Score:
    """The figures of one run."""
    requests, attained = len(of.arrival), int(of.met.sum())
    gpu_hours = spent.replica_seconds * spent.gpus_per_replica / 3600
    decoded = of.tpot[of.tpot > 0]
    return Score(
        requests=requests,
        attained=attained,
        attainment=_mean(of.met),
        ttft_misses=int(of.late.sum()),
        tpot_misses=int(of.slow.sum()),
        rejected=int(of.rejected.sum()),
        unfinished=int(np.isnan(of.ended).sum()),
        goodput=attained / spent.seconds,
        replica_hours=spent.replica_seconds / 3600,
        gpu_hours=gpu_hours,
        average_replicas=spent.replica_seconds / spent.seconds,
        peak_replicas=spent.peak_replicas,
        scale_changes_per_hour=spent.scale_changes * 3600 / spent.seconds,
        flapping=spent.flaps / spent.scale_changes if spent.scale_changes else 0.0,
        settled_attainment=_mean(of.met[of.arrival >= spent.begin + SETTLING]),
        tokens_per_gpu_second=float(of.tokens.sum()) / (gpu_hours * 3600) if gpu_hours else 0.0,
        cost=None if spent.price is None else gpu_hours * spent.price,
        ttft=_quantiles(of.ttft[~np.isnan(of.ttft)]),
        tpot=_quantiles(decoded),
    )


def _mean(met: NDArray[np.bool_]) -> float:
    return float(met.mean()) if len(met) else 1.0


def _quantiles(values: Floats) -> dict[str, float | None]:
    if len(values) == 0:
        return {f"p{q}": None for q in QUANTILES}
    return {f"p{q}": float(value) for q, value in zip(QUANTILES, np.percentile(values, QUANTILES), strict=True)}
