"""Whether somebody else keeps setting a target's replicas: a GitOps tool, say, whose manifest holds a number."""

from __future__ import annotations

from dataclasses import dataclass, field

from servingpool.adapters.cluster.objects import FIELD_MANAGER, Workload

WINDOW = 600.0
"""Seconds that being overruled counts for."""
BORNE = 2
"""How often in that time it is nobody's fault: a person who sets a number by hand, and corrects it."""


@dataclass(slots=True)
class Contest:
    """Of one target. After a restart it is found out anew."""

    ordered: int | None = None
    """Replicas that stand ordered by us; None where somebody has set others since."""
    overruled: list[float] = field(default_factory=list)
    """Unix times in seconds at which such was seen."""
    last: str = ""
    """What was done then, and by whom."""

    def see(self, workload: Workload, now: float) -> None:
        """Compare what is ordered with what we have ordered."""
        self.overruled = [at for at in self.overruled if now - WINDOW < at <= now]
        # What the watch shows of a time before our order is no answer to it, and bears our own name as a rule.
        if self.ordered in (None, workload.replicas) or workload.set_by == FIELD_MANAGER:
            return
        self.overruled.append(now)
        self.last = f"from {self.ordered} to {workload.replicas} by {workload.set_by or 'somebody'}"
        self.ordered = None

    @property
    def problem(self) -> str | None:
        """What to tell of it; None while it is no more than a person does."""
        if len(self.overruled) <= BORNE:
            return None
        return (
            f"replicas are set by somebody else too: {len(self.overruled)} times in {WINDOW / 60:.0f} minutes, last "
            f"{self.last}; leave spec.replicas out of the manifest, or have its tool ignore the field"
        )
