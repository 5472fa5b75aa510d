"""What the pool said of its SLO beside what its clients saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servingpool.decision.figures import slo_met
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.policies import Answer, Wrapped
from servingpool_simulation.run import Result
from servingpool_simulation.score import Outcomes
from servingpool_simulation.tables import Floats

HOUR, RECENT, MINUTE = 3_600.0, 300.0, 60.0
FAR_BELOW = 0.05
"""Share of requests that clients are below the target, beyond which a True SLOMet is wrong."""


@dataclass(slots=True)
class Watched(Wrapped):
    """Our own core, with the attainment that each decision stated, and whether it said that the SLO is met."""

    stated: list[float | None] = field(default_factory=list)
    """None where it was unknown."""
    met: list[bool] = field(default_factory=list)

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """As ours."""
        answer = self.policy.decide(observation, pool, now)
        assert answer.decision is not None
        stated = answer.decision.figures.attainment
        self.stated.append(None if isinstance(stated, Unknown) else float(stated))
        self.met.append(bool(slo_met(answer.decision.figures, pool.slo.attainment)))
        return answer


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """When it was settled for each request whether it meets the SLO, in order of that time."""

    at: Floats
    met: Floats
    """Running count of those that met it, from 0."""

    @classmethod
    def of(cls, outcomes: Outcomes, slo: Slo) -> Clients:
        """A request without its first token is a miss from its TTFT bound on; the others are settled at their end."""
        bound = slo.time_to_first_token or np.inf
        in_time = outcomes.ttft <= bound  # False for NaN: no first token
        at = np.where(in_time | outcomes.rejected, outcomes.ended, outcomes.arrival + bound)
        order = np.argsort(at)
        order = order[: int(np.isfinite(at).sum())]  # NaN and +Inf sort last: still open at the end
        return cls(at[order], np.concatenate(([0.0], np.cumsum(outcomes.met[order]))))

    def share(self, moments: Sequence[float], window: float) -> Floats:
        """Share that met the SLO of those settled in the `window` seconds before each moment; NaN without any."""
        requests, met = self.counts(moments, window)
        with np.errstate(invalid="ignore"):
            return np.asarray(met / requests)

    def counts(self, moments: Sequence[float], window: float) -> tuple[Floats, Floats]:
        """(requests, those that met the SLO) settled in the `window` seconds before each moment."""
        now = np.asarray(moments)
        begin, end = (np.searchsorted(self.at, at, side="right") for at in (now - window, now))
        return (end - begin).astype(np.float64), self.met[end] - self.met[begin]


def compare(result: Result, stated: Sequence[float | None], met: Sequence[bool]) -> dict[str, Any]:
    """Figures of one run, a statement for each decision: shares of requests, and seconds."""
    moments, target = result.series.time, result.slo.attainment
    clients = Clients.of(result.outcomes, result.slo)
    hour, recent = clients.share(moments, HOUR), clients.share(moments, RECENT)
    said = np.array([np.nan if value is None else value for value in stated])
    gaps = said - hour
    known = np.flatnonzero(np.isfinite(gaps))
    wrong = np.array(met) & (recent < target - FAR_BELOW)
    every = moments[1] - moments[0] if len(moments) > 1 else 0.0
    return {
        "stated": stated,
        "clients_hour": _numbers(hour),
        "clients_recent": _numbers(recent),
        "gap_end": float(gaps[known[-1]]) if len(known) else None,
        "gap_mean": float(np.abs(gaps[known]).mean()) if len(known) else None,
        "gap_most": float(np.abs(gaps[known]).max()) if len(known) else None,
        "falsely_met": longest(wrong.tolist()) * every,
        "worst": _worst(result, clients),
    }


def longest(flags: Sequence[bool]) -> int:
    """Length of the longest run of True."""
    most = length = 0
    for flag in flags:
        length = length + 1 if flag else 0
        most = max(most, length)
    return most


def first_order(result: Result, step_at: float) -> float | None:
    """Seconds from the first growth of the queue after `step_at` to the first decision that adds a replica, or None.

    The queue grows with the arrival of the first request that waits for more than a quarter of the TTFT bound.
    """
    patience = 0.25 * (result.slo.time_to_first_token or 1.0)
    outcomes, series = result.outcomes, result.series
    waited = outcomes.arrival[(outcomes.arrival >= step_at) & ~(outcomes.ttft <= patience)]
    if not len(waited):
        return None
    begin = float(waited[0])
    for index in range(1, len(series.time)):
        if series.time[index] >= begin and series.requested[index] > series.requested[index - 1]:
            return series.time[index] - begin
    return None


def _worst(result: Result, clients: Clients) -> dict[str, Any]:
    """The decision behind the minute in which most requests missed the SLO."""
    series = result.series
    requests, met = clients.counts(series.time, MINUTE)
    index = int(np.argmax(requests - met))
    return {
        "at": series.time[index],
        "requests": int(requests[index]),
        "missed": int(requests[index] - met[index]),
        "ready": series.ready[index],
        "requested": series.requested[index],
        "queue": series.queue[index],
        "reason": series.reason[index],
    }


def _numbers(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values.tolist()]
