"""Arrival times from a rate curve, as random as asked for."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.traces import Floats

STEP = 1.0
"""Seconds of one place of a rate curve."""


def seconds(duration: float) -> Floats:
    """The middle of every place of a curve that lasts `duration` seconds."""
    return np.asarray((np.arange(int(np.ceil(duration / STEP)), dtype=np.float64) + 0.5) * STEP)


def arrivals(random: np.random.Generator, rates: Floats, cv: float = 1.0) -> Floats:
    """Arrival times, in seconds, of a renewal process that follows `rates` (requests/s, one place a second).

    Gaps are gamma with the coefficient of variation `cv` in operational time, that is, where the rate is 1/s
    throughout; 1 is Poisson. Time rescaling: Daley and Vere-Jones, Theory of Point Processes I, 7.4.
    """
    if cv <= 0 or (rates < 0).any():
        raise ValueError(f"need cv > 0 and rates >= 0, got cv {cv} and a rate of {rates.min()}")
    passed = np.concatenate(([0.0], np.cumsum(rates) * STEP))
    shape = cv**-2
    moments: list[Floats] = []
    last = 0.0
    while last < passed[-1]:
        gaps = random.gamma(shape, 1.0 / shape, size=1024 + int(passed[-1] - last))
        moments.append(last + np.cumsum(gaps))
        last = float(moments[-1][-1])
    if not moments:
        return np.empty(0)
    at = np.concatenate(moments)
    # Where the rate is 0 operational time stands still: a moment belongs behind the flat piece, not before it.
    place = np.searchsorted(passed, at[at < passed[-1]], side="right") - 1
    share = (at[: len(place)] - passed[place]) / rates[place] / STEP
    return np.asarray((place + share) * STEP)


def wandering(random: np.random.Generator, duration: float, spread: float, memory: float) -> Floats:
    """A factor around 1 that wanders: the exponential of an Ornstein-Uhlenbeck process, one place a second.

    `spread` is the standard deviation of its logarithm, `memory` the seconds after which 1/e of a deviation is left.
    """
    return np.exp(autoregressive(random, seconds(duration), memory) * spread - spread**2 / 2)


def autoregressive(random: np.random.Generator, at: Floats, memory: float) -> Floats:
    """Values of variance 1 at the ascending times `at`, whose correlation decays as exp(-lag / memory)."""
    kept = np.exp(-np.diff(at) / memory)
    fresh = np.sqrt(1.0 - kept**2) * random.standard_normal(len(kept))
    values = np.empty(len(at))
    if len(at) == 0:
        return values
    values[0] = random.standard_normal()
    for k in range(len(kept)):
        values[k + 1] = kept[k] * values[k] + fresh[k]
    return values
