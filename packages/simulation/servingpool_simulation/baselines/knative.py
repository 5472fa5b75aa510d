"""Knative's KPA on concurrency: a stable and a panic window."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.behavior import bounded
from servingpool_simulation.baselines.readings import gauges
from servingpool_simulation.baselines.windows import Means, mean
from servingpool_simulation.policies import Answer

CONCURRENCY = 70.0
"""Requests in flight a pod: 70% of the default target of 100."""


@dataclass(slots=True)
class Kpa:
    """Its queue-proxy counts requests in a pod, which are those that run or wait in the engine.

    It asks pods every second; here it sees them as often as they are scraped. It starts in panic, as after a restart.
    """

    target: float = CONCURRENCY
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=2.0, init=False)
    _concurrency: Means = field(default_factory=lambda: Means(60.0), init=False)
    _panic_since: float | None = field(default=None, init=False)
    _highest: int = field(default=0, init=False)
    """Replicas that the panic has asked for so far."""
    _started: bool = field(default=False, init=False)

    STABLE, PANIC = 60.0, 6.0
    """Windows in seconds."""
    PANIC_AT = 2.0
    """Times the ready pods."""
    MAX_UP, MAX_DOWN = 1000.0, 2.0
    """Rates a tick."""

    @property
    def name(self) -> str:
        """Such as `Knative KPA, 70`."""
        return f"Knative KPA, {self.target:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One tick."""
        current, ready = observation.requested, max(1, len(observation.ready))
        if not self._started:
            self._started, self._panic_since, self._highest = True, now, current
        if not self._look(observation, now):
            return Answer(current, "hold: no pod shows its concurrency")
        stable = math.ceil(self._concurrency.over(self.STABLE) / self.target)
        panic = math.ceil(self._concurrency.over(self.PANIC) / self.target)
        if panic / ready >= self.PANIC_AT:
            if self._panic_since is None:
                self._highest = 0
            self._panic_since = now
        elif self._panic_since is not None and now > self._panic_since + self.STABLE:
            self._panic_since = None
        low, high = math.floor(ready / self.MAX_DOWN), math.ceil(ready * self.MAX_UP)
        wanted = min(max(stable, low), high)
        if self._panic_since is not None:
            self._highest = wanted = max(self._highest, wanted, min(max(panic, low), high))
        mode = "stable" if self._panic_since is None else "panic"
        return Answer(bounded(wanted, pool), f"{mode}: {self._concurrency.over(self.STABLE):.0f} in flight")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:  # noqa: ARG002, the protocol
        """Its windows fill whoever is in charge."""
        self._look(observation, now)

    def _look(self, observation: Observation, now: float) -> bool:
        """Samples pods and takes their mean for those that it did not reach. False where it reached none."""
        running, waiting = gauges(observation, "running"), gauges(observation, "waiting")
        pods = [running[name] + waiting[name] for name in running if name in waiting]
        if pods:
            self._concurrency.add(now, mean(pods) * len(observation.ready))
        return bool(pods)
