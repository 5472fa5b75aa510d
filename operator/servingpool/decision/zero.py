"""Demand at the gateway for a pool that may go to zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from servingpool.decision.increase import Counts, follow
from servingpool.decision.observation import Absent, Observation, Reading, Unknown
from servingpool.decision.params import LONGEST_GAP
from servingpool.decision.pool import Pool

NEVER_ZERO = Unknown("min is at least 1")
LATE_RETURN = 600.0
"""Seconds after the first replica turned Ready. Series that come back later do not come back with the replica: the
gateway was away."""


@dataclass(frozen=True, slots=True)
class Vanished:
    """The gateway's series was gone while the fleet was at 0, so the fleet stays above."""

    at: float
    """Unix time in seconds since when the series was gone."""
    gateway: str
    """Name of the gateway: a series of another gateway is tried anew."""


@dataclass(frozen=True, slots=True)
class GatewayDemand:
    """Demand that the gateway showed so far, of a pool that may go to zero."""

    since: float
    """Unix time in seconds of the first observation."""
    gateway: str
    """Name of the gateway: demand at another gateway proves nothing."""
    request_at: float
    """Unix time in seconds of the last observation at which a request came, waited or ran, or may have."""
    known_at: float | None = None
    """Unix time in seconds of the last observation at which the gateway told; None before the first."""
    counted: Counts | None = None
    """`GatewayMetrics.at_zero` when it was last known."""
    arrivals: Counts | None = None
    """`GatewayMetrics.arrivals` when they were last known."""
    zero_at: float | None = None
    """Unix time in seconds since when the pool is at 0 on purpose; None while a replica serves."""
    asked_at: float | None = None
    """Unix time in seconds of the first request since `zero_at`; None before it."""
    asked: float = 0.0
    """Requests, or tries of them, since `zero_at`."""
    arrived: float = 0.0
    """Requests since `zero_at`, where the gateway counts requests that meet no engine."""
    held: float = 0.0
    """Requests that the gateway holds, as far as it tells."""
    rested: bool = False
    """Whether no request was seen since 0 replicas were requested, even if some serve again."""
    unknown: str | None = None
    """Why the gateway did not tell at the last observation."""

    def unknown_for(self, now: float) -> float:
        """Seconds for which demand has not been known; 0 where it is."""
        if self.unknown is None:
            return 0.0
        return now - (self.since if self.known_at is None else self.known_at)

    def idle_for(self, now: float) -> Reading:
        """Seconds without a request."""
        return now - self.request_at if self.unknown is None else Unknown(self.unknown)


class Engines(NamedTuple):
    """Activity of the ready replicas since the last observation."""

    unknown: str | None
    """Why some replicas' activity is not known; None where all is known."""
    busy: bool
    """Whether a request began, waited or ran."""


def updated(
    demand: GatewayDemand | None, observation: Observation, engines: Engines, pool: Pool, now: float
) -> GatewayDemand:
    """The demand with one observation, of a pool that may go to zero."""
    if demand is None or demand.gateway != pool.gateway:
        demand = GatewayDemand(since=now, gateway=pool.gateway, request_at=now)
    told, arrivals, queue = observation.gateway.at_zero, observation.gateway.arrivals, observation.gateway.queue
    counted, came = _followed(demand.counted, told, now)
    all_arrivals, arrived = _followed(demand.arrivals, arrivals, now)
    held = 0.0 if isinstance(queue, Unknown) else queue
    serves = observation.requested > 0 and bool(observation.ready)
    unknown = told.reason if isinstance(told, Unknown) else engines.unknown if serves else None
    # Within a long gap a request may have come and gone.
    gap = now - (demand.since if demand.known_at is None else demand.known_at) > LONGEST_GAP
    awaited = not serves and observation.requested > 0
    request = came > 0.0 or held > 0.0 or (serves and engines.busy)
    request_at = now if request or gap or awaited else demand.request_at
    zero_at = None if serves else demand.zero_at or (now if observation.requested == 0 else None)
    asked, arrived_since, asked_at = 0.0, 0.0, None
    # Where nothing was ordered for long, as in Paused, whoever asked waits no more.
    if zero_at is not None and (observation.requested > 0 or now - request_at < (pool.idle_after or 0.0)):
        asked, arrived_since = demand.asked + came, demand.arrived + arrived
        asked_at = demand.asked_at or (now if came > 0.0 or held > 0.0 else None)
    return replace(
        demand,
        request_at=request_at,
        known_at=now if unknown is None else demand.known_at,
        counted=counted,
        arrivals=all_arrivals,
        zero_at=zero_at,
        asked_at=asked_at,
        asked=asked,
        arrived=arrived_since,
        held=held,
        rested=(demand.rested or observation.requested == 0) and not request,
        unknown=unknown,
    )


def _followed(before: Counts | None, count: Reading, now: float) -> tuple[Counts | None, float]:
    """The gateway's count at the last reading that told it, and the requests that came since the reading before."""
    if isinstance(count, Unknown):
        return before, 0.0
    latest, rise = follow(before, Counts(now, (count,)))
    return latest, 0.0 if rise is None else rise.figures[0]


def vanished(
    before: Vanished | None,
    was: GatewayDemand | None,
    demand: GatewayDemand,
    observation: Observation,
    pool: Pool,
    now: float,
) -> Vanished | None:
    """Whether the gateway's series goes with the last replica; `was` is the demand one observation ago.

    It is believed once the series was gone for long at 0 replicas, and not of a gateway that was away: its series come
    back before a replica is Ready, or long after.
    """
    if before is not None and before.gateway != pool.gateway:
        return None
    gone = isinstance(observation.gateway.at_zero, Absent) and observation.requested == 0
    if before is None and gone and demand.unknown_for(now) > LONGEST_GAP:
        return Vanished(now - demand.unknown_for(now), pool.gateway)
    returned = was is not None and was.unknown is not None and demand.unknown is None
    if before is not None and returned:
        ready = [one.ready_for or 0.0 for one in observation.ready]
        return before if ready and max(ready) < LATE_RETURN else None
    return before
