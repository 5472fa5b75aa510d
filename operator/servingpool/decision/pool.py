"""What the user asked for, in the core's own units."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from servingpool.decision.bounds import Bound, Bounds, Window, in_force
from servingpool.decision.params import DEFAULT, Params
from servingpool.decision.slo import Slo
from servingpool.decision.targets import Target


@dataclass(frozen=True, slots=True)
class Pool:
    """What a decision needs to know of a ServingPool's spec."""

    slo: Slo
    min_replicas: int
    """Of all targets together; so `max_replicas`."""
    max_replicas: int
    in_charge: bool = True
    """False in Recommend and Paused: its decisions are not carried out, so nothing may wind up."""
    params: Params = DEFAULT
    windows: tuple[Window, ...] = ()
    """Of its schedules, those around the time that is decided on."""
    max_change: float = math.inf
    """Replicas, at least 1, that one decision may add or remove at most."""
    idle_after: float | None = None
    """Seconds without a request after which a fleet with min 0 goes to 0; None where it never does."""
    gateway: str = ""
    """The gateway that tells of demand at 0 replicas."""
    targets: tuple[Target, ...] = (Target(),)
    """In the order of the spec, at least one."""
    prefills: bool = False
    """Its engines prefill for decode engines, or their answers are short (`ShortAnswers.by_prompt`): the tokens that
    they generate beyond the first say little of that work."""
    paired: bool = False
    """It is prefill or decode: the other role's size follows from what this one has, so what never comes counts for
    nothing."""
    starts: int = 1
    """Cold starts, one after another, until all that is ordered serves; 1 where replicas start together."""
    beside: Bound | None = None
    """The min, where it is one that follows from replicas of the other role."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(f"need 0 <= min <= max replicas, got min {self.min_replicas}, max {self.max_replicas}")
        if not self.targets:
            raise ValueError("need at least one target")
        if not self.max_change >= 1.0:
            raise ValueError(f"need a largest change of at least 1, got {self.max_change}")
        if not self.starts >= 1:
            raise ValueError(f"need at least 1 start, got {self.starts}")
        for window in self.windows:
            bounds = window.bounds(self._own, window.begin)
            if not 0 <= bounds.least.replicas <= bounds.most.replicas:
                raise ValueError(f"need 0 <= min <= max replicas, got min {bounds.least}, max {bounds.most}")

    @property
    def batch_limit(self) -> float:
        """Requests that a replica of any target runs at a time at most; infinite where no target's arguments tell."""
        return min(target.batch_limit for target in self.targets)

    @property
    def _own(self) -> Bounds:
        return Bounds(self.beside or Bound(self.min_replicas), Bound(self.max_replicas))

    def bounds(self, now: float, ahead: float) -> Bounds:
        """The bounds in force at `now`, Unix time in seconds; windows that begin within `ahead` seconds raise them."""
        return in_force(self._own, self.windows, now, ahead)

    def within(self, bounds: Bounds) -> Self:
        """The pool with these bounds as its own."""
        if not self.windows:
            return self
        least, most = bounds.least.replicas, bounds.most.replicas
        return replace(self, min_replicas=least, max_replicas=most, windows=())

    def whole(self, replicas: float) -> float:
        """Whole replicas of one target; of several they are replicas of the reference, and parts of them count."""
        return math.ceil(replicas) if len(self.targets) == 1 else replicas
