"""What each replica avoids: the slopes of the convex curve below the misses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def worth(misses: Sequence[float], start: int) -> list[float]:
    """Misses that each replica after the first `start` avoids, non-increasing.

    Along the hull: near a cliff one replica more avoids nothing, and three avoid all. Each of the three then has a
    third of the worth, else none would be ordered.
    """
    return [max(0.0, _slope(misses, a, b)) for a, b in pairwise(hull(misses, start)) for _ in range(b - a)]


def hull(misses: Sequence[float], start: int = 0) -> list[int]:
    """Replicas from `start` on where the convex curve below the misses has its corners."""
    corners: list[int] = []
    for at in range(start, len(misses)):
        while len(corners) > 1 and _slope(misses, corners[-2], corners[-1]) <= _slope(misses, corners[-1], at):
            corners.pop()
        corners.append(at)
    return corners


def _slope(misses: Sequence[float], low: int, high: int) -> float:
    return (misses[low] - misses[high]) / (high - low)
