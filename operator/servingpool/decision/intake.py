"""From cumulative pages to what happened since the last look.

Counters restart with the engine, replicas come and go, scrapes are lost or repeat the same sample. Here,
and only here, that is turned into sums over replicas for one interval, with the replica-seconds that they
cover, so that everything after it divides one by the other and stays unbiased when half the scrapes are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.pool import Slo
from servingpool.decision.slo_count import SloCount, bracket, split
from servingpool.decision.unknown import Reading, Unknown

FRESH_START = 180.0
"""Seconds. A replica first seen within this time after it became Ready has counted only what happened since."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One replica's cumulative figures at one scrape, reduced to what the core uses."""

    at: float
    first_tokens: SloCount
    """TTFT observations, split at the SLO bound."""
    first_token_seconds: float
    finished: SloCount
    """TPOT observations, split at the SLO bound."""
    decode_seconds: float
    """Sum of all inter-token latencies."""
    decode_steps: float
    """Number of inter-token latencies: steps times requests in them."""
    output_tokens: float
    prompt_tokens: float
    """Prompt tokens computed, cached ones excluded: what costs time."""
    rejections: float

    def values(self) -> tuple[float, ...]:
        """All cumulative figures, for sums and differences, in a fixed order (see `FIELDS`)."""
        return (
            self.first_tokens.within,
            self.first_tokens.straddling,
            self.first_tokens.late,
            self.first_token_seconds,
            self.finished.within,
            self.finished.straddling,
            self.finished.late,
            self.decode_seconds,
            self.decode_steps,
            self.output_tokens,
            self.prompt_tokens,
            self.rejections,
        )


FIELDS = 12
"""Length of `Counters.values()`."""
NOTHING = (0.0,) * FIELDS


@dataclass(frozen=True, slots=True)
class Intake:
    """What happened in one interval, over the replicas that could be read twice."""

    sums: tuple[float, ...]
    """Increase of each cumulative figure, in the order of `Counters.values()`."""
    covered: float
    """Replica-seconds that `sums` cover."""
    running: Reading
    """Requests in running batches, scaled to all ready replicas."""
    waiting: Reading
    """Requests queued in engines and at the gateway, scaled likewise."""
    kv_usage: Reading
    """Mean share of KV cache in use."""
    coverage: float
    """Share of the ready replicas whose page was read, 0 to 1."""
    counters: Mapping[str, tuple[float, ...]]
    """Per replica: scrape time and cumulative figures, to compare the next look with."""
    brackets: tuple[tuple[float, float], tuple[float, float]]
    """The buckets (seconds) that the TTFT and the TPOT bound fall into."""
    interval: float | None
    """Seconds between two scrapes of a replica, as seen; None where no replica was scraped again."""


def take_in(
    observation: Observation, slo: Slo, previous: Mapping[str, tuple[float, ...]], *, known_before: bool
) -> Intake:
    """Compare the pages with those of the last look. `known_before`: the pool was observed before this look."""
    pages = () if isinstance(observation.metrics, Unknown) else observation.metrics
    ready = {replica.name: replica for replica in observation.ready}
    sums, covered, intervals = list(NOTHING), 0.0, []
    counters: dict[str, tuple[float, ...]] = {}
    serving = [page for page in pages if page.replica in ready]
    brackets = ((0.0, float("inf")), (0.0, float("inf")))
    for page in serving:
        current = (page.scraped_at, *_counters(page, slo).values())
        brackets = _brackets(page, slo, brackets)
        before = previous.get(page.replica) or _from_zero(ready[page.replica], page.scraped_at, known_before)
        counters[page.replica] = current
        if before is None or page.scraped_at <= before[0]:
            continue
        restarted = any(now < then - 1e-6 for now, then in zip(current[1:], before[1:], strict=True))
        base = NOTHING if restarted else before[1:]
        for index, (now, then) in enumerate(zip(current[1:], base, strict=True)):
            sums[index] += now - then
        covered += page.scraped_at - before[0]
        if page.replica in previous:
            intervals.append(page.scraped_at - before[0])
    for name, figures in previous.items():
        if name in ready and name not in counters:
            counters[name] = figures  # its scrape was lost; the next one is compared with the last that came
    share = len(serving) / len(ready) if ready else 1.0
    waiting = _gauge([page.waiting for page in serving], share)
    return Intake(
        sums=tuple(sums),
        covered=covered,
        running=_gauge([page.running for page in serving], share),
        waiting=_with_gateway(waiting, observation.gateway.queued),
        kv_usage=_mean([page.kv_cache_usage for page in serving]),
        coverage=share,
        counters=counters,
        brackets=brackets,
        interval=min(intervals) if intervals else None,
    )


def _counters(page: ReplicaMetrics, slo: Slo) -> Counters:
    ttft, tpot, itl = page.time_to_first_token, page.time_per_output_token, page.inter_token_latency
    prompt = _or_zero(page.prompt_tokens) - _or_zero(page.cached_prompt_tokens)
    return Counters(
        at=page.scraped_at,
        first_tokens=_split(ttft, slo.time_to_first_token),
        first_token_seconds=ttft.total if isinstance(ttft, Histogram) else 0.0,
        finished=_split(tpot, slo.time_per_output_token),
        decode_seconds=itl.total if isinstance(itl, Histogram) else 0.0,
        decode_steps=itl.count if isinstance(itl, Histogram) else 0.0,
        output_tokens=_or_zero(page.generation_tokens),
        prompt_tokens=max(0.0, prompt),
        rejections=_or_zero(page.admission_rejections),
    )


def _split(histogram: Histogram | Unknown, bound: float | None) -> SloCount:
    if isinstance(histogram, Unknown):
        return SloCount()
    if bound is None:
        return SloCount(within=histogram.count)
    return split(histogram, bound)


def _brackets(
    page: ReplicaMetrics, slo: Slo, default: tuple[tuple[float, float], tuple[float, float]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    ttft, tpot = default
    if isinstance(page.time_to_first_token, Histogram) and slo.time_to_first_token is not None:
        ttft = bracket(page.time_to_first_token.bounds, slo.time_to_first_token)
    if isinstance(page.time_per_output_token, Histogram) and slo.time_per_output_token is not None:
        tpot = bracket(page.time_per_output_token.bounds, slo.time_per_output_token)
    return ttft, tpot


def _from_zero(replica: Replica, scraped_at: float, known_before: bool) -> tuple[float, ...] | None:
    """A replica that just came up has counted from zero, so its first page is already a difference."""
    if not known_before or replica.ready_for is None or replica.ready_for > FRESH_START:
        return None
    return (scraped_at - max(replica.ready_for, 1.0), *NOTHING)


def _gauge(readings: list[Reading], share: float) -> Reading:
    """Sum of a gauge, scaled up for the replicas that could not be read."""
    figures = [reading for reading in readings if not isinstance(reading, Unknown)]
    if not figures:
        return readings[0] if readings and isinstance(readings[0], Unknown) else Unknown("no replica was read")
    return sum(figures) * len(readings) / len(figures) / share


def _mean(readings: list[Reading]) -> Reading:
    figures = [reading for reading in readings if not isinstance(reading, Unknown)]
    return sum(figures) / len(figures) if figures else Unknown("no replica exposes KV cache usage")


def _with_gateway(waiting: Reading, queued: Reading) -> Reading:
    if isinstance(queued, Unknown):
        return waiting
    return queued if isinstance(waiting, Unknown) else waiting + queued


def _or_zero(reading: Reading) -> float:
    """Zero for a counter that this engine version lacks: its increase is then zero too, never negative."""
    return 0.0 if isinstance(reading, Unknown) else reading
