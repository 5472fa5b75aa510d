"""First tokens of engines that count no requests: estimated from the requests that their gateway counts.

llama.cpp counts neither requests nor first tokens. Its gateway counts arrivals, its page the length of the queue, and
what has arrived and does not wait has begun. A replica's part of that is its part of the prompt tokens, which are
counted when a request begins. Nothing is lost to rounding, scrapes at different times or a replica that goes: what
could not be given to a replica yet is given with the next tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from servingpool.decision.increase import Counts, follow
from servingpool.decision.observation import NOT_EXPOSED, Histogram, Observation, ReplicaMetrics, Unknown


class Begun(NamedTuple):
    """Requests that a replica has begun since it was first read, or restarted."""

    prompts: Counts
    """Prompt tokens of the replica when they were last read."""
    requests: float = 0.0


class Unbegun(NamedTuple):
    """Requests that the gateway has counted and no replica is known to have begun."""

    arrivals: Counts
    """The gateway's count when it was last read."""
    requests: float
    waiting: float = 0.0
    """Requests in queues when they were last all known."""
    begun: Mapping[str, Begun] = MappingProxyType({})
    """Requests begun, by replica."""


def with_first_tokens(
    observation: Observation, unbegun: Unbegun | None, now: float
) -> tuple[Observation, Unbegun | None]:
    """The observation with a TTFT histogram without buckets for each replica that tells seconds of prefill instead.

    Its seconds are those of prefill, without any wait. As TPOT stands the time between tokens, where there is none.
    Without arrivals at the gateway nothing is filled in, so the figure stays missing.
    """
    arrivals, samples = observation.gateway.arrivals, observation.metrics
    if isinstance(arrivals, Unknown) or isinstance(samples, Unknown):
        return observation, unbegun
    if not any(map(_counts_no_requests, samples)):
        # What met no engine at 0 replicas may have been refused: it is not what the next replica begins.
        return observation, None if samples or observation.requested == 0 else unbegun
    queues = (observation.gateway.queue, *(one.waiting for one in samples))
    waiting = sum(queue for queue in queues if not isinstance(queue, Unknown))
    if unbegun is not None and any(isinstance(queue, Unknown) and queue is not NOT_EXPOSED for queue in queues):
        waiting = max(waiting, unbegun.waiting)  # else all that wait unseen would begin at once
    counted, came = follow(None if unbegun is None else unbegun.arrivals, Counts(now, (arrivals,)))
    requests = waiting if unbegun is None else unbegun.requests  # whatever came before is not known
    requests += 0.0 if came is None else came.figures[0]
    before = {} if unbegun is None else unbegun.begun
    read = {one.replica: _read(one, before.get(one.replica)) for one in samples}
    all_tokens = sum(tokens for _, tokens in read.values())
    begun = max(0.0, requests - waiting) if all_tokens > 0.0 else 0.0
    each = begun / max(all_tokens, 1.0)
    by_replica = {name: one._replace(requests=one.requests + each * tokens) for name, (one, tokens) in read.items()}
    filled = tuple(_filled(one, by_replica[one.replica].requests) for one in samples)
    standing = {one.name for one in (*observation.ready, *observation.starting)}
    kept = {name: one for name, one in before.items() if name in standing} | by_replica
    return replace(observation, metrics=filled), Unbegun(counted, requests - begun, waiting, kept)


def _counts_no_requests(metrics: ReplicaMetrics) -> bool:
    return metrics.time_to_first_token is NOT_EXPOSED and metrics.prefill_seconds is not NOT_EXPOSED


def _read(metrics: ReplicaMetrics, before: Begun | None) -> tuple[Begun, float]:
    """Requests that a replica had begun before this sample, and its prompt tokens since; 0 where not known."""
    prompts, rise = follow(
        None if before is None else before.prompts, Counts(metrics.scraped_at, (float(metrics.prompt_tokens),))
    )
    begun = 0.0 if before is None or (rise is not None and rise.restarted) else before.requests
    return Begun(prompts, begun), 0.0 if rise is None else rise.figures[0]


def _filled(metrics: ReplicaMetrics, begun: float) -> ReplicaMetrics:
    if isinstance(metrics.prefill_seconds, Unknown) or not _counts_no_requests(metrics):
        return metrics
    tpot = metrics.time_per_output_token
    return replace(
        metrics,
        time_to_first_token=Histogram((), (), metrics.prefill_seconds, begun),
        time_per_output_token=metrics.inter_token_latency if tpot is NOT_EXPOSED else tpot,
    )
