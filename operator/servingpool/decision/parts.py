"""What a decision says of each target."""

from __future__ import annotations

from typing import NamedTuple

from servingpool.decision.observation import Reading


class Part(NamedTuple):
    """What a decision says of a target."""

    target: str
    """Its name."""
    requested: int
    """What its `spec.replicas` is."""
    replicas: int
    """What its `spec.replicas` should be."""
    ready: int
    speed: Reading
    """What one of its replicas serves, in replicas of the reference target; Unknown until one of each has served."""
    cold_start: float
    """Seconds, of its own starts where it has shown one."""
    stuck: str | None = None
    """Why it does not deliver what was ordered, as a sentence; None where it does."""
    delivered: int = 0
    """Replicas that are Ready or load on a node."""
    weight: float = 1.0
    """What one of its replicas counted for: its speed, or what its price told before that was known."""
    absent: bool = False
    """What it does not deliver counts for nothing: it is not alone."""
    base: int = 0
    """Replicas that always stay."""
