"""What the loop keeps of each target between two ticks: who else sets its replicas, and how our own orders end."""

from __future__ import annotations

from dataclasses import dataclass, field

from servingpool.adapters.cluster.objects import Workload
from servingpool.reconcile.replica_drift import ReplicaDrift


@dataclass(slots=True)
class TargetState:
    """One target of a pool."""

    drift: ReplicaDrift = field(default_factory=ReplicaDrift)
    outcome_unknown: float | None = None
    """Unix time in seconds of the last scale, while its result is unknown."""
    conflicts: int = 0
    """Scales in a row that failed because the target had changed."""
    refused_at: int | None = None
    """Replicas that it had then, as far as was known."""
    _before_order: tuple[ReplicaDrift, float | None] = (ReplicaDrift(), None)
    """`drift` and `outcome_unknown` before the scale that is under way."""

    def seen(self, workload: Workload, now: float) -> float | None:
        """The target as it is now. If that shows that an order without an answer was carried out, when it was sent."""
        self.drift = self.drift.see(workload, now)
        if self.outcome_unknown is None or not self.drift.carried_out(workload):
            return None
        sent, self.outcome_unknown = self.outcome_unknown, None
        return sent

    def rest(self) -> None:
        """The operator may not scale it."""
        self.drift = self.drift.rest()

    def order_sent(self, target: Workload, replicas: int, now: float) -> None:
        """It counts as done until an answer says otherwise: the tick may end before the answer."""
        self._before_order = self.drift, self.outcome_unknown
        self.drift, self.outcome_unknown = self.drift.order(target, replicas), now

    def order_done(self) -> None:
        """The API server has set the replicas."""
        self.conflicts, self.outcome_unknown = 0, None

    def order_failed(self, *, unknown: bool) -> None:
        """The order failed; `unknown`: it may have been carried out."""
        self.conflicts = 0
        if not unknown:
            self.drift, self.outcome_unknown = self._before_order

    def order_conflicted(self, target: Workload) -> int:
        """The target is not as it was decided on. How often in a row."""
        self.drift, self.outcome_unknown = self._before_order
        # A change by others shows a new number; a refusal leaves the old one.
        self.conflicts = self.conflicts + 1 if self.refused_at == target.replicas else 1
        self.refused_at = target.replicas
        return self.conflicts
