"""The targets of a pool: what is given of each."""

from __future__ import annotations

import math
from dataclasses import dataclass

ONLY = "only"
"""The target of a pool, a replica or an observation that names none."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a pool: a kind of GPU, spot or on demand, a size of tensor parallelism."""

    name: str = ONLY
    """Unique in the pool."""
    price: float = 1.0
    """Of a replica for an hour, above 0: dollars where they are known of every target, else GPUs."""
    base: int = 0
    """Replicas that always stay, whatever the others cost; at zero none does."""
    most: int = 2**31 - 1
    """Replicas at most."""
    batch_limit: float = math.inf
    """Requests, at least 1, that a replica of it runs at a time at most; infinite where its arguments do not tell."""

    def __post_init__(self) -> None:
        if not self.price > 0.0:
            raise ValueError(f"need a price above 0, got {self.price} for {self.name}")
        if not 0 <= self.base <= self.most:
            raise ValueError(f"need 0 <= base <= most replicas, got base {self.base}, most {self.most} for {self.name}")
        if not self.batch_limit >= 1.0:
            raise ValueError(f"need a batch limit of at least 1, got {self.batch_limit} for {self.name}")
