"""The bounds in force: the pool's own, or those of its schedules' windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from servingpool.catalogue.notes import Note


class Beside(NamedTuple):
    """Replicas of the other role, which a bound follows from."""

    replicas: int
    role: str
    """The other one."""
    ratio: bool
    """The pool's ratio asks for the bound; otherwise it is 1, because neither role is at 0 replicas alone."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A number of replicas, and where it comes from. `str` tells both."""

    replicas: int
    schedule: str | None = None
    """The schedule that gives it; None where it is the pool's own."""
    begins_in: float = 0.0
    """Seconds until the schedule's window begins; 0 within it."""
    beside: Beside | None = None
    """What it goes with, where it follows from replicas of the other role."""

    def __str__(self) -> str:
        if self.schedule is None:
            return f"{self.replicas}"
        if self.begins_in > 0.0:
            return Note.BEFORE_SCHEDULE.message(replicas=self.replicas, schedule=self.schedule, seconds=self.begins_in)
        return Note.BY_SCHEDULE.message(replicas=self.replicas, schedule=self.schedule)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most replicas that a decision may answer."""

    least: Bound
    most: Bound

    @property
    def schedules(self) -> tuple[str, ...]:
        """Names of the schedules that give one."""
        return tuple(dict.fromkeys(one.schedule for one in (self.least, self.most) if one.schedule is not None))


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which a schedule's bounds count."""

    schedule: str
    """Its name."""
    begin: float
    """Unix time in seconds."""
    end: float
    min_replicas: int | None
    """None for the pool's own."""
    max_replicas: int | None
    """None for the pool's own."""
    ahead: float = 1.0
    """How many times as long before it begins its min is ordered: more where replicas start one after another."""

    def bounds(self, own: Bounds, now: float) -> Bounds:
        """Its bounds, `own` being the pool's."""
        begins_in = max(0.0, self.begin - now)
        least, most = (
            other if replicas is None else Bound(replicas, self.schedule, begins_in)
            for replicas, other in ((self.min_replicas, own.least), (self.max_replicas, own.most))
        )
        return Bounds(least, most)


def in_force(own: Bounds, windows: Iterable[Window], now: float, ahead: float) -> Bounds:
    """The bounds at `now`, Unix time in seconds; the order of the windows does not matter.

    Windows in force replace the pool's own bounds. Of several the highest min and the highest max count, so that min is
    never above max. A window that begins within `ahead` seconds only raises: what is ordered now serves then.
    """
    windows = [one for one in windows if one.begin <= now + ahead * one.ahead and now < one.end]
    found = [one.bounds(own, now) for one in windows]
    if all(one.begin > now for one in windows):
        found.append(own)
    return Bounds(min((one.least for one in found), key=_order), min((one.most for one in found), key=_order))


def _order(bound: Bound) -> tuple[int, float, str]:
    return -bound.replicas, bound.begins_in, bound.schedule or ""
