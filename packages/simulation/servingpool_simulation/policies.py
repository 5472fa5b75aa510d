"""The protocol of a scaling policy, ours behind it, and the simplest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from servingpool.adapters.gateways.completed import NOTHING, Completing, completed
from servingpool.decision.decide import decide, learn
from servingpool.decision.decision import Decision
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool

TICK = 15.0
"""Seconds between two decisions of the operator, and of the HPA."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a policy wants."""

    replicas: int
    reason: str = ""
    decision: Decision | None = None
    """All that our own core said; None from the others."""
    parts: tuple[int, ...] = ()
    """Of each kind, where the fleet has several; `replicas` is their sum."""


class Policy(Protocol):
    """Decides at its own pace from what can be observed. An object serves one run."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    @property
    def every_bucket(self) -> bool:
        """It reads quantiles, so it needs all buckets, not only those around the SLO's bounds."""

    @property
    def every(self) -> float:
        """Seconds between two decisions, over 0."""

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """How many replicas there should be; `now` in Unix seconds."""

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """Look at a past in which somebody else was in charge."""


@dataclass(slots=True)
class Wrapped:
    """A policy inside another that looks at what passes, or changes it. What is not said anew is the inner one's."""

    policy: Policy

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.policy.name

    @property
    def every_bucket(self) -> bool:
        """The inner policy's."""
        return self.policy.every_bucket

    @property
    def every(self) -> float:
        """The inner policy's."""
        return self.policy.every

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """The inner policy's answer."""
        return self.policy.decide(observation, pool, now)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """The inner policy learns."""
        self.policy.learn(observation, pool, now)


@dataclass(frozen=True, slots=True)
class Static:
    """The same number at all times."""

    replicas: int
    every_bucket: bool = False
    every: float = TICK

    @property
    def name(self) -> str:
        """Such as `static 8`."""
        return f"static {self.replicas}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:  # noqa: ARG002, the protocol
        """Always the same."""
        return Answer(self.replicas)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """There is nothing to learn."""


@dataclass(slots=True)
class Schedule:
    """Replicas fixed beforehand for each decision, of each kind where there are several. An object serves one run."""

    plan: Sequence[int] | Sequence[tuple[int, ...]]
    """The last one stays."""
    name: str = "oracle"
    every_bucket: bool = False
    every: float = TICK
    _decisions: count[int] = field(default_factory=count, init=False)

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:  # noqa: ARG002, the protocol
        """The next one."""
        due, said = self.plan[min(next(self._decisions), len(self.plan) - 1)], "as planned beforehand"
        return Answer(sum(due), said, parts=due) if isinstance(due, tuple) else Answer(due, said)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """It knows all."""


@dataclass(slots=True)
class Ours:
    """The decision core of the operator, the same function that it calls."""

    memory: Memory = field(default_factory=Memory)
    """What it learned before."""
    name: str = "servingpool"
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=TICK, init=False)
    _completing: Completing = field(default=NOTHING, init=False)

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One call of the core."""
        outcome = decide(self._completed(observation, pool, now), pool, self.memory, now)
        self.memory = outcome.memory
        decision = outcome.decision
        return Answer(decision.replicas, decision.reason, decision, tuple(part.replicas for part in decision.parts))

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """Warm-up from history, as the operator does on first sight of a pool."""
        self.memory = learn(self._completed(observation, pool, now), pool, self.memory, now)

    def _completed(self, observation: Observation, pool: Pool, now: float) -> Observation:
        observation, self._completing = completed(observation, pool.batch_limit, self._completing, now)
        return observation
