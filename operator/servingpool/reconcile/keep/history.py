"""The last changes of replicas, of all targets of a pool together: when, from, to, why, by whom, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from servingpool.adapters.cluster.objects import FIELD_MANAGER, Setter, Workload
from servingpool.api.duration import parse, write
from servingpool.api.status import CHANGES, Change, Status
from servingpool.api.time import from_unix
from servingpool.reconcile.keep.orders import Ledger, Order

LONGEST_START = 3600.0
"""Seconds after which a scale-up counts as never ready: the longest cold start that a pool may state."""

UNNAMED = "unknown"
"""Name for the setter of the replicas where the API server names nobody."""


class Ready(NamedTuple):
    """The Ready replicas of all targets."""

    replicas: int
    newest: float = 0.0
    """Seconds since the last of them became Ready."""


@dataclass(frozen=True, slots=True)
class History:
    """Changes of the replicas of all targets of a pool."""

    changes: tuple[Change, ...] = ()
    """The newest first."""
    found: int | None = None
    """Replicas as the status had them, until the targets are seen; None where it had none."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Replicas of each target as last seen or ordered, by uid."""

    @classmethod
    def of_status(cls, status: Status) -> History:
        """The history in a pool's status."""
        changes = status.history
        return cls(changes, changes[0].to if changes else status.replicas)

    @property
    def replicas(self) -> int:
        """Replicas of all targets, as last seen or requested."""
        return sum(self.counts.values())

    def order_zero(self, why: str, at: float) -> tuple[Change, ...]:
        """The changes with an order of 0, before it is answered: after it nobody but the status tells whose it is."""
        return _with(self.changes, Change(at=from_unix(at), from_=self.replicas, to=0, why=why, by=FIELD_MANAGER))

    def told(self, ledgers: Iterable[Ledger], pool: str) -> tuple[Change, ...]:
        """The history for the status: with an order of 0 that is open."""
        sent = [min(one.open, key=lambda order: order.replicas) for one in ledgers if one.open]
        left = self.replicas - sum(order.before - order.replicas for order in sent)
        last = max(sent, key=lambda order: order.at, default=None)
        return self.changes if last is None or left or last.pool != pool else self.order_zero(last.why, last.at)

    def ours(self, ledgers: Iterable[Ledger]) -> bool:
        """Whether the operator has ordered the 0 replicas that the targets show, and no person who pauses scaling."""
        if self.changes and self.changes[0].to == 0:
            return self.changes[0].by == FIELD_MANAGER
        return any(one.by == FIELD_MANAGER for one in ledgers)

    def added(self, ledger: Ledger) -> int:
        """Replicas that a target has gained since the last look; 0 of a target that is new to the pool."""
        return ledger.replicas - self.counts.get(ledger.uid, ledger.replicas)

    def done(self, uid: str, order: Order, *, keep: bool) -> History:
        """The history after a carried-out order of ours. Without `keep` it is no change: it answers a contest."""
        before = self.replicas
        known = replace(self, counts={**self.counts, uid: order.replicas})
        change = Change(at=from_unix(order.at), from_=before, to=known.replicas, why=order.why, by=FIELD_MANAGER)
        return replace(known, changes=_with(self.changes, change)) if keep or change.to == 0 else known

    def see(
        self, seen: Sequence[tuple[Workload, Ledger]], ready: Ready, now: float, *, teller: Teller, keep: bool
    ) -> History:
        """The history after one more look at the targets.

        Not kept: another program keeps resetting the replicas, and the Ready condition says so. A change to 0 always
        is, for it tells whether scaling was switched off.
        """
        known = replace(self, counts={ledger.uid: ledger.replicas for _, ledger in seen})
        if not self.counts:
            return self._found(known, seen, ready, now, teller)
        moved: dict[tuple[str, str], tuple[float, int]] = {}
        for workload, ledger in seen:
            if more := self.added(ledger):
                at, by, why = teller.tells(workload, ledger, now)
                last, added = moved.get((by, why), (at, 0))
                moved[by, why] = max(last, at), added + more
        if not moved:
            return replace(known, changes=judged(self.changes, known.replicas, ready, now))
        changes, count = self.changes, known.replicas - sum(more for _, more in moved.values())
        for (by, why), (at, more) in sorted(moved.items(), key=lambda one: one[1]):
            if keep or count + more == 0:
                changes = _with(changes, _change(changes, at, count, count + more, why, by))
            count += more
        return replace(known, changes=changes)

    def _found(
        self, known: History, seen: Sequence[tuple[Workload, Ledger]], ready: Ready, now: float, teller: Teller
    ) -> History:
        """The history after the first look at the targets: another process may have changed them since."""
        before, after = self.found, known.replicas
        if before is None or before == after:
            return replace(known, changes=judged(self.changes, after, ready, now))
        at, by, why = max((teller.tells(*one, now) for one in seen), key=lambda told: (told[1] != UNNAMED, told[0]))
        last = self.changes[0] if self.changes else None
        if last is not None and last.to == 0 and last.from_ == after and by != UNNAMED and at < last.at.timestamp():
            return replace(known, changes=self.changes[1:])  # it was told, and never carried out
        return replace(known, changes=_with(self.changes, _change(self.changes, at, before, after, why, by)))


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells when the replicas of a target were set, by whom and why, as a history has it."""

    pool: str
    """Uid of the pool whose history it is."""
    wanted: int | None
    """The operator's answer so far; None if there is none."""
    scales: bool
    """An order of the operator is this pool's, and no other pool's."""

    def tells(self, workload: Workload, ledger: Ledger, now: float) -> tuple[float, str, str]:
        """Unix time in seconds, the field manager, and the reason."""
        order = ledger.order
        if order is not None and order.pool == self.pool:
            return order.at, FIELD_MANAGER, order.why
        at = min(now, _time(workload.set_by, now)) if order is None else order.at
        if ledger.by == FIELD_MANAGER:
            ours = order is None and self.scales
            rest = "and stopped before it wrote the reason" if ours else "for another ServingPool"
            return at, FIELD_MANAGER, f"The operator set the replicas {rest}."
        if self.wanted is None:
            return at, ledger.by or UNNAMED, "Another program set the replicas."
        return at, ledger.by or UNNAMED, f"Another program set the replicas; the operator's answer was {self.wanted}."


def _change(changes: tuple[Change, ...], at: float, before: int, after: int, why: str, by: str) -> Change:
    """A change that was seen, after the last one."""
    at = max(at, changes[0].at.timestamp()) if changes else at
    return Change(at=from_unix(at), from_=before, to=after, why=why, by=by)


def _with(changes: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    """The changes with a new change, which ends the change before. The orders of one decision are one change."""
    last, *others = changes or (None,)
    if last is not None and (last.at, last.by, last.why, last.to) == (change.at, change.by, change.why, change.from_):
        change = change.model_copy(update={"from_": last.from_})
        last, *others = others or (None,)
    elif last is not None and last.outcome is None:
        last = replaced(last, change.at.timestamp())
    kept = (change, *((last, *others) if last is not None else ()))
    return tuple(each for each in kept if each is not None)[:CHANGES]


def replaced(last: Change, at: float) -> Change:
    """A change that the next change ended at that time, Unix seconds, before its outcome was known."""
    lasted = max(0.0, at - last.at.timestamp())
    return last.model_copy(update={"outcome": f"replaced after {write(round(lasted))}"})


def judged(changes: tuple[Change, ...], replicas: int, ready: Ready, now: float) -> tuple[Change, ...]:
    """The changes, with the outcome of the newest one if it is known now: a scale-up took until the last was Ready."""
    if not changes or changes[0].outcome is not None or changes[0].to != replicas:
        return changes
    last, *others = changes
    lasted = max(0.0, now - last.at.timestamp())
    if last.to < last.from_:
        said = f"removed after {write(round(lasted))}" if ready.replicas <= last.to else None
    elif ready.replicas >= last.to:
        said = f"ready after {write(round(max(0.0, lasted - ready.newest)))}"
    else:
        said = f"never ready within {write(LONGEST_START)}" if lasted >= LONGEST_START else None
    return changes if said is None else (last.model_copy(update={"outcome": said}), *others)


def took(change: Change) -> tuple[str, float] | None:
    """How a change ended, such as `ready after`, and its seconds; None where that is not known."""
    ended, _, duration = (change.outcome or "").rpartition(" ")
    try:
        return (ended, parse(duration)) if ended else None
    except ValueError:  # as an earlier release wrote it
        return None


def _time(who: Setter | None, otherwise: float) -> float:
    """Unix time in seconds at which a field was set, as the API server has it."""
    try:
        return otherwise if who is None else datetime.fromisoformat(who.at).timestamp()
    except ValueError:
        return otherwise
