"""The last changes of replicas, of all targets of a pool together: when, from, to, why, by whom, and how they ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from servingpool.adapters.cluster.objects import FIELD_MANAGER, Setter, Workload
from servingpool.api.duration import brief
from servingpool.api.status import CHANGES, Change, Status
from servingpool.api.time import from_unix
from servingpool.catalogue.notes import Note

LONGEST_START = 3600.0
"""Seconds after which a scale-up counts as never ready: the longest cold start that a pool may state."""


@dataclass(frozen=True, slots=True)
class History:
    """Of all targets of a pool together."""

    changes: tuple[Change, ...] = ()
    """The newest first."""
    replicas: int | None = None
    """As last seen or ordered; None where nothing is known."""
    target: str = ""
    """The uids of the targets; empty until they were seen."""
    generation: int = 0
    """The target's at our last order: the watch may show it for a while."""
    sent: Change | None = None
    """Our order without an answer so far."""

    @classmethod
    def found(cls, status: Status) -> History:
        """As the status of a pool has it."""
        changes = status.history
        return cls(changes, changes[0].to if changes else status.replicas)

    @property
    def told(self) -> tuple[Change, ...]:
        """As the status has it. An order of 0 stands there before it is answered: nothing else tells whose it is."""
        return self.changes if self.sent is None or self.sent.to > 0 else _with(self, self.sent).changes

    def ours(self, workload: Workload) -> bool:
        """Whether the replicas that the targets show are what the operator ordered last.

        By what it remembers, which the status keeps. The API server tells nobody after a scale to 0, nor where a
        manifest was applied without the number.
        """
        if workload.set_by is not None and workload.set_by.program == FIELD_MANAGER:
            return True
        if self.generation and workload.generation <= self.generation:
            return True  # as it was before our last order
        last = self.changes[0] if self.changes else None
        return last is not None and last.by == FIELD_MANAGER and last.to == self.replicas == workload.replicas

    def order(self, workload: Workload, replicas: int, why: str, now: float) -> History:
        """An order of ours is sent."""
        sent = Change(at=from_unix(now), from_=workload.replicas, to=replicas, why=why, by=FIELD_MANAGER)
        return replace(self, sent=sent, target=workload.uid)

    def refused(self) -> History:
        """The order was certainly not carried out."""
        return replace(self, sent=None)

    def done(self, workload: Workload, *, keep: bool) -> History:
        """The order was carried out, on a target as `workload`. Not kept: it is one of many that answer a contest."""
        if self.sent is None:
            return self
        known = replace(self, replicas=self.sent.to, generation=workload.generation, sent=None)
        return _with(known, self.sent) if keep else known

    def see(
        self, workload: Workload, ready: int, now: float, *, wanted: int | None, scales: bool, keep: bool
    ) -> History:
        """The history after one more look at the target, which has `ready` replicas.

        `wanted` is the operator's answer so far; None if there is none. `scales`: an order of the operator is this
        pool's, and no other pool's. Not kept: another program keeps resetting the replicas, and the Ready condition
        says so.
        """
        if self.target not in {"", workload.uid}:
            return History(self.changes, workload.replicas, workload.uid)
        known = replace(self, target=workload.uid)
        if known.replicas is None:
            return replace(known, replicas=workload.replicas)
        if workload.replicas == known.replicas:
            return replace(known, changes=judged(known.changes, workload.replicas, ready, now))
        if known.generation and workload.generation <= known.generation + 1:
            return known  # of before our order, or a rollout just before it
        change = _seen(known, known.replicas, workload, now, wanted, scales=scales)
        ours = change.by == FIELD_MANAGER
        known = replace(known, replicas=workload.replicas, sent=None if ours else known.sent)
        return _with(known, change) if keep else known


def _seen(known: History, before: int, workload: Workload, now: float, wanted: int | None, *, scales: bool) -> Change:
    """The change that the target shows. An order of ours without an answer is told as it was sent."""
    who, sent = workload.set_by, known.sent
    by = "unknown" if who is None else who.program
    if (who is None or by == FIELD_MANAGER) and sent is not None and sent.to == workload.replicas:
        return sent
    if by == FIELD_MANAGER:
        why = Note.UNRECORDED_ORDER.message() if scales else Note.SET_FOR_OTHER_POOL.message()
    elif wanted is None:
        why = Note.SET_BY_OTHER.message()
    else:
        why = Note.SET_BY_OTHER_WANTED.message(replicas=wanted)
    at = min(now, _time(who, now))
    if known.changes:
        at = max(at, known.changes[0].at.timestamp())
    return Change(at=from_unix(at), from_=before, to=workload.replicas, why=why, by=by)


def _with(known: History, change: Change) -> History:
    """The history with a new change, which ends the one before. The orders of one decision are one change."""
    last, *others = known.changes or (None,)
    if last is not None and (last.at, last.by, last.why, last.to) == (change.at, change.by, change.why, change.from_):
        change = change.model_copy(update={"from_": last.from_})
        last, *others = others or (None,)
    elif last is not None and last.outcome is None:
        last = replaced(last, change.at.timestamp())
    kept = (change, *((last, *others) if last is not None else ()))
    return replace(known, changes=tuple(each for each in kept if each is not None)[:CHANGES])


def replaced(last: Change, at: float) -> Change:
    """A change that another one ended at that time, Unix seconds, before its outcome was known."""
    lasted = max(0.0, at - last.at.timestamp())
    return last.model_copy(update={"outcome": Note.REPLACED_AFTER.message(duration=brief(lasted))})


def judged(changes: tuple[Change, ...], replicas: int, ready: int, now: float) -> tuple[Change, ...]:
    """The changes, with the outcome of the newest one if it is known now."""
    if not changes or changes[0].outcome is not None or changes[0].to != replicas:
        return changes
    last, *others = changes
    lasted = max(0.0, now - last.at.timestamp())
    if last.to < last.from_:
        said = Note.REMOVED_AFTER.message(duration=brief(lasted)) if ready <= last.to else None
    elif ready >= last.to:
        said = Note.READY_AFTER.message(duration=brief(lasted))
    else:
        said = Note.NEVER_READY.message(duration=brief(LONGEST_START)) if lasted >= LONGEST_START else None
    return changes if said is None else (last.model_copy(update={"outcome": said}), *others)


def _time(who: Setter | None, otherwise: float) -> float:
    """When a field was set, in seconds of Unix time, as the API server has it."""
    try:
        return otherwise if who is None else datetime.fromisoformat(who.at).timestamp()
    except ValueError:
        return otherwise
