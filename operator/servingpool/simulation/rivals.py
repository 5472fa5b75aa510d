"""The autoscalers that a user would pick instead, as their sources have them in 2026."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from servingpool.decision.observation import Histogram, Observation, ReplicaMetrics
from servingpool.decision.pool import Pool
from servingpool.decision.unknown import Reading, Unknown
from servingpool.simulation.policies import Answer

TOLERANCE = 0.1
"""HPA: a metric within 10% of its target changes nothing."""


def average_value(value: float, target: float, replicas: int) -> int:
    """What the HPA wants for an external metric of type AverageValue: `replicas` counts loading pods too."""
    if replicas == 0 or abs(1 - value / (target * replicas)) <= TOLERANCE:
        return replicas
    return math.ceil(value / target)


@dataclass(slots=True)
class Window:
    """Recommendations of the last `seconds`."""

    seconds: float
    kept: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, replicas: int, current: int) -> Iterable[int]:
        """Remembers one, and returns all that are still within the window. The first sync remembers `current`."""
        if not self.kept:
            self.kept.append((now, current))
        self.kept.append((now, replicas))
        while self.kept[0][0] < now - self.seconds:
            self.kept.popleft()
        return [replicas for _, replicas in self.kept]


@dataclass(slots=True)
class HpaOnRunning:
    """HPA v2, also by way of KEDA, on the sum of `vllm:num_requests_running`; `behavior` unset."""

    target: float
    """Running requests per replica, AverageValue."""
    every_bucket: bool = field(default=False, init=False)
    _down: Window = field(default_factory=lambda: Window(300.0), init=False)

    @property
    def name(self) -> str:
        """Such as `HPA on running, 32`."""
        return f"HPA on running, {self.target:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One sync of 15 s."""
        current = observation.requested
        value = _sum(observation, "running")
        if isinstance(value, Unknown):
            return Answer(current, f"hold: {value.reason}")
        wanted = average_value(value, self.target, current)
        stable = max(self._down.add(now, wanted, current))
        limited = min(stable, max(2 * current, 4))
        replicas = max(pool.min_replicas, min(limited, pool.max_replicas))
        return Answer(replicas, f"{value:g} running over {self.target:g} a replica wants {wanted}")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """HPA keeps no history."""


@dataclass(slots=True)
class LlmdSloAware:
    """llm-d's `slo-aware` guide for KEDA, with its published settings."""

    up_above: float = 0.55
    down_below: float = 0.40
    name: str = "llm-d slo-aware"
    every_bucket: bool = field(default=True, init=False)
    _pages: deque[tuple[float, dict[str, ReplicaMetrics]]] = field(default_factory=deque, init=False)
    _signal: deque[tuple[float, float]] = field(default_factory=deque, init=False)
    _up: Window = field(default_factory=lambda: Window(30.0), init=False)
    _down: Window = field(default_factory=lambda: Window(180.0), init=False)
    _changes: deque[tuple[float, int]] = field(default_factory=deque, init=False)

    QUANTILE = 0.9
    RATE_WINDOW = 60.0
    """Seconds: its recording rules take bucket rates over a minute, every 15 s."""
    MEAN_WINDOW = 45.0
    CLAMP = 2.0

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One evaluation of its recording rules, its formula and the HPA that KEDA makes of it."""
        signal = self._mean_signal(observation, pool, now)
        n, r = observation.requested, len(observation.ready)
        if n == 0:
            return Answer(pool.min_replicas, "nothing is running")
        wanted = n
        if signal > self.up_above:
            wanted = n + math.ceil(n * (signal * (r / n) / self.up_above - 1))
        elif signal < self.down_below:
            wanted = n - math.floor(n * (1 - signal / self.down_below))
        wanted = average_value(max(wanted, 0), 1.0, n)
        replicas = self._behave(wanted, n, pool, now)
        return Answer(replicas, f"worst P90 at {signal:.2f} of its bound wants {wanted}")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """Prometheus fills its windows whoever is in charge."""
        self._mean_signal(observation, pool, now)

    def _mean_signal(self, observation: Observation, pool: Pool, now: float) -> float:
        pages = {} if isinstance(observation.metrics, Unknown) else {m.replica: m for m in observation.metrics}
        self._pages.append((now, pages))
        while self._pages[0][0] < now - self.RATE_WINDOW:
            self._pages.popleft()
        slo = pool.slo
        ratios = [
            self._quantile(name) / bound
            for name, bound in (
                ("time_to_first_token", slo.time_to_first_token),
                ("time_per_output_token", slo.time_per_output_token),
            )
            if bound is not None
        ]
        self._signal.append((now, min(max(ratios), self.CLAMP)))
        while self._signal[0][0] <= now - self.MEAN_WINDOW:
            self._signal.popleft()
        return math.fsum(value for _, value in self._signal) / len(self._signal)

    def _quantile(self, name: str) -> float:
        """`histogram_quantile` over the fleet's bucket increases of the last minute.

        0 without any: its queries end in `or vector(0)`, so a lost scrape looks idle.
        """
        bounds: tuple[float, ...] = ()
        counts: list[float] = []
        total = 0.0
        for replica, metrics in self._pages[-1][1].items():
            new: Histogram | Unknown = getattr(metrics, name)
            first = next(pages[replica] for _, pages in self._pages if replica in pages)
            old: Histogram | Unknown = getattr(first, name)
            if isinstance(new, Unknown) or isinstance(old, Unknown):
                continue
            bounds = new.bounds
            counts = counts or [0.0] * len(bounds)
            counts = [sofar + b - a for sofar, a, b in zip(counts, old.counts, new.counts, strict=True)]
            total += new.count - old.count
        return histogram_quantile(self.QUANTILE, bounds, counts, total)

    def _behave(self, wanted: int, n: int, pool: Pool, now: float) -> int:
        """HPA behaviour of the guide: up max(100%, 4 pods) a minute after 30 s, down 1 pod in 120 s after 180 s."""
        stable = max(n, min(self._up.add(now, wanted, n)))
        stable = min(stable, max(self._down.add(now, wanted, n)))
        bounded = max(pool.min_replicas, min(stable, pool.max_replicas))
        while self._changes and self._changes[0][0] <= now - 120.0:
            self._changes.popleft()
        added = sum(change for at, change in self._changes if change > 0 and at > now - 60.0)
        removed = -sum(change for _, change in self._changes if change < 0)
        begin = n - added
        bounded = min(bounded, max(n, 2 * begin, begin + 4))
        bounded = max(bounded, min(n, n + removed - 1))
        if bounded != n:
            self._changes.append((now, bounded - n))
        return bounded


def histogram_quantile(quantile: float, bounds: tuple[float, ...], counts: list[float], total: float) -> float:
    """As PromQL's: linear within a bucket, the largest finite bound beyond; 0 without observations."""
    if total <= 0:
        return 0.0
    rank = quantile * total
    lower, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank:
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return bounds[-1]


def _sum(observation: Observation, name: str) -> Reading:
    """`sum(...)` of a gauge: what Prometheus has, a missing pod is not made up for."""
    if isinstance(observation.metrics, Unknown):
        return observation.metrics
    values = [getattr(metrics, name) for metrics in observation.metrics]
    known = [value for value in values if not isinstance(value, Unknown)]
    return math.fsum(known) if known else Unknown(f"no replica exposes {name}")
