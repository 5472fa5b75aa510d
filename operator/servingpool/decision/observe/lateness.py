"""Requests that missed the SLO, by the source that is believed.

Two witnesses tell of late first tokens: the TTFT histogram and the length of the queue. The histogram excludes the
queue if the engine counts TTFT from admission, or if a gateway before the engine queues. Then the length of the queue
is used.

Where the SLO is measured at the gateway, its histogram of the client's TTFT counts alone.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from servingpool.decision.observation import Bucket, Observation
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.counters import CounterDelta
from servingpool.decision.observe.latency import LEAST_REQUESTS, Misses, late_share_by_mean
from servingpool.decision.observe.queueing import Queue, overdue
from servingpool.decision.observe.samples import NO_SAMPLE
from servingpool.decision.observe.window import KEPT_SECONDS, SampleWindow, Slice
from servingpool.decision.params import LONGEST_GAP, MINUTE
from servingpool.decision.pool import Pool

BY_TOKEN = 2.0
"""TPOT observations for each request begun, beyond which they are of tokens, as with LMDeploy, NIM and old vLLM."""
ANY = Bucket()
"""The bucket that holds every time."""


class Witness(StrEnum):
    """Source that tells of late first tokens."""

    GATEWAY = "gateway's TTFT histogram"
    HISTOGRAM = "TTFT histogram"
    QUEUE = "queue depth"


@dataclass(frozen=True, eq=False)
class Lateness:
    """Judge of the requests of a window."""

    window: SampleWindow
    queue_excluded: bool
    """The TTFT histogram excludes the queue."""
    pool: Pool

    def _first_tokens(self, part: Slice) -> Misses:
        """Requests that got their first token, and late requests among them, by the source that is believed."""
        bound, pooled = self.pool.slo.time_to_first_token, self.window.last(self.pool.params.mean_window)
        count, bucket = Column.TTFT_COUNT, self.window.buckets.ttft
        mean = pooled.mean_beyond
        if self.believed is Witness.GATEWAY:
            count, bucket, mean = Column.CLIENT_COUNT, self.window.buckets.client, 0.0
        told, kept = part.split(count).misses(pooled.split(count), bucket, bound, mean), self.window.last(KEPT_SECONDS)
        # Several are prefilled together and told once, or some are not told: a gateway may tell of streams only.
        each = max(1.0, kept.sums[Column.BEGUN] / max(kept.sums[count], 1.0))
        requests, late = each * told.requests, each * told.late
        if self.believed is not Witness.QUEUE or requests <= 0.0:
            return Misses(requests, late)
        # With what the histogram sees beside: a long prefill is no queue.
        waited = min(requests, part.sums[Column.LATE_BY_QUEUE])
        return Misses(requests, waited + late * (1.0 - waited / requests))

    @property
    def believed(self) -> Witness:
        """The source that is believed now."""
        if self.pool.slo.at_gateway:
            return Witness.GATEWAY
        return Witness.QUEUE if self.queue_excluded else Witness.HISTOGRAM

    def missed(self, part: Slice, *, output_tokens: bool = True, hopeless: bool = False) -> Misses:
        """Requests of a part of the window, and those that broke either bound, or that of the first token only.

        Only the two marginals are exposed. They are joined as if independent: that errs towards too many misses, by
        less than their product, where the same requests break both. A request counts when it gets its first token:
        that many end, if not in the same seconds. Where it is `hopeless` that any meets the bound on output tokens, and
        none that ended did, neither will those that have begun.
        """
        first = self._first_tokens(part)
        slow = self._slow(part, self.pool.slo.time_per_output_token if output_tokens else None)
        every = hopeless and slow.late >= slow.requests > 0.0
        late = first.late + (max(slow.late, first.requests) if every else slow.late) * (1.0 - first.share)
        return Misses(max(first.requests, late), late)

    def _slow(self, part: Slice, bound: float | None) -> Misses:
        """Requests that ended, and requests among them whose tokens came too slowly."""
        count = part.split(Column.TPOT_COUNT)
        if bound is None:
            return Misses(count.total, 0.0)
        if self._tpot_by_token:
            begun = part.sums[Column.BEGUN]
            return Misses(begun, begun * late_share_by_mean(self._speed(part), ANY, bound))
        if count.straddling <= 0.0:
            return Misses(count.total, count.late)
        share = late_share_by_mean(self._speed(part), self.window.buckets.tpot, bound)
        return Misses(count.total, count.late + count.straddling * share)

    @cached_property
    def _tpot_by_token(self) -> bool:
        """Whether the TPOT histogram counts tokens: the late share of tokens is not that of requests."""
        kept = self.window.last(KEPT_SECONDS)
        return kept.sums[Column.TPOT_COUNT] > BY_TOKEN * kept.sums[Column.BEGUN] + LEAST_REQUESTS

    def _speed(self, part: Slice) -> float:
        """Mean seconds of a token in a part of the window, or in the last minute where that is longer."""
        recent = part if part.seconds >= MINUTE else self.window.last(MINUTE)
        # No time passed before a first token.
        later = recent.sums[Column.GENERATED] - recent.sums[Column.TTFT_COUNT]
        return recent.sums[Column.ITL_SUM] / max(later, recent.sums[Column.ITL_COUNT], 1.0)


class Queues(NamedTuple):
    """The replicas' queues and the gateway's, as shown in the last minutes."""

    engines: tuple[Queue, ...]
    gateway: Queue | None

    @classmethod
    def recent(cls, observation: Observation, last: CounterDelta, standing: Container[str], now: float) -> Queues:
        """Queues shown in the last minutes; also of a replica that fails its probe because it is full.

        One that is `standing` still has none that is believed. By the clock of the samples: Prometheus's may differ
        from ours.
        """
        since = max([one.at for one in last.samples.values()], default=now) - LONGEST_GAP
        replicas, gateway = (*observation.ready, *observation.starting), last.gateway_queue
        found = [last.samples.get(one.name, NO_SAMPLE).queue for one in replicas if one.name not in standing]
        queues = [one for one in found if one is not None and one.at >= since]
        return cls(tuple(queues), gateway if gateway is not None and gateway.at >= since else None)

    @property
    def longest_wait(self) -> float:
        """Seconds that the longest-waiting request has waited, at a replica and at the gateway."""
        at_gateway = 0.0 if self.gateway is None else self.gateway.wait
        return at_gateway + max([queue.wait for queue in self.engines], default=0.0)

    def overdue(self, bound: float | None) -> float:
        """Requests that wait now and have waited for more than `bound` seconds."""
        if bound is None:
            return 0.0
        queues = self.engines if self.gateway is None else (*self.engines, self.gateway)
        return sum([overdue(queue, bound) for queue in queues if queue.wait > 0.0])
