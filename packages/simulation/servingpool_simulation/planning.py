"""The cheapest course of a fleet for a load that is known beforehand, by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servingpool_simulation.tables import Floats, Ints


@dataclass(frozen=True, slots=True)
class Price:
    """What a plan is made for."""

    knee: float
    """Load of a replica, 0 to 1, at which half of the requests miss."""
    miss: float
    """Replica-seconds that one request within the SLO is worth."""
    steepness: float = 16.0
    """Of the share that misses, in log load around the knee."""


def plan(load: Floats, requests: Floats, price: Price, *, every: float, lead: int, most: int) -> Ints:
    """Replicas that should be requested at each tick, `every` seconds apart.

    `load` and `requests` are of the bin that begins at the tick. Minimises replica-seconds + price.miss * misses, where
    each further replica also costs the `lead` ticks that it loads, and going down costs nothing. So it holds a
    replica through a gap exactly where that is cheaper than to load another one.
    """
    sizes = np.arange(most + 1)
    stages = every * sizes + price.miss * requests[:, None] * miss_share(load, sizes, price)
    up = np.maximum(sizes[None, :] - sizes[:, None], 0) * (lead * every)  # [from, to]
    cost = np.zeros(most + 1)  # of all ticks to come, by the size before them
    follow = np.empty((len(load), most + 1), dtype=np.int64)
    for tick in range(len(load) - 1, 0, -1):
        onward = up + (stages[tick] + cost)
        follow[tick] = np.argmin(onward, axis=1)
        cost = onward[sizes, follow[tick]]
    # What is there at the start is free to keep or to leave: the first size costs no loading.
    serving = np.empty(len(load), dtype=np.int64)
    serving[0] = np.argmin(stages[0] + cost)
    for tick in range(1, len(load)):
        serving[tick] = follow[tick][serving[tick - 1]]
    return ordered(serving, lead)


def ordered(serving: Ints, lead: int) -> Ints:
    """What must be requested so that so many serve: the most of the next `lead` ticks."""
    padded = np.concatenate((serving, np.full(lead, serving[-1])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, lead + 1)
    most: Ints = windows.max(axis=1)
    return most


def miss_share(load: Floats, sizes: Ints, price: Price) -> Floats:
    """[tick, size]: a logistic in log load of a replica; everything misses without one."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(load, 1e-9))[:, None] - np.log(sizes * price.knee)[None, :]
    share: Floats = 1.0 / (1.0 + np.exp(-np.clip(price.steepness * logs, -60.0, 60.0)))
    return share
