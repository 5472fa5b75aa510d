"""The backlog of a pool whose work has deadlines or a rate: what waits, by when it is due, and what it costs.

All is counted in one unit, see `Batch.unit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from servingpool.decision.observation import EPSILON, Reading, Unknown
from servingpool.decision.params import DEFAULT
from servingpool.decision.pool import Batch

DEADLINES = 48
"""Deadlines that are told apart within the time that a request may take."""


class Due(NamedTuple):
    """Work that is due at one time."""

    at: float
    """Unix time in seconds."""
    amount: float
    """Requests or tokens."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The work that waits, by deadline, and what it costs."""

    at: float = 0.0
    """Unix time in seconds of the last update."""
    dues: tuple[Due, ...] = ()
    """The earliest deadline first."""
    known_at: float | None = None
    """Unix time in seconds at which the backlog was known last."""
    busy_at: float = 0.0
    """Unix time in seconds at which something waited or ran last, or may have."""
    cost: float | None = None
    """Replica-seconds of a request or a token; None before it was known."""
    spread: float = DEFAULT.prior_error
    """Relative spread of the cost over some hours."""
    had: float = 0.0
    """Replicas when it last had all that it wanted: of these it may lend some."""
    unit: str = "requests"
    """The unit of all amounts."""
    overdue: float = 0.0
    """What the broker called late at the last update: one wrong answer would stay in the ledger until all is done."""

    def update(self, waiting: Reading, running: float, served: float, batch: Batch, now: float) -> Ledger:
        """The ledger after so much left the queues, with so much that waits and runs now.

        Queues are first in, first out. What came while the backlog was unknown counts as having come at once, and half
        of its time is left at least.
        """
        if isinstance(waiting, Unknown):
            return replace(self, at=now, dues=self._after(served), busy_at=now)
        dues = self._after(max(served, self.waiting - waiting))
        more = waiting - math.fsum(one.amount for one in dues)
        if more > EPSILON:
            last = batch.due(now if self.known_at is None else max(min(self.known_at, now), now - 0.5 * batch.within))
            dues = tuple(one._replace(at=min(one.at, last)) for one in dues)  # where less time is given than before
            near = dues and last - dues[-1].at <= (last - now) / DEADLINES
            dues = (*dues[:-1], Due(dues[-1].at, dues[-1].amount + more)) if near else (*dues, Due(last, more))
        late = [one for one in dues if one.at <= now]
        if late:  # one entry, or the ledger of a pool that never catches up would grow for ever
            dues = (Due(late[0].at, math.fsum(one.amount for one in late)), *dues[len(late) :])
        busy = bool(dues) or running > 0.0 or self.known_at is None
        return replace(self, at=now, dues=dues, known_at=now, busy_at=now if busy else self.busy_at)

    def costing(self, cost: float | None, elapsed: float) -> Ledger:
        """The ledger with the present cost, seen for `elapsed` seconds; None where nothing shows it."""
        if cost is None or self.cost is None:
            return replace(self, cost=self.cost or cost)
        apart = abs(math.log(cost / self.cost))
        return replace(
            self,
            cost=self.cost * (cost / self.cost) ** min(1.0, elapsed / DEFAULT.mean_window),
            spread=self.spread + (apart - self.spread) * min(1.0, elapsed / DEFAULT.evidence_memory),
        )

    def sooner(self, told: Iterable[Due]) -> Ledger:
        """The ledger in which so much is due by each time, in all and at least, as `told`, in ascending order."""
        ruled = zip((one.at for one in self.dues), accumulate(one.amount for one in self.dues), strict=True)
        rows = sorted((*ruled, *told))
        if len(rows) == len(self.dues):
            return self
        most = (min(self.waiting, due) for due in accumulate((due for _, due in rows), max))
        parts = zip(rows, pairwise((0.0, *most)), strict=True)
        dues = [Due(at, after - before) for (at, _), (before, after) in parts if after - before > EPSILON]
        return replace(self, dues=tuple(dues))

    @property
    def waiting(self) -> float:
        """All that waits, in requests or tokens."""
        return math.fsum(one.amount for one in self.dues)

    def _after(self, done: float) -> tuple[Due, ...]:
        """What is left once so much of the earliest is done."""
        left = zip(self.dues, (each - done for each in accumulate(one.amount for one in self.dues)), strict=True)
        return tuple(Due(one.at, min(one.amount, rest)) for one, rest in left if rest > EPSILON)
