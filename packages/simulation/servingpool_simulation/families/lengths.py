"""Token lengths of requests, drawn from distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from servingpool_simulation.traces import Floats, Ints, Trace

Lengths = Callable[[np.random.Generator, int], tuple[Ints, Ints]]
"""Draws (prompt, output) tokens of so many requests."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lengths whose logarithm is normal, cut to what is sensible. Tokens."""

    median: float
    spread: float
    """Standard deviation of the natural logarithm: 1 puts 16% above 2.7 medians."""
    least: int = 1
    most: int = 120_000

    def __post_init__(self) -> None:
        if not (1 <= self.least <= self.median <= self.most and self.spread >= 0):
            raise ValueError(f"need 1 <= least <= median <= most and spread >= 0, got {self}")

    def at(self, normal: Floats) -> Ints:
        """The lengths that standard normal deviates stand for."""
        drawn = self.median * np.exp(self.spread * normal)
        return np.clip(np.rint(drawn), self.least, self.most).astype(np.int64)

    def draw(self, random: np.random.Generator, size: int) -> Ints:
        """So many lengths, independent."""
        return self.at(random.standard_normal(size))


def independent(prompt: LogNormal, output: LogNormal) -> Lengths:
    """Prompt and answer know nothing of one another."""
    return lambda random, size: (prompt.draw(random, size), output.draw(random, size))


def like(trace: Trace) -> Lengths:
    """Pairs of a recorded trace, drawn with replacement: prompt and answer stay together."""

    def draw(random: np.random.Generator, size: int) -> tuple[Ints, Ints]:
        chosen = random.integers(0, len(trace), size)
        return trace.prompt[chosen], trace.output[chosen]

    return draw
