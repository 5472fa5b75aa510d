"""One observation of a pool: with spec, memory and time the only input of a decision.

As Prometheus and the cluster tell it: cumulative counters and histogram buckets (never rates), gauges, and the replicas
with their ages. Nothing is averaged, filled or guessed on the way in, but what an engine does not tell and its gateway
counts (`adapters/gateways`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from servingpool.decision.pool import ONLY


@dataclass(frozen=True, slots=True)
class Unknown:
    """A figure that could not be read: a missing metric is never zero.

    `reason` says why in words a person can act on, for example "no sample since 14:03". It has no truth value:
    `if figure:` raises, so that it cannot be mistaken for zero.
    """

    reason: str

    def __bool__(self) -> bool:
        raise TypeError(f"an unknown figure has no truth value ({self.reason}); use isinstance")

    def __float__(self) -> float:
        """NaN, for tables of figures."""
        return math.nan


class Absent(Unknown):
    """Prometheus answered, and has no such series."""

    __slots__ = ()


EPSILON = 1e-9
"""Relative difference of two figures, or an amount, that is nothing: far above the error of a float."""

Reading = float | Unknown
"""A figure, or the reason why there is none."""

TimeLeft = tuple[tuple[float, float], ...] | Unknown
"""Requests that may be due by then, by seconds from now, ascending; of 0 seconds or less those that are late."""

NOT_EXPOSED = Unknown("the engine does not expose it")
NOT_READ = Unknown("no metrics were read")


class Bucket(NamedTuple):
    """Ends, in seconds, of the histogram bucket that holds a bound; equal where the bound is a bucket's end."""

    lower: float = 0.0
    upper: float = math.inf


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative Prometheus histogram of seconds.

    `counts[i]` observations were at most `bounds[i]` seconds; bounds ascend. Buckets may be
    left out (the operator asks Prometheus only for those around the SLO bound), so `count`
    (the `_count` series, equal to the `+Inf` bucket) stands on its own and `+Inf` is not in `bounds`.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float
    """Sum of all observed values, in seconds (the `_sum` series)."""
    count: float

    def around(self, bound: float | None) -> tuple[tuple[float, float, float], Bucket]:
        """Count in all, at most the lower and at most the upper end of the bucket that holds `bound`; and that bucket.

        `bound` in seconds; without one, or without buckets, the bucket is all that there is.
        """
        lower, upper, bucket = bucket_with(bound, self.bounds)
        cumulative = (0.0, *self.counts, self.count)
        return (self.count, cumulative[lower], cumulative[upper]), bucket


@lru_cache(maxsize=4096)
def bucket_with(bound: float | None, bounds: tuple[float, ...]) -> tuple[int, int, Bucket]:
    """Places of both ends of the bucket that holds a bound, in (0, *bounds, infinity); and that bucket."""
    if bound is None or not bounds:
        return -1, -1, Bucket()
    ends = (0.0, *bounds, math.inf)
    upper = 1 + bisect_left(bounds, bound * (1 - EPSILON))
    lower = upper if ends[upper] <= bound * (1 + EPSILON) else upper - 1
    return lower, upper, Bucket(ends[lower], ends[upper])


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """One engine's metrics, as scraped at `scraped_at`. Counters run since the engine's start."""

    replica: str
    """The pod's name."""
    scraped_at: float
    """Unix time in seconds of the scrape that read these values; not the time of the query."""
    running: Reading = NOT_EXPOSED
    """Requests in the running batch (gauge)."""
    waiting: Reading = NOT_EXPOSED
    """Requests queued inside the engine (gauge)."""
    kv_cache_usage: Reading = NOT_EXPOSED
    """Share of KV cache blocks in use, 0 to 1 (gauge). Baselines alone read it; the operator does not ask for it."""
    generation_tokens: Reading = NOT_EXPOSED
    """Output tokens, cumulative, one step at a time."""
    prompt_tokens: Reading = NOT_EXPOSED
    """Prompt tokens, cumulative, added when a request gets its first token; cached ones included."""
    cached_prompt_tokens: Reading = NOT_EXPOSED
    """The part of `prompt_tokens` that the prefix cache supplied, cumulative."""
    admission_rejections: Reading = NOT_EXPOSED
    """Requests that the engine rejected, cumulative."""
    begun: Reading = NOT_EXPOSED
    """Requests that left the engine's queue, cumulative, where the engine counts first tokens later or never."""
    ttft_from_admission: bool = False
    """TTFT is known to exclude the engine's queue. False where it includes it, or where nobody knows."""
    time_to_first_token: Histogram | Unknown = NOT_EXPOSED
    """TTFT; one observation a request. A histogram without buckets tells the mean alone."""
    prefill_seconds: Reading = NOT_EXPOSED
    """Seconds spent on prompts, cumulative, where an engine has no TTFT and counts no requests."""
    inter_token_latency: Histogram | Unknown = NOT_EXPOSED
    """ITL; one observation per engine step and running request."""
    time_per_output_token: Histogram | Unknown = NOT_EXPOSED
    """TPOT, a request's mean ITL; one observation per finished request."""
    queue_time: Histogram | Unknown = NOT_EXPOSED
    """Seconds a request waited in the engine's queue; one observation a finished request. For recorded histories alone:
    the autoscalers that they are compared with may scale on it, and the queue's length tells of lateness sooner."""
    sources: float = 1.0
    """Parts that these values are the sums of: a pod's ranks, each with its own series. Fewer than before are part."""


@dataclass(frozen=True, slots=True)
class GatewayMetrics:
    """Figures of the pool's requests at the gateway before the engines, all gateway pods together."""

    scraped_at: float | None = None
    """Unix time in seconds of the newest scrape in these values; None where no value was scraped."""
    queue: Reading = NOT_EXPOSED
    """Requests that the gateway holds (gauge)."""
    arrivals: Reading = NOT_EXPOSED
    """Requests that came, cumulative. It starts anywhere, and falls only if the reader of the gateway starts anew."""
    at_zero: Reading = NOT_EXPOSED
    """Requests, or tries of them, that the gateway counts while there is no engine too; cumulative as `arrivals`.
    Unknown where nothing outside the pool's own pods tells them, Absent where the series are gone."""
    time_to_first_token: Histogram | Unknown = NOT_EXPOSED
    """The client's TTFT, with the time in the gateway's queue; cumulative as `arrivals`."""
    in_flight: Reading = NOT_EXPOSED
    """Requests that the gateway has sent on and that have not ended (gauge). This field and the next ones are read for
    metered engines; counts are cumulative as `arrivals`, which then counts requests when they end."""
    generation_tokens: Reading = NOT_EXPOSED
    prompt_tokens: Reading = NOT_EXPOSED
    inter_token_latency: Histogram | Unknown = NOT_EXPOSED
    """ITL at the gateway, without buckets."""


NO_GATEWAY = GatewayMetrics()


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of a target, as the cluster tells it."""

    name: str
    age: float
    """Seconds since the pod was created."""
    ready_for: float | None = None
    """Seconds since the pod became Ready; None while it loads."""
    unschedulable: bool = False
    """The scheduler found no node for it."""
    gated: bool = False
    """A scheduling gate keeps it from the scheduler, such as that of a quota."""
    target: str = ONLY
    """Name of the replica's target."""
    weight: float = 1.0
    """Capacity of the replica, in replicas of the reference target; set by the core."""
    ordinal: int | None = None
    """Number of the pod, of a kind whose scale-down removes the highest; None where the kind chooses otherwise."""


class Ordered(NamedTuple):
    """The replicas that are requested of a target."""

    target: str
    """Name of the target."""
    replicas: int
    """`spec.replicas`."""
    in_turn: bool = False
    """Replicas start one after another: while a replica loads, the next ones have no pod yet."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The pool as it was seen at one time."""

    requested: int
    """`spec.replicas` of all targets: the replicas that are requested now, ready or not."""
    ready: tuple[Replica, ...] = ()
    """Replicas that serve."""
    starting: tuple[Replica, ...] = ()
    """Replicas that were created and are not Ready yet."""
    metrics: tuple[ReplicaMetrics, ...] | Unknown = NOT_READ
    """Samples of the replicas whose last scrape is fresh; Unknown when the whole reading failed. A ready replica
    without a sample is unknown, not idle."""
    gateway: GatewayMetrics = NO_GATEWAY
    """Figures of the gateway; all are NOT_EXPOSED where there is no gateway."""
    backlog: Reading = NOT_EXPOSED
    """Work that waits outside of engines and gateway, in requests or tokens, of a pool that has deadlines."""
    time_left: TimeLeft = ()
    """By when its requests are due, as its broker tells; empty where it was not asked, or nothing waits there."""
    metered: bool = False
    """The engines export nothing: `metrics` are even shares of their gateway's counts."""
    ttft_inferred: bool = False
    """The engines count no requests: their first tokens are estimated from their gateway's counts."""
    rollout: bool = False
    """A rollout is in progress: the replicas are of two versions."""
    targets: tuple[Ordered, ...] = ()
    """The requested replicas of each target; `requested` is their sum. Empty where no target is named."""
    capacity: float | None = None
    """Requested capacity, in replicas of the reference target; set by the core."""

    @property
    def samples(self) -> tuple[ReplicaMetrics, ...]:
        """Samples that could be read."""
        return () if isinstance(self.metrics, Unknown) else self.metrics

    @property
    def orders(self) -> tuple[Ordered, ...]:
        """The requested replicas of each target, by name; of ONLY where no target is named."""
        return self.targets or (Ordered(ONLY, self.requested),)

    @property
    def ordered(self) -> float:
        """Requested capacity, in replicas of the reference target."""
        return self.requested if self.capacity is None else self.capacity

    @property
    def serving(self) -> float:
        """Capacity of the ready replicas, in replicas of the reference target."""
        return len(self.ready) if self.capacity is None else math.fsum([replica.weight for replica in self.ready])
