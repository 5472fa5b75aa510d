"""Which pools are an operator's where several write: its share, by the groups that its caches show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from servingpool.gpubudget.members import Groups, Subject
from servingpool.loop.reconciler import LOOKS

SETTLES = 15.0
"""Seconds for which another operator may still count a pool in the group that it has left.

Its watch may be 3 s late, it looks every second, and a write of its may be under way for 11 s more.
"""
UNKNOWN = ""
"""Group that nobody owns: it is unknown in which group others count a pool."""


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


class Shards:
    """The share of one of several operators. What is ours is ours by each group that may still count elsewhere."""

    def __init__(
        self, member: Member, name: str, clock: Callable[[], float], listed: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`clock` is monotonic, in seconds; `listed` is the time by it at which a list has last shown an object."""
        self.name: str | None = name
        self._member, self._clock, self._listed = member, clock, listed
        self._find: Callable[[], Groups] = lambda: self._groups
        self._groups = Groups({}, {}, -1)
        self._looked = self._ruled = clock()
        """When the groups were last looked at, and when budgets or namespaces were last seen to change."""
        self._former: dict[Subject, dict[str, float]] = {}
        """Other groups in which others may count a subject, and until when."""

    @property
    def any(self) -> bool:
        """See `Share`, here and below."""
        return self._member.leading

    def owns(self, subject: Subject) -> bool:
        """By each of its groups."""
        groups = self._counted_in(subject)
        return UNKNOWN not in groups and all(map(self._member.owns, groups))

    def moved(self, subject: Subject) -> bool:
        """By any of its groups."""
        groups = self._counted_in(subject)
        return UNKNOWN in groups or not all(map(self._member.holds, groups))

    def look(self, groups: Callable[[], Groups]) -> None:
        """The first look comes once the caches are full."""
        self._member.join()
        self._find = groups
        self._see()

    def _see(self) -> None:
        """See what has changed its group.

        What comes was in no group before, and all that know it know its group: unless a list has shown it, or budgets
        and namespaces have changed, by which others may still place it elsewhere.
        """
        now, before, found = self._clock(), self._groups, self._find()
        self._looked = now
        if found is before:
            return
        if found.edition != before.edition:
            self._ruled = now
        known = max(self._ruled, self._listed()) + SETTLES
        for subject in before.names.keys() | found.names.keys():
            left = before.names.get(subject, UNKNOWN)
            if left != found.names.get(subject):
                self._former.setdefault(subject, {})[left] = known if left == UNKNOWN else now + SETTLES
        for subject, left_until in tuple(self._former.items()):
            self._former[subject] = {group: until for group, until in left_until.items() if now < until}
        self._former = {subject: groups for subject, groups in self._former.items() if groups}
        self._groups = found

    def _counted_in(self, subject: Subject) -> set[str]:
        """The groups in which a subject, and what it scales, may be counted by anybody."""
        now, found = self._clock(), set[str]()
        if now - self._looked >= LOOKS:
            self._see()
        for one in (subject, *self._groups.targets.get(subject, ())):
            # In no group: such as a workload whose pool was deleted, with our marks on its pods.
            found.add(self._groups.names.get(one) or (one if isinstance(one, str) else "/".join(one)))
            found |= {group for group, until in self._former.get(one, {}).items() if now < until}
        return found
