"""What the user asked for, in the core's own units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from servingpool.decision.params import DEFAULT, Params
from servingpool.decision.slo import Slo


@dataclass(frozen=True, slots=True)
class Pool:
    """What a decision needs to know of a ServingPool's spec."""

    slo: Slo
    min_replicas: int
    max_replicas: int
    in_charge: bool = True
    """False in Recommend and Paused: its decisions are not carried out, so nothing may wind up."""
    batch_limit: float = math.inf
    """Requests that one replica runs at a time at most, at least 1; infinite where its arguments do not tell."""
    params: Params = DEFAULT

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(f"need 0 <= min <= max replicas, got min {self.min_replicas}, max {self.max_replicas}")
        if not self.batch_limit >= 1.0:
            raise ValueError(f"need a batch limit of at least 1, got {self.batch_limit}")
