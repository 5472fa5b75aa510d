"""What was deleted while no watch was open.

After a partition of some minutes a watch is too old to go on (410 Gone), and kopf lists the kind anew; of the objects
that are not in the list any more nobody is told. A pool that was deleted meanwhile would be scaled for ever, and a pod
would for ever count as ready and unread, which forbids every scale-down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.cluster.objects import Raw

QUIET = 150.0
"""Seconds without a listed object after which a list counts as whole. kopf tries for a chunk for 54 s, and one may hang
for 60 s: cut in two, the list would take the pods of its later chunks out of the cache meanwhile."""


@dataclass(slots=True)
class _List:
    """One that is coming in."""

    began: float
    latest: float


class Relist:
    """Of one kind: when each object was last shown, and since when a list is coming in.

    `by_namespace`: each namespace is watched, and so listed, by itself.
    """

    def __init__(self, clock: Callable[[], float], *, by_namespace: bool = False) -> None:
        self._clock = clock
        self._by_namespace = by_namespace
        self._shown: dict[tuple[str, ...], float] = {}
        self._lists: dict[str, _List] = {}

    def __len__(self) -> int:
        """Objects that there are, as far as is known."""
        return len(self._shown)

    def saw(self, raw: Raw, *, listed: bool, gone: bool) -> None:
        """An object was shown, in a list or by a watch."""
        meta, now = raw["metadata"], self._clock()
        name = (raw["kind"], meta.get("namespace", ""), meta["name"], meta["uid"])
        if listed:
            self._lists.setdefault(name[1] if self._by_namespace else "", _List(now, now)).latest = now
        if gone:
            self._shown.pop(name, None)
        else:
            self._shown[name] = now

    def missed(self) -> list[dict[str, Any]]:
        """Objects that were there before the last list, were not in it, and were not shown since: once each."""
        whole = [namespace for namespace, one in self._lists.items() if self._clock() >= one.latest + QUIET]
        return [raw for namespace in whole for raw in self.before(self._lists.pop(namespace).began, namespace)]

    def before(self, time: float, namespace: str = "") -> list[dict[str, Any]]:
        """Takes out, and tells, the objects (of a namespace) that were not shown since `time`."""
        gone = [name for name, at in self._shown.items() if at < time and namespace in ("", name[1])]
        for name in gone:
            del self._shown[name]
        return [
            {"kind": kind, "metadata": {"namespace": namespace, "name": name, "uid": uid}}
            for kind, namespace, name, uid in gone
        ]
