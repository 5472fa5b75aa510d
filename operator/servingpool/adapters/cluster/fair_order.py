"""The order in which namespaces are served: whoever has thousands of objects waits for himself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_turns(items: Iterable[T], namespace: Callable[[T], str]) -> list[T]:
    """The objects, an object of each namespace in turn; those of a namespace in the order given."""
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, T]] = []
    for item in items:
        own = namespace(item)
        ranked.append((turns[own], item))
        turns[own] += 1
    return [item for _, item in sorted(ranked, key=lambda each: each[0])]
