"""AIBrix' PodAutoscaler on KV cache usage, as in its samples: the algorithms APA and KPA."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.behavior import bounded
from servingpool_simulation.baselines.readings import gauges
from servingpool_simulation.baselines.windows import Means, mean
from servingpool_simulation.policies import Answer

KV_USAGE = 0.5
"""Share of the KV cache, 0 to 1."""
TOLERANCE = 0.1
WINDOW, PANIC = 180.0, 60.0
"""Seconds."""


def usage(observation: Observation) -> list[float]:
    """KV use of the ready pods; a scrape that failed counts as 0."""
    shown = gauges(observation, "kv_cache_usage")
    return [shown.get(replica.name, 0.0) for replica in observation.ready]


@dataclass(slots=True)
class Apa:
    """The spec's replicas times usage over target. Loading pods are not credited, so it multiplies at each tick."""

    target: float = KV_USAGE
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=10.0, init=False)
    _use: Means = field(default_factory=lambda: Means(WINDOW), init=False)
    """A mean over the pods."""

    @property
    def name(self) -> str:
        """Such as `AIBrix APA, 0.5`."""
        return f"AIBrix APA, {self.target:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One tick."""
        self._use.add(now, mean(usage(observation)))
        use, n = self._use.over(WINDOW), observation.requested
        ratio = use / self.target
        wanted = n
        if ratio > 1 + TOLERANCE:
            wanted = min(math.ceil(n * ratio), 2 * n)
        elif ratio < 1 - TOLERANCE:
            wanted = max(math.ceil(n * ratio), n // 2)
        return Answer(bounded(wanted, pool), f"KV use {use:.2f} over {self.target:g} wants {wanted}")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:  # noqa: ARG002, the protocol
        """Its window fills whoever is in charge."""
        self._use.add(now, mean(usage(observation)))


@dataclass(slots=True)
class Kpa:
    """Usage over target, of a long and a short window.

    The sum over the pods is what it divides: their mean would ask for one or two replicas whatever the fleet.
    """

    target: float = KV_USAGE
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=10.0, init=False)
    _use: Means = field(default_factory=lambda: Means(WINDOW), init=False)
    """A sum over the pods."""

    PANIC_AT = 2.0
    """Times the long window's mean."""

    @property
    def name(self) -> str:
        """Such as `AIBrix KPA, 0.5`."""
        return f"AIBrix KPA, {self.target:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One tick."""
        self._use.add(now, math.fsum(usage(observation)))
        long, short, n = self._use.over(WINDOW), self._use.over(PANIC), observation.requested
        wanted = self._wanted(long, n)
        if short > self.PANIC_AT * long:
            wanted = max(wanted, self._wanted(short, n))
        return Answer(bounded(wanted, pool), f"{long:.2f} KV caches full over {self.target:g} wants {wanted}")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:  # noqa: ARG002, the protocol
        """Its windows fill whoever is in charge."""
        self._use.add(now, math.fsum(usage(observation)))

    def _wanted(self, use: float, n: int) -> int:
        if n == 0 or abs(use / (self.target * n) - 1) <= TOLERANCE:
            return n
        return min(max(math.ceil(use / self.target), n // 2), 2 * n)
