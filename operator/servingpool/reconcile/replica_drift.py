"""Whether another program keeps resetting a target's replicas, such as a GitOps tool whose manifest sets them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from servingpool.adapters.cluster.objects import FIELD_MANAGER, Workload
from servingpool.catalogue.conditions import Reason

ALIKE, MANY = 3, 6
"""Resets in a row by one program, to the same number or to any, after which it counts as a contest."""
WITHIN = 7200.0
"""Most seconds between two resets. Tools sync at every change, every 3 to 10 minutes, or about every hour."""
NAMELESS = "Another program, which managedFields does not name,"
"""Who sets the replicas where nobody owns the field: through the scale subresource after a scale to 0, for example."""
CALM = 600.0
"""Least seconds without a reset that end a contest; three times the time between resets, if that is longer."""


@dataclass(frozen=True, slots=True)
class ReplicaDrift:
    """Who else sets the replicas of one target. Not kept over a restart."""

    target: str = ""
    """The Deployment's uid."""
    ordered: int | None = None
    """Replicas that the operator has set; None if somebody has changed them since."""
    generation: int = 0
    """The target's generation at that time: the watch may show it for a while."""
    program: str = ""
    """The program that sets others."""
    times: tuple[float, ...] = ()
    """Unix times in seconds of the last resets."""
    number: int = 0
    """Replicas that it set last."""
    alike: int = 0
    """Resets in a row to that number."""
    instead: int = 0
    """Replicas that the operator had set before that."""
    fresh: bool = False
    """A reset was seen at the last observation, so a scale now answers it."""

    def order(self, workload: Workload, replicas: int) -> ReplicaDrift:
        """The drift after an order of ours for `replicas`."""
        return replace(self, ordered=replicas, generation=workload.generation)

    def rest(self) -> ReplicaDrift:
        """The operator may not scale: changes by people are no contest."""
        return replace(self, ordered=None)

    def see(self, workload: Workload, now: float) -> ReplicaDrift:
        """The drift after one more observation of the target."""
        if workload.uid != self.target:
            return ReplicaDrift(workload.uid)
        calmed, who = self._calmed(now), workload.set_by
        as_ordered = calmed.ordered is None or calmed.ordered == workload.replicas
        if as_ordered or workload.generation <= calmed.generation:
            return calmed
        if who is not None and who.program == FIELD_MANAGER:  # of another pool, or of a write that was taken for lost
            return replace(calmed, ordered=workload.replicas)
        if workload.generation == calmed.generation + 1:
            return calmed  # a rollout, before our order or without it: an answer to our order has a later generation
        return _set_back(calmed, NAMELESS if who is None else who.program, workload.replicas, now)

    def carried_out(self, workload: Workload) -> bool:
        """Whether the last order is what the target shows now, and nobody else is named for it."""
        ours = workload.set_by is None or workload.set_by.program == FIELD_MANAGER
        return ours and self.ordered == workload.replicas and workload.generation > self.generation

    @property
    def problem(self) -> str | None:
        """The message of ReplicasContested; None where nobody contests."""
        if self.alike < ALIKE and len(self.times) < MANY:
            return None
        return Reason.REPLICAS_CONTESTED.message(program=self.program, ordered=self.instead, found=self.number)

    @property
    def answered(self) -> bool:
        """A scale now answers a contest; it posts no event."""
        return self.fresh and self.problem is not None

    def _calmed(self, now: float) -> ReplicaDrift:
        if not self.times:
            return self
        apart = (self.times[-1] - self.times[0]) / max(1, len(self.times) - 1)
        lasts = WITHIN if self.problem is None else max(CALM, 3.0 * apart)
        if 0.0 <= now - self.times[-1] < lasts:
            return replace(self, fresh=False)
        return replace(self, program="", times=(), alike=0, fresh=False)


def _set_back(known: ReplicaDrift, program: str, number: int, now: float) -> ReplicaDrift:
    same = program == known.program
    if not same and known.problem is not None:
        return replace(known, ordered=None)  # a person, amid a tool's contest
    return replace(
        known,
        ordered=None,
        program=program,
        times=(*known.times[1 - MANY :], now) if same else (now,),
        number=number,
        alike=known.alike + 1 if same and number == known.number else 1,
        instead=known.ordered or 0,
        fresh=True,
    )
