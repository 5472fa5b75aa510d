"""What the pods of one target hold: replicas that are ordered, those that load, and those that drain.

Watches are late. A fleet that was ordered smaller has pods that will go and do not say so yet, and a fleet that grows
again at once has new pods beside them. So what was ordered away is held until as many of its pods were seen to go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Holding:
    """One target, after several looks at it. `gpus` counts what it holds."""

    ordered: int = 0
    """Replicas that it asks for."""
    gpus: int = 0
    pods: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """GPUs of each pod that still runs, by uid, whoever owns it now."""
    witnesses: frozenset[str] = frozenset()
    """Pods that stood when replicas were ordered away."""
    leaving: int = 0
    """Pods that have to go, `witnesses` then."""
    first: bool = True

    def seen(
        self,
        ordered: int,
        replicas: Sequence[Mapping[str, int]],
        per: int,
        size: int,
        runs: Callable[[str], bool],
        draining: Mapping[str, int],
    ) -> Holding:
        """After another look.

        `replicas`: those that stand, each with the GPUs of its pods by uid. `per`: GPUs of a whole replica, of `size`
        pods. `runs` tells whether a pod seen before still holds its node. `draining`: pods that are being deleted.
        """
        standing = {uid for pods in replicas for uid in pods}
        leaving = max(0, self.leaving - sum(uid not in standing for uid in self.witnesses))
        witnesses = self.witnesses & standing if leaving else frozenset()
        away = len(replicas) - ordered if self.first else self.ordered - ordered
        if away > 0:
            witnesses, leaving = frozenset(standing), leaving + away * size
        going = {uid: gpus for uid, gpus in self.pods.items() if uid not in standing and runs(uid)}
        going |= {uid: gpus for uid, gpus in draining.items() if uid not in standing}
        missing = ordered + math.ceil(leaving / size) - len(replicas)
        gpus = sum(max(per, sum(pods.values())) for pods in replicas) + max(0, missing) * per + sum(going.values())
        pods = {**going, **{uid: gpus for pods in replicas for uid, gpus in pods.items()}}
        return Holding(ordered, gpus, pods, witnesses, leaving, first=False)

    def gone(self, runs: Callable[[str], bool]) -> Holding:
        """After its target is gone: its pods may drain for long."""
        pods = {uid: gpus for uid, gpus in self.pods.items() if runs(uid)}
        return Holding(0, sum(pods.values()), pods, first=False)
