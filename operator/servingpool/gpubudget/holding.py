"""GPUs that the pods of one target hold: requested, loading and draining replicas.

Watches are late. A fleet that was ordered smaller has pods that will go and do not say so yet, and a fleet that grows
again at once has new pods beside them. So what was ordered away is held until as many of its pods were seen to go, or
no pod too many was seen for `SETTLED`: what was ordered away may never have had one. And a replica without a pod holds
GPUs only where it had one within `SETTLED`, or where we have ordered it lately: a quota may refuse its pod for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

SETTLED = 60.0
"""Seconds, 10 to 600. A watch shows a change within a second; a watch that broke goes on within some seconds."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A target after several looks at it. `gpus` counts the GPUs that it holds."""

    ordered: int = 0
    """Requested replicas of the target that have a pod, or are about to get one."""
    stood: tuple[int, float] = (0, float("-inf"))
    """Most replicas that had pods within `SETTLED`, also pods that drain, and Unix time in seconds when they had."""
    gpus: int = 0
    pods: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """GPUs of each pod that still runs, by uid, whoever owns it now."""
    witnesses: frozenset[str] = frozenset()
    """Pods that existed when replicas were scaled away, and were not seen to go."""
    leaving: int = 0
    """Pods that still have to go, all of them `witnesses`."""
    standing: frozenset[str] = frozenset()
    """Pods that are not being deleted."""
    settling: float | None = None
    """Unix time in seconds since when no more pods exist than requested, though pods still have to go; else None."""
    first: bool = True

    def seen(
        self,
        ordered: int,
        replicas: Sequence[Mapping[str, int]],
        per: int,
        size: int,
        runs: Callable[[str], bool],
        draining: Mapping[str, int],
        sent: int,
        now: float,
    ) -> Holding:
        """The holding after another look at the pods of the target.

        `replicas`: existing replicas, each as GPUs by uid of its pods. `per`: GPUs of a whole replica of `size` pods.
        `runs` tells whether a pod seen before still holds its node. `draining`: pods that are being deleted.
        `sent`: replicas that we have ordered lately. `now` is Unix time in seconds.
        """
        stood = len(replicas) + math.ceil(len(draining) / size), now
        stood = self.stood if self.stood > stood and now - self.stood[1] < SETTLED else stood
        ordered = min(ordered, max(stood[0], sent))
        standing = {uid for pods in replicas for uid in pods}
        away = max(0, len(replicas) - ordered if self.first else self.ordered - ordered)
        witnesses = self.witnesses | self.standing | standing if away else self.witnesses
        leaving = max(0, self.leaving + away * size - len(witnesses - standing))
        settling = None
        if leaving and len(replicas) <= ordered:
            settling = now if self.settling is None or away else self.settling
            if now - settling >= SETTLED:
                leaving = 0
        witnesses = witnesses & standing if leaving else frozenset()
        going = {uid: gpus for uid, gpus in self.pods.items() if uid not in standing and runs(uid)}
        going |= {uid: gpus for uid, gpus in draining.items() if uid not in standing}
        missing = ordered + math.ceil(leaving / size) - len(replicas)
        gpus = sum(max(per, sum(pods.values())) for pods in replicas) + max(0, missing) * per + sum(going.values())
        pods = {**going, **{uid: gpus for pods in replicas for uid, gpus in pods.items()}}
        return Holding(ordered, stood, gpus, pods, witnesses, leaving, frozenset(standing), settling, first=False)

    def gone(self, runs: Callable[[str], bool]) -> Holding:
        """The holding after the target is gone: its pods may drain for long."""
        pods = {uid: gpus for uid, gpus in self.pods.items() if runs(uid)}
        return Holding(gpus=sum(pods.values()), pods=pods, first=False)
