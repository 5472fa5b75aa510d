"""How long a replica takes from order to Ready, as it was seen to take."""

from __future__ import annotations

from dataclasses import dataclass

from servingpool.decision.observation import Replica

KEPT = 12
LONGEST = 1800.0
"""Seconds; a start that took longer waited for a node or an image, and says nothing on loading."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The last start-ups, in seconds, and whose they were."""

    seconds: tuple[float, ...] = ()
    replicas: tuple[str, ...] = ()

    def learn(self, ready: tuple[Replica, ...]) -> ColdStart:
        """Note the load time of each replica not noted before."""
        fresh = [
            (replica.name, replica.load_time)
            for replica in ready
            if replica.load_time is not None
            and 0.0 < replica.load_time <= LONGEST
            and replica.name not in self.replicas
        ]
        if not fresh:
            return self
        names = self.replicas + tuple(name for name, _ in fresh)
        return ColdStart((self.seconds + tuple(time for _, time in fresh))[-KEPT:], names[-4 * KEPT :])

    def expected(self, otherwise: float) -> float:
        """The slower third of recent starts, in seconds: late capacity costs more than early capacity."""
        if not self.seconds:
            return otherwise
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, (2 * len(ordered)) // 3)]
