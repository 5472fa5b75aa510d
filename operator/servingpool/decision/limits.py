"""What stands between the raw need and the answer: small steps, each of which says what it did."""

from __future__ import annotations

from dataclasses import dataclass, replace

from servingpool.decision.decision import Limit

TOO_LITTLE = "NotWorthAMove"
PARTIAL = "PartialMetrics"
QUEUE_UNKNOWN = "QueueUnknown"
CALIBRATING = "Calibrating"
WINDOW_FILLING = "WindowFilling"
REPLICAS_MISSING = "ReplicasMissing"
ROLLOUT = "RolloutInProgress"
SCALE_DOWN_WINDOW = "ScaleDownWindow"
UNSCHEDULABLE = "Unschedulable"
LEARNING_STEP = "LearningStep"
PROPORTION = "OrderInProportion"
ONE_COLD_START = "OneColdStart"
REQUESTS_WAIT = "RequestsWait"
MINIMUM = "TooFewReplicas"
MAXIMUM = "TooManyReplicas"


@dataclass(frozen=True, slots=True)
class Limited:
    """A number of replicas on its way, with the limits that changed it."""

    replicas: int
    applied: tuple[Limit, ...] = ()

    def at_least(self, least: int, name: str, reason: str) -> Limited:
        """Raise to `least` where it is below."""
        return self if self.replicas >= least else self._moved(least, name, reason)

    def at_most(self, most: int, name: str, reason: str) -> Limited:
        """Cut to `most` where it is above."""
        return self if self.replicas <= most else self._moved(most, name, reason)

    def at(self, exactly: int, name: str, reason: str) -> Limited:
        """Put it to `exactly` where it is not."""
        return self if self.replicas == exactly else self._moved(exactly, name, reason)

    def _moved(self, to: int, name: str, reason: str) -> Limited:
        limit = Limit(name=name, before=self.replicas, after=to, reason=reason)
        return replace(self, replicas=to, applied=(*self.applied, limit))
