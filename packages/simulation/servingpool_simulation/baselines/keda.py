"""KEDA as the vLLM production-stack's chart sets it up: waiting requests, one pod a minute either way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.behavior import Configured, Limit
from servingpool_simulation.baselines.hpa import Hpa, Wish
from servingpool_simulation.baselines.readings import or_zero, total
from servingpool_simulation.baselines.rules import average_value
from servingpool_simulation.policies import TICK, Answer

WAITING = 5.0
"""Waiting requests a pod."""
COOLDOWN = 360.0
"""Seconds without a waiting request after which a target that may go to zero does."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """`sum(vllm:num_requests_waiting)`; nothing reads as 0 (`ignoreNullValues`, on by default), which scales in."""

    target: float

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish:  # noqa: ARG002, the protocol
        """The sum over the target."""
        value = or_zero(total(observation, "waiting"))
        wanted = average_value(value, self.target, observation.requested)
        return Wish(wanted, f"{value:g} waiting over {self.target:g} a pod wants {wanted}")


@dataclass(slots=True)
class ProductionStack:
    """The HPA that KEDA makes between 1 and the maximum, and KEDA's own steps between 0 and 1.

    Where the pool may go to zero it does so after the cooldown, running requests or not. Then no engine is left to
    show a waiting request, so nothing wakes it.
    """

    target: float = WAITING
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=TICK, init=False)
    """pollingInterval of the chart; the HPA's sync is the same."""
    _hpa: Hpa = field(init=False)
    _active_at: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        minute = (Limit(60.0, pods=1),)
        self._hpa = Hpa("", (Waiting(self.target),), Configured(up=minute, down=minute))

    @property
    def name(self) -> str:
        """Such as `KEDA on waiting, 5`."""
        return f"KEDA on waiting, {self.target:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One poll."""
        active = or_zero(total(observation, "waiting")) > 0
        if active or self._active_at == -math.inf:
            self._active_at = now
        if observation.requested == 0 and active:
            return Answer(1, "active again")
        if observation.requested > 0 and pool.min_replicas == 0 and now - self._active_at >= COOLDOWN:
            return Answer(0, f"nothing waited for {COOLDOWN:g} s")
        return self._hpa.decide(observation, pool, now)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """KEDA and the HPA keep no history of metrics."""
