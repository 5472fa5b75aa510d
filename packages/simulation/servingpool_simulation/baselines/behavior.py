"""How the HPA v2 gets from wanted to ordered replicas: stabilisation windows, limits on speed, bounds."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.windows import Window


class Behavior(Protocol):
    """One HPA's; it remembers, so an object serves one run."""

    def order(self, wanted: int, current: int, pool: Pool, now: float) -> int:
        """Replicas to set. `current` is the target's `spec.replicas`, `now` Unix seconds."""


@dataclass(slots=True)
class Unset:
    """`behavior` left out: down to the highest of 300 s, up by doubling, or to 4."""

    _down: Window = field(default_factory=lambda: Window(300.0, closed=True), init=False)

    def order(self, wanted: int, current: int, pool: Pool, now: float) -> int:
        """Replicas to set."""
        stable = max(self._down.add(now, wanted, current))
        limited = min(stable, max(2 * current, 4))
        return bounded(limited, pool)


@dataclass(frozen=True, slots=True)
class Limit:
    """A scaling policy: so much change at most within a period. One of the two amounts is set."""

    period: float
    """Seconds."""
    pods: int | None = None
    percent: float | None = None

    def most(self, start: int) -> int:
        """The most replicas that `start` may become on the way up."""
        return start + self.pods if self.pods is not None else math.ceil(start * (1 + (self.percent or 0.0) / 100))

    def fewest(self, start: int) -> int:
        """The fewest replicas that `start` may become on the way down."""
        return start - self.pods if self.pods is not None else math.floor(start * (1 - (self.percent or 0.0) / 100))


class Select(StrEnum):
    """Which of several limits counts (selectPolicy)."""

    MAX = "Max"
    """The one that allows the most change."""
    MIN = "Min"
    DISABLED = "Disabled"
    """No change in this direction."""


UP = (Limit(15.0, pods=4), Limit(15.0, percent=100))
"""HPA's scaleUp policies where `behavior` names none."""
DOWN = (Limit(15.0, percent=100),)
"""HPA's scaleDown policies where `behavior` names none."""


@dataclass(slots=True)
class Configured:
    """`behavior` set."""

    up: tuple[Limit, ...] = UP
    down: tuple[Limit, ...] = DOWN
    up_window: float = 0.0
    """Seconds."""
    down_window: float = 300.0
    """Seconds."""
    up_select: Select = Select.MAX
    down_select: Select = Select.MAX
    _up: Window = field(init=False)
    _down: Window = field(init=False)
    _changes: deque[tuple[float, int]] = field(default_factory=deque, init=False)

    def __post_init__(self) -> None:
        self._up, self._down = Window(self.up_window), Window(self.down_window)

    def order(self, wanted: int, current: int, pool: Pool, now: float) -> int:
        """Replicas to set."""
        stable = max(current, min(self._up.add(now, wanted, current)))
        stable = min(stable, max(self._down.add(now, wanted, current)))
        longest = max(limit.period for limit in (*self.up, *self.down))
        while self._changes and self._changes[0][0] <= now - longest:
            self._changes.popleft()
        replicas = bounded(stable, pool)
        if replicas > current:
            of_several = min if self.up_select is Select.MIN else max
            most = of_several(limit.most(self._start(limit, current, now)) for limit in self.up)
            replicas = current if self.up_select is Select.DISABLED else min(replicas, max(current, most))
        elif replicas < current:
            of_several = max if self.down_select is Select.MIN else min
            fewest = of_several(limit.fewest(self._start(limit, current, now)) for limit in self.down)
            replicas = current if self.down_select is Select.DISABLED else max(replicas, min(current, fewest))
        if replicas != current:
            self._changes.append((now, replicas - current))
        return replicas

    def _start(self, limit: Limit, current: int, now: float) -> int:
        """Replicas when the limit's period began."""
        return current - sum(change for at, change in self._changes if at > now - limit.period)


def bounded(replicas: int, pool: Pool) -> int:
    """Within the pool's min and max; an HPA's minReplicas is 1 or more."""
    return min(max(1, pool.min_replicas, replicas), pool.max_replicas)
