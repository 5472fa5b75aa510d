"""Which pools are an operator's where several write: its share, by the groups that its caches show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from servingpool.reconcile.loop import Groups, Subject

SETTLES = 15.0
"""Seconds for which a pool must have been in its group before anybody writes for it.

Watches are late: an operator may not know yet that a pool has left its group, and a write of its may be under way for
11 s more.
"""
UNKNOWN = ""
"""Group that nobody owns: of what has just been seen, the group of before is unknown."""


class Member(Protocol):
    """Part of a membership that shards need."""

    @property
    def leading(self) -> bool:
        """Whether it may write for anything now."""

    def owns(self, group: str) -> bool:
        """Whether it may begin a write for a group now."""

    def holds(self, group: str) -> bool:
        """Whether nobody else may have written for a group since it became ours."""

    def join(self) -> None:
        """Its caches are full."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """The groups of a subject since its group was last settled, the newest last."""

    groups: tuple[str, ...]
    since: float


class Shards:
    """The share of one of several operators. What is ours is ours by each group that may still count elsewhere."""

    def __init__(self, member: Member, name: str, clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds."""
        self.name: str | None = name
        self._member, self._clock = member, clock
        self._placed: dict[Subject, _Placed] = {}

    @property
    def any(self) -> bool:
        """See `Share`, here and below."""
        return self._member.leading

    def owns(self, subject: Subject) -> bool:
        """By each of its groups."""
        groups = self._groups(subject)
        return UNKNOWN not in groups and all(map(self._member.owns, groups))

    def moved(self, subject: Subject) -> bool:
        """By any of its groups."""
        groups = self._groups(subject)
        return UNKNOWN in groups or not all(map(self._member.holds, groups))

    def look(self, groups: Callable[[], Groups]) -> None:
        """The first look comes once the caches are full."""
        self._member.join()
        now, found = self._clock(), groups()
        self._placed = {subject: self._place(subject, group, now) for subject, group in found.items()}

    def _place(self, subject: Subject, group: str, now: float) -> _Placed:
        held = self._placed.get(subject, _Placed((UNKNOWN,), now))
        if held.groups[-1] != group:
            return _Placed((*(each for each in held.groups if each != group), group), now)
        return held if len(held.groups) == 1 or now - held.since < SETTLES else _Placed((group,), now)

    def _groups(self, subject: Subject) -> tuple[str, ...]:
        placed = self._placed.get(subject)
        if placed is not None:
            return placed.groups
        # In no group: such as a workload whose pool was deleted, with our marks on its pods.
        return (subject if isinstance(subject, str) else "/".join(subject),)
