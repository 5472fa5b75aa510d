"""Engines that export nothing, such as Ollama: their gateway's counts replace their metrics.

Figures of one replica do not exist. Each ready replica is given its even share of what the gateway has counted since
its last scrape: the sums, from which demand, speed and lateness follow, are right, and the share is an estimate.
Requests in flight beyond those that the ready replicas run at once wait. They are the queue, at the gateway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from servingpool.decision.increase import Counts, follow
from servingpool.decision.observation import (
    NOT_EXPOSED,
    GatewayMetrics,
    Histogram,
    Observation,
    Reading,
    Replica,
    ReplicaMetrics,
    Unknown,
)

LEAST_READY = 0.5
"""Replicas that counts are divided by at least: the first replica's first second is no load of a hundred."""
NO_LIMIT = Unknown("the pod template does not say how many requests a replica runs at a time, and the engine no queue")
NO_FLIGHT = Unknown("the gateway does not tell how many requests are in flight")

ARRIVALS, GENERATED, PROMPTS, BETWEEN_SUM, BETWEEN_COUNT, TTFT_SUM, TTFT_COUNT, BUCKETS = range(8)


class Shares(NamedTuple):
    """Counts of the gateway at its last scrape, and the part that each replica was given so far."""

    counted: Counts
    """Counts by the places above, and a count for each bound of the TTFT histogram; the bounds are its layout."""
    begun: float
    """Requests that have come and not waited, at most so far."""
    each: tuple[float, ...]
    """Counts of one replica, in the places of `counted`."""
    each_begun: float


def with_shares(observation: Observation, limit: float, before: Shares | None) -> tuple[Observation, Shares | None]:
    """The observation with a sample for each ready replica, and with the gateway's queue, where engines are metered.

    `limit`: requests that one replica runs at a time at most. Where the gateway tells nothing now, nor is there any
    sample, and what it counts meanwhile is given with the next one.
    """
    gateway, ready = observation.gateway, observation.ready
    if not observation.metered:
        return observation, None
    if isinstance(observation.metrics, Unknown) or isinstance(gateway.arrivals, Unknown) or gateway.scraped_at is None:
        return observation, before
    room = limit * len(ready) if ready else 0.0
    waiting = _waiting(gateway, room)
    shares = _after(gateway, gateway.arrivals, waiting, ready, before)
    flight = gateway.in_flight
    running = flight if isinstance(flight, Unknown) else min(flight, room) / max(1, len(ready))
    samples = tuple(_sample(one.name, gateway, shares, running) for one in ready)
    return replace(observation, metrics=samples, gateway=replace(gateway, queue=waiting)), shares


def _waiting(gateway: GatewayMetrics, room: float) -> Reading:
    """Requests that no replica runs: what the gateway holds itself, and what it has sent beyond their `room`."""
    if isinstance(gateway.queue, Unknown) and gateway.queue is not NOT_EXPOSED:
        return gateway.queue
    if isinstance(gateway.in_flight, Unknown):
        return NO_FLIGHT if gateway.in_flight is NOT_EXPOSED else gateway.in_flight
    if math.isinf(room):
        return NO_LIMIT
    held = 0.0 if isinstance(gateway.queue, Unknown) else gateway.queue
    return held + max(0.0, gateway.in_flight - room)


def _after(
    gateway: GatewayMetrics, arrivals: float, waiting: Reading, ready: Sequence[Replica], before: Shares | None
) -> Shares:
    last = None if before is None else before.counted
    counted, rise = follow(last, _counts(gateway, arrivals, () if last is None else last.layout), first=0.0)
    # A request in flight has come, and is counted when it ends.
    come = arrivals if isinstance(gateway.in_flight, Unknown) else arrivals + gateway.in_flight
    begun = come if isinstance(waiting, Unknown) else come - waiting
    if before is None or rise is None:
        begins = Shares(counted, begun, (0.0,) * len(counted.figures), 0.0)
        return before if before is not None and counted is before.counted else begins
    base = 0.0 if rise.restarted else before.begun
    begun = max(begun, base)
    each, each_begun = before.each, before.each_begun
    served = sum(1.0 if one.ready_for is None else min(1.0, max(0.0, one.ready_for) / rise.seconds) for one in ready)
    if ready:
        replicas = max(served, LEAST_READY)  # that served, on average
        each = tuple(held + more / replicas for held, more in zip(each, rise.figures, strict=True))
        each_begun += (begun - base) / replicas
    return Shares(counted, begun, each, each_begun)


def _counts(gateway: GatewayMetrics, arrivals: float, bounds: tuple[float, ...]) -> Counts:
    """Counts of the gateway; NaN for a count that it does not tell. `bounds`: of the TTFT histogram before."""
    between, ttft = gateway.inter_token_latency, gateway.time_to_first_token
    between = _not_told(()) if isinstance(between, Unknown) else between
    ttft = _not_told(bounds) if isinstance(ttft, Unknown) else ttft
    tokens = map(float, (gateway.generation_tokens, gateway.prompt_tokens))
    figures = (arrivals, *tokens, between.total, between.count, ttft.total, ttft.count, *ttft.counts)
    return Counts(gateway.scraped_at or 0.0, figures, ttft.bounds)


def _not_told(bounds: tuple[float, ...]) -> Histogram:
    return Histogram(bounds, (math.nan,) * len(bounds), math.nan, math.nan)


def _sample(name: str, gateway: GatewayMetrics, shares: Shares, running: Reading) -> ReplicaMetrics:
    """Sample of one replica. Figures that the gateway ought to tell and does not stay unknown."""
    each = shares.each
    served = not isinstance(gateway.generation_tokens, Unknown)

    def shown(reading: Reading | Histogram, share: Reading | Histogram) -> Reading | Histogram:
        if not isinstance(reading, Unknown):
            return share
        # Before the first answer no series is there, and nothing was counted.
        return share if reading is NOT_EXPOSED and not served else reading

    between = Histogram((), (), each[BETWEEN_SUM], each[BETWEEN_COUNT])
    first = Histogram(shares.counted.layout, each[BUCKETS:], each[TTFT_SUM], each[TTFT_COUNT])
    figures = {
        "generation_tokens": shown(gateway.generation_tokens, each[GENERATED]),
        "prompt_tokens": shown(gateway.prompt_tokens, each[PROMPTS]),
        "time_to_first_token": shown(gateway.time_to_first_token, first),
        "inter_token_latency": shown(gateway.inter_token_latency, between),
        "time_per_output_token": shown(gateway.inter_token_latency, between),
    }
    return ReplicaMetrics(name, shares.counted.at, running=running, begun=shares.each_begun, **figures)  # type: ignore[arg-type]
