"""Whether somebody else keeps setting a target's replicas: a GitOps tool, say, whose manifest holds a number."""

from __future__ import annotations

from dataclasses import dataclass, replace

from servingpool.adapters.cluster.objects import FIELD_MANAGER, Setter, Workload

OFTEN = 3
"""Times in a row that the same program sets the same number, until it is one that keeps to it. People set others."""
WITHIN = 3600.0
"""Seconds from one to the next, at most. Tools look at every change, or every 3 to 10 minutes."""
CALM = 600.0
"""Seconds without any, at least, until it is over; three times as long as from one to the next, where that is more."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Of one target. After a restart it is found out anew."""

    target: str = ""
    """The Deployment's uid."""
    ordered: int | None = None
    """Replicas that stand ordered by us; None where somebody has set others since."""
    before: Setter | None = None
    """Who had set what that order was given on: for a while the watch may go on to show it."""
    rival: tuple[str, int] | None = None
    """The program that has last set others, and how many."""
    times: tuple[float, ...] = ()
    """Unix times in seconds at which the last few were seen, in a row."""
    instead: int = 0
    """What we had ordered the last time."""

    def order(self, workload: Workload, replicas: int) -> Contest:
        """Behind an order of ours, given on what is known of the target."""
        return replace(self, target=workload.uid, ordered=replicas, before=workload.set_by)

    def rest(self) -> Contest:
        """While nothing may be ordered: what people do then is no contest."""
        return replace(self, ordered=None)

    def see(self, workload: Workload, now: float) -> Contest:
        """Behind a look at the target."""
        if workload.uid != self.target:
            return Contest(workload.uid)
        calmed, who = self._calmed(now), workload.set_by
        if calmed.ordered is None or calmed.ordered == workload.replicas or who is None or who == calmed.before:
            return calmed
        if who.program == FIELD_MANAGER:  # of another pool, or of a write that was taken for lost
            return replace(calmed, ordered=workload.replicas)
        rival = (who.program, workload.replicas)
        times = (*calmed.times[1 - OFTEN :], now) if rival == calmed.rival else (now,)
        return replace(calmed, ordered=None, rival=rival, times=times, instead=calmed.ordered)

    @property
    def problem(self) -> str | None:
        """What to tell of it; None where there is nothing."""
        if self.rival is None or len(self.times) < OFTEN:
            return None
        program, replicas = self.rival
        return (
            f"{program} keeps setting {replicas} replicas, last where {self.instead} had been ordered; "
            "have it leave spec.replicas alone"
        )

    def _calmed(self, now: float) -> Contest:
        if not self.times:
            return self
        apart = (self.times[-1] - self.times[0]) / max(1, len(self.times) - 1)
        lasts = max(CALM, 3.0 * apart) if len(self.times) == OFTEN else WITHIN
        return self if 0.0 <= now - self.times[-1] < lasts else replace(self, rival=None, times=())
