"""What a baseline remembers of the last seconds or minutes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
    """Recommendations of the last `seconds`, as the HPA keeps them."""

    seconds: float
    closed: bool = False
    """One that is exactly so old still counts: so it does where `behavior` is unset, and does not where it is set."""
    kept: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, replicas: int, current: int) -> Sequence[int]:
        """Remembers one, and returns all that are still within the window. The first sync remembers `current`."""
        if not self.kept:
            self.kept.append((now, current))
        oldest = now - self.seconds
        while self.kept and (self.kept[0][0] < oldest or (self.kept[0][0] == oldest and not self.closed)):
            self.kept.popleft()
        self.kept.append((now, replicas))
        return [replicas for _, replicas in self.kept]


@dataclass(slots=True)
class Means:
    """Samples of one value; means over windows of up to `seconds`, each (now - window, now]."""

    seconds: float
    kept: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now: float, value: float) -> None:
        """Remembers a sample and forgets those that no window holds any more."""
        self.kept.append((now, value))
        while self.kept[0][0] <= now - self.seconds:
            self.kept.popleft()

    def over(self, seconds: float) -> float:
        """The mean of the samples of the last `seconds` before the newest one; 0 without any."""
        if not self.kept:
            return 0.0
        newest = self.kept[-1][0]
        return mean(value for at, value in self.kept if at > newest - seconds)


def mean(values: Iterable[float]) -> float:
    """0 of nothing."""
    found = list(values)
    return math.fsum(found) / len(found) if found else 0.0
