"""Every change of a fleet's size in a run, with what the policy said for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from servingpool.decision.decision import Decision
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool
from servingpool_simulation.policies import Answer, Wrapped


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the replicas asked for."""

    at: float
    """Seconds since the policy's first decision."""
    before: int
    after: int
    ready: int
    """Replicas that served when it was decided."""
    reason: str
    decision: Decision | None
    """In full, from our own core; None from other policies."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Keys: at, before, after, ready, reason, need (null where unknown), limits."""
        need = None if self.decision is None else self.decision.need
        limits = () if self.decision is None else self.decision.limits
        return {
            "at": self.at,
            "before": self.before,
            "after": self.after,
            "ready": self.ready,
            "reason": self.reason,
            "need": None if isinstance(need, Unknown) else need,
            "limits": [asdict(limit) for limit in limits],
        }


@dataclass(slots=True)
class Watched(Wrapped):
    """A policy with somebody looking over its shoulder. An object serves one run, as the policy does."""

    on_decision: Callable[[float], None] = lambda _: None
    """Called after each decision, with the seconds since the first."""
    changes: list[Change] = field(default_factory=list, init=False)
    _began: float | None = field(default=None, init=False)

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """The policy's answer, noted where it changes something."""
        answer = self.policy.decide(observation, pool, now)
        began = self._began = now if self._began is None else self._began
        before, ready = observation.requested, len(observation.ready)
        if answer.replicas != before:
            self.changes.append(Change(now - began, before, answer.replicas, ready, answer.reason, answer.decision))
        self.on_decision(now - began)
        return answer
