"""First tokens of engines that count no requests: estimated from the requests that their gateway counts.

llama.cpp counts neither requests nor first tokens. Its gateway counts arrivals, its page the length of the queue, and
what has arrived and does not wait has begun. A replica's part of that is its part of the prompt tokens, which are
counted when a request begins. Nothing is lost to rounding, scrapes at different times or a replica that goes: what
could not be given to a replica yet is given with the next tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from servingpool.decision.observation import NOT_EXPOSED, Histogram, Observation, ReplicaMetrics, Unknown
from servingpool.decision.samples import PROMPTS, TTFT_COUNT, Sample


class Unbegun(NamedTuple):
    """Requests that the gateway has counted and no replica is known to have begun."""

    arrivals: float
    """The gateway's count when it was last read."""
    requests: float
    waiting: float = 0.0
    """Requests in queues when they were last all known."""


def with_first_tokens(
    observation: Observation, previous: Mapping[str, Sample], unbegun: Unbegun | None
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
    if unbegun is None or arrivals < unbegun.arrivals:
        requests = waiting  # whatever came before is not known
    else:
        requests = unbegun.requests + arrivals - unbegun.arrivals
    tokens = {one.replica: _prompt_tokens(one, previous.get(one.replica)) for one in samples}
    all_tokens = sum(tokens.values())
    begun = max(0.0, requests - waiting) if all_tokens > 0.0 else 0.0
    each = begun / max(all_tokens, 1.0)
    filled = tuple(
        _filled(one, previous.get(one.replica), each * tokens[one.replica]) if _counts_no_requests(one) else one
        for one in samples
    )
    return replace(observation, metrics=filled), Unbegun(arrivals, requests - begun, waiting)


def _counts_no_requests(metrics: ReplicaMetrics) -> bool:
    return metrics.time_to_first_token is NOT_EXPOSED and metrics.prefill_seconds is not NOT_EXPOSED


def _prompt_tokens(metrics: ReplicaMetrics, before: Sample | None) -> float:
    """Since the sample before; 0 where there is none to compare with, or the engine restarted."""
    if before is None or isinstance(metrics.prompt_tokens, Unknown):
        return 0.0
    return max(0.0, metrics.prompt_tokens - before.figures[PROMPTS])


def _filled(metrics: ReplicaMetrics, before: Sample | None, begun: float) -> ReplicaMetrics:
    if isinstance(metrics.prefill_seconds, Unknown):
        return metrics
    restarted = before is None or (
        not isinstance(metrics.prompt_tokens, Unknown) and metrics.prompt_tokens < before.figures[PROMPTS]
    )
    count = begun if before is None or restarted else before.figures[TTFT_COUNT] + begun
    tpot = metrics.time_per_output_token
    return replace(
        metrics,
        time_to_first_token=Histogram((), (), metrics.prefill_seconds, count),
        time_per_output_token=metrics.inter_token_latency if tpot is NOT_EXPOSED else tpot,
    )
