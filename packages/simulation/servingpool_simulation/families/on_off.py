"""Code completion by few users: bursts of short answers, then nothing for minutes."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.families.arrivals import STEP, arrivals, seconds
from servingpool_simulation.families.lengths import Lengths
from servingpool_simulation.traces import Trace


def on_off(
    rate: float,
    burst: float,
    idle: float,
    lengths: Lengths,
    *,
    trickle: float = 0.0,
    duration: float = 7200.0,
    seed: int = 0,
) -> Trace:
    """`rate` requests/s for `burst` seconds, then `trickle` requests/s for `idle` seconds; both times exponential.

    The Azure 2023 code trace in pure form (its peak minute is 4 times the mean, whole minutes are empty): a test run
    or a continuous-integration job asks hundreds of times, then a person thinks. Each burst has a height of its own,
    uniform between half and one and a half times `rate`.
    """
    if burst <= 0 or idle <= 0:
        raise ValueError(f"need burst > 0 s and idle > 0 s, got {burst} and {idle}")
    random = np.random.default_rng((seed, 5))
    rates = np.full(len(seconds(duration)), float(trickle))
    at = random.exponential(idle)
    while at < duration:
        until = at + random.exponential(burst)
        rates[int(at / STEP) : int(until / STEP) + 1] = rate * random.uniform(0.5, 1.5)
        at = until + random.exponential(idle)
    arrival = arrivals(random, rates)
    return Trace("on-off code", arrival, *lengths(random, len(arrival)), duration)
