"""Kubernetes' HPA v2 on what vLLM exposes. KEDA makes such an HPA too."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.behavior import Behavior, Unset
from servingpool_simulation.baselines.readings import History, total
from servingpool_simulation.baselines.rules import average_value, object_value, pods_average
from servingpool_simulation.policies import TICK, Answer

RUNNING = 16.0
"""Running requests a replica, the setting of llm-d's default autoscaling guide."""
WAITING = 1.0
"""Waiting requests of the whole namespace, from the vLLM production-stack's HPA tutorial."""
WAITING_EACH = 3.0
"""Waiting requests a replica: Google's best practices for LLM inference on GKE start at 3 to 5."""
TOKENS = 0.8
"""Share of the output tokens/s that a benchmark shows for one replica within the SLO.

Nobody publishes a default, as it depends on model and GPU. 80% is what the HPA itself aims at where no metric is named.
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What one metric asks for."""

    replicas: int
    reason: str


class Metric(Protocol):
    """One metric of an HPA with its target. It may remember, so an object serves one run."""

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish | Unknown:
        """Asked at every sync, also in a past in which somebody else was in charge."""


@dataclass(slots=True)
class Hpa:
    """One HorizontalPodAutoscaler. The highest wish counts; while a metric fails nothing goes down."""

    name: str
    metrics: tuple[Metric, ...]
    behavior: Behavior = field(default_factory=Unset)
    every_bucket: bool = False
    every: float = field(default=TICK, init=False)

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One sync."""
        current = observation.requested
        wishes = [metric.wish(observation, pool, now) for metric in self.metrics]
        if current == 0:
            return Answer(0, "paused: the target has 0 replicas")
        known = [wish for wish in wishes if not isinstance(wish, Unknown)]
        failed = [wish for wish in wishes if isinstance(wish, Unknown)]
        if not known:
            return Answer(current, f"hold: {failed[0].reason}")
        best = max(known, key=lambda wish: wish.replicas)
        wanted = max(best.replicas, current) if failed else best.replicas
        return Answer(self.behavior.order(wanted, current, pool, now), best.reason)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """Prometheus fills its windows whoever is in charge; the HPA keeps no history of its own."""
        for metric in self.metrics:
            metric.wish(observation, pool, now)


@dataclass(frozen=True, slots=True)
class SumPerReplica:
    """`sum(gauge)` as an external metric of type AverageValue."""

    gauge: str
    target: float

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish | Unknown:  # noqa: ARG002, the protocol
        """The sum over the target."""
        value = total(observation, self.gauge)
        if isinstance(value, Unknown):
            return value
        wanted = average_value(value, self.target, observation.requested)
        return Wish(wanted, f"{value:g} {self.gauge} over {self.target:g} a replica wants {wanted}")


@dataclass(frozen=True, slots=True)
class SumInAll:
    """`sum(gauge)` as an object metric of type Value: the same target however large the fleet."""

    gauge: str
    target: float

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish | Unknown:  # noqa: ARG002, the protocol
        """The ready replicas times the sum over the target."""
        value = total(observation, self.gauge)
        if isinstance(value, Unknown):
            return value
        wanted = object_value(value, self.target, observation.requested, len(observation.ready))
        return Wish(wanted, f"{value:g} {self.gauge} over {self.target:g} in all wants {wanted}")


@dataclass(slots=True)
class TokensPerReplica:
    """Generation tokens/s as a Pods metric, the rate over a minute."""

    target: float
    _history: History = field(default_factory=lambda: History(60.0), init=False)

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish | Unknown:  # noqa: ARG002, the protocol
        """The mean of the pods that show it over the target."""
        self._history.add(now, observation)
        rates = self._history.rates("generation_tokens")
        if not rates:
            return Unknown("no replica shows a rate of generation tokens")
        missing = max(0, len(observation.ready) + len(observation.starting) - len(rates))
        wanted = pods_average(rates.values(), missing, self.target, observation.requested)
        mean = math.fsum(rates.values()) / len(rates)
        return Wish(wanted, f"{mean:.0f} tokens/s a replica over {self.target:.0f} wants {wanted}")


def on_running(target: float = RUNNING) -> Hpa:
    """Running requests a replica; `behavior` unset."""
    return Hpa(f"HPA on running, {target:g}", (SumPerReplica("running", target),))


def on_waiting(target: float = WAITING) -> Hpa:
    """Waiting requests in all, as the production-stack's tutorial has it; `behavior` unset."""
    return Hpa(f"HPA on waiting, {target:g} in all", (SumInAll("waiting", target),))


def on_waiting_each(target: float = WAITING_EACH) -> Hpa:
    """Waiting requests a replica; `behavior` unset."""
    return Hpa(f"HPA on waiting, {target:g} each", (SumPerReplica("waiting", target),))


def on_tokens(target: float) -> Hpa:
    """Generation tokens/s a replica; `behavior` unset."""
    return Hpa(f"HPA on tokens, {target:.0f}/s", (TokensPerReplica(target),))
