"""What one target of a pool claims of a GPU budget, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One target of a pool under a budget, as it was decided on last."""

    pool: str
    """Its name, as sentences tell it: the pool's, with the target's where it has several; unique in the budget."""
    gpus: int
    """GPUs of one replica; 0 where its replicas use none of this budget."""
    ordered: int
    """Replicas that its target asks for now."""
    held: int
    """GPUs that its pods hold: ordered, loading and draining."""
    wanted: int
    """Replicas that its decision asks for, with every other limit applied."""
    misses: tuple[float, ...] | None
    """Expected misses with 0, 1, ... replicas, `wanted` and beyond, to where one more avoids none. In multiples of what
    the SLO allows, each miss in the GPU time that it costs over that of a replica. None where the need is unknown: then
    it keeps what it has."""
    least: int = 0
    """Its min in force."""
    floor: int = 0
    """GPUs that are its own before anybody's min and need."""
    priority: int = 0
    fixed: bool = False
    """Nobody sets its replicas (Paused, Recommend, another owner), or its GPUs are unknown: it keeps what it holds, and
    orders nothing. What it holds beyond its floor is out of what others do not hold: it takes nothing from them."""
    placed: int | None = None
    """Replicas of `ordered` that have a node; None for all. The others hold no GPU, and may never get one."""
    max_change: float = float("inf")
    """Replicas that it may lose in one step."""
    optional: int = 0
    """Replicas of `wanted` that only replace others or are tried: a pool that does not get them lacks nothing."""
    pair: str = ""
    """Its pool, where that has prefill and decode and all their targets lie in the budget: neither role gets a replica
    without one of the other. Empty for others."""
    role: str = ""
    """Where it is one of a pair."""

    @property
    def standing(self) -> int:
        """Replicas that have a node."""
        return self.ordered if self.placed is None else min(self.ordered, self.placed)

    @property
    def own(self) -> int:
        """GPUs of its floor that it uses, where nobody sets its replicas."""
        return min(self.standing * self.gpus, self.floor)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a pool may do now."""

    most: int
    """Replicas that it may order: never more GPUs than are free now."""
    share: int
    """Replicas that are its due once everybody has given up what is not theirs."""
    waits_for: tuple[str, ...] = ()
    """Pools that hold GPUs which are due to this one; empty where it waits for nobody."""
    detail: str = ""
    """Why it gets no more, as the end of a sentence; empty where it gets all that it wants."""
    firm: int = 0
    """Replicas of its share that are its floor, or its min beside all floors: those that no other pool can take, and
    that pods without a node keep nobody from."""
