"""Kinds of replicas in one fleet: what one is, what it costs, and how many nodes there are for it over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

from servingpool.decision.pool import Pool, Slo, Target
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import EngineProfile

_ROUNDING = 1e-6
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of replica, on nodes of its own: a node holds one replica. Times are seconds."""

    name: str
    profile: EngineProfile
    price: float
    """Dollars of a replica for an hour, over 0."""
    cold_start: ColdStart = field(default_factory=ColdStart)
    """From the node to Ready."""
    supply: tuple[tuple[float, int], ...] = ()
    """(from when, most nodes), ascending in time from the start of the scored time; before the first as the first.
    Empty: without end."""
    notice: float | None = None
    """Before the supply falls, nodes beyond it are told so long before, and vanish: spot. None: a node in use stays."""
    evicts: bool = False
    """What follows the notice. False, as the kubelet's graceful shutdown: the pod drains, and its Deployment makes
    another one when it is gone. True, as an eviction: the other pod is made at once."""
    base: int = 0
    """Replicas that always stay."""
    most: int = 24
    """Replicas at most."""

    def __post_init__(self) -> None:
        if not self.price > 0.0 or not 0 <= self.base <= self.most:
            raise ValueError(f"need a price above 0 and 0 <= base <= most, got {self.price}, {self.base}, {self.most}")
        if any(b[0] <= a[0] for a, b in pairwise(self.supply)) or any(nodes < 0 for _, nodes in self.supply):
            raise ValueError(f"need a supply of 0 nodes or more, ascending in time, got {self.supply}")

    def nodes(self, at: float) -> float:
        """Nodes that there are."""
        steps = [nodes for begin, nodes in self.supply if begin <= at + _ROUNDING]
        return steps[-1] if steps else self.supply[0][1] if self.supply else math.inf

    def lasting(self, at: float) -> float:
        """Nodes that there are and that are not told to vanish."""
        end = at + (self.notice or 0.0) + _ROUNDING
        return min([self.nodes(at), *(nodes for begin, nodes in self.supply if at < begin <= end)])

    def events(self, begin: float, end: float) -> list[float]:
        """When nodes come, are told to vanish, or vanish, within (begin, end)."""
        turns = [at for at, _ in self.supply]
        notices = [] if self.notice is None else [at - self.notice for at in turns]
        return [at for at in (*turns, *notices) if begin < at < end]

    def standing(self, replicas: int, end: float) -> float:
        """Replica-seconds of so many replicas from 0 to `end`, as far as there are nodes."""
        turns = [0.0, *(at for at, _ in self.supply if 0.0 < at < end), end]
        return sum((after - at) * min(replicas, self.nodes(at)) for at, after in pairwise(turns))

    def later(self, seconds: float) -> Self:
        """The same with its supply so much later."""
        return replace(self, supply=tuple((at + seconds, nodes) for at, nodes in self.supply))


def pool_of(kinds: Sequence[Kind], slo: Slo) -> Pool:
    """A pool whose targets these are, of at least 1 replica; a kind alone has the pool's bounds, as the operator's."""
    least, most = max(1, sum(kind.base for kind in kinds)), sum(kind.most for kind in kinds)
    if len(kinds) == 1:
        return Pool(slo, least, most)
    return Pool(slo, least, most, targets=tuple(Target(one.name, one.price, one.base, one.most) for one in kinds))
