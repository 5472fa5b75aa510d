"""What a trial of more replicas found: the memory of `need/anchor.py`."""

from __future__ import annotations

import math
from typing import NamedTuple

from servingpool.decision.words import clock, shown


class Step(NamedTuple):
    """A larger fleet, and what it did."""

    before: float
    """Replicas."""
    after: float
    late: float
    """Share late before."""
    work: float
    """Counted work, in replicas kept busy."""
    then: float | None = None
    """Share late after, where that is no fair part of what was to be saved; None while it is on trial."""


class Trial(NamedTuple):
    """What may be ordered, and what more replicas did."""

    free: float = math.inf
    """Replicas that are ordered at once."""
    replicas: float = 0.0
    """Replicas on trial, or proven."""
    ready_at: float | None = None
    """Unix time in seconds since which all that may be ordered serve; None where some do not."""
    step: Step | None = None
    """The step that is on trial, or that did not help."""
    pause: float = 0.0
    until: float = 0.0
    """Unix time in seconds before which no step is tried."""
    hopeless: str | None = None
    """Why no fleet size helps; None where some may."""

    @property
    def most(self) -> float:
        """Replicas that may be ordered."""
        return max(self.free, self.replicas)

    @property
    def failed(self) -> str | None:
        """Why more replicas do not help, as a sentence; None where they may."""
        if self.hopeless is not None or self.step is None or self.step.then is None:
            return self.hopeless
        before, after, late, _, then = self.step
        moved = f"from {shown(before)} to {shown(after)} replicas late requests went from {late:.0%} to {then:.0%}"
        return f"{moved}: more replicas did not help; tried again at {clock(self.until)}"

    @property
    def why(self) -> str:
        """Why no more are ordered, as a sentence."""
        return self.failed or "counted work asks for no more, and others come in steps while requests are late"
