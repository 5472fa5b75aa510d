"""Traffic that jumps between levels without notice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from servingpool_simulation.families.arrivals import STEP, arrivals, seconds
from servingpool_simulation.families.lengths import Lengths
from servingpool_simulation.traces import Floats, Trace


def regime_rates(levels: Sequence[float], dwell: float, duration: float, random: np.random.Generator) -> Floats:
    """A Markov chain over `levels` (requests/s): it stays `dwell` seconds on average, then goes to any other level."""
    if len(levels) < 2 or dwell <= 0:
        raise ValueError(f"need two levels or more and dwell > 0 s, got {len(levels)} and {dwell}")
    rates = np.empty(len(seconds(duration)))
    at, level = 0.0, int(random.integers(len(levels)))
    while at < duration:
        until = at + random.exponential(dwell)
        rates[round(at / STEP) : round(until / STEP)] = levels[level]
        at = until
        level = (level + 1 + int(random.integers(len(levels) - 1))) % len(levels)
    return rates


def regimes(
    levels: Sequence[float], dwell: float, lengths: Lengths, *, duration: float = 7200.0, seed: int = 0
) -> Trace:
    """Poisson arrivals at a rate that a Markov chain picks from `levels` (requests/s), `dwell` seconds at a time.

    A Markov-modulated Poisson process (Fischer and Meier-Hellstern 1993): deployments, campaigns and failovers from
    another region move traffic by a factor in seconds, and no trend announces it.
    """
    random = np.random.default_rng((seed, 2))
    arrival = arrivals(random, regime_rates(levels, dwell, duration, random))
    return Trace("regime switches", arrival, *lengths(random, len(arrival)), duration)


def correlated_pools(
    levels: Sequence[float], dwell: float, lengths: Lengths, *, duration: float = 3600.0, seed: int = 0
) -> tuple[Trace, Trace]:
    """Two pools that one and the same modulating rate drives: their users are the same, their requests are not.

    When both need replicas at once they compete for the same nodes; what one of them has learned says nothing of it.
    """
    random = np.random.default_rng((seed, 3))
    rates = regime_rates(levels, dwell, duration, random)
    times = (arrivals(random, rates), arrivals(random, rates))
    first, second = (
        Trace(f"correlated pool {letter}", arrival, *lengths(random, len(arrival)), duration)
        for letter, arrival in zip("AB", times, strict=True)
    )
    return first, second
