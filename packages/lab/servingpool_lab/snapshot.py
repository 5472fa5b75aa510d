"""What is known of a running lab at one moment: the truth, what the operator says, and what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from servingpool.api.serving_pool import ServingPool


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event on the pool."""

    at: float
    """Unix time in seconds."""
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at everything."""

    elapsed: float
    """Seconds since the command was started."""
    unix: float
    """Unix time in seconds."""
    parts: Mapping[str, bool]
    """Each part, and whether it runs."""
    truth: Mapping[str, Any] | None = None
    """The emulator's `/truth`; None while it cannot be read."""
    series: Mapping[str, list[Any]] = field(default_factory=dict)
    """The emulator's `/truth/series`, at most 15 s old."""
    pool: ServingPool | None = None
    events: tuple[Event, ...] = ()
    """Newest last."""
    first_decision: float | None = None
    """Seconds from the command's start to the operator's first decision."""

    @property
    def seconds(self) -> float:
        """Since the first request could come; 0 before."""
        return float(self.truth["seconds"]) if self.truth else 0.0
