"""How long a replica takes from order to Ready, as measured."""

from __future__ import annotations

from dataclasses import dataclass

from servingpool.decision.observation import Replica

KEPT = 12
MOST_STARTING = 64
LONGEST = 1800.0
"""Seconds; a start that took longer waited for a node or an image, and says nothing on loading."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The last starts, in seconds, and the replicas that are starting."""

    seconds: tuple[float, ...] = ()
    loading: tuple[str, ...] = ()
    """Replicas seen while they load: for one that was Ready before, the time since its last transition may be that of
    a failed probe."""

    def update(self, ready: tuple[Replica, ...], starting: tuple[Replica, ...]) -> ColdStart:
        """Note the load time of each replica that was seen to load and is Ready now."""
        times = tuple(
            replica.load_time
            for replica in ready
            if replica.name in self.loading and replica.load_time is not None and 0.0 < replica.load_time <= LONGEST
        )
        loading = tuple(replica.name for replica in starting[:MOST_STARTING] if replica.ready_for is None)
        if not times and loading == self.loading:
            return self
        return ColdStart((self.seconds + times)[-KEPT:], loading)

    def expected(self, otherwise: float) -> float:
        """The two-thirds quantile of recent starts, in seconds: late capacity costs more than early capacity."""
        return sorted(self.seconds)[2 * len(self.seconds) // 3] if self.seconds else otherwise
