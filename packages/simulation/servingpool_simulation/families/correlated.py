"""Lengths that come in clumps: the rate says nothing of the work."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.families.arrivals import arrivals, autoregressive, seconds
from servingpool_simulation.families.lengths import LogNormal
from servingpool_simulation.traces import Trace


def correlated_lengths(
    rate: float,
    prompt: LogNormal,
    output: LogNormal,
    *,
    common: float = 0.6,
    memory: float = 240.0,
    duration: float = 7200.0,
    seed: int = 0,
) -> Trace:
    """Poisson arrivals at a steady `rate` (requests/s), with lengths of long memory.

    The logarithms of prompt and answer are AR(1) over time, each on its own: correlation exp(-lag / `memory` seconds)
    in a share `common` of the variance, noise in the rest. A batch of documents or of long stories is worked through
    by one client for minutes: requests per second stay level while work per second doubles and halves.
    """
    if not 0 <= common <= 1:
        raise ValueError(f"common is a share of the variance, 0 to 1, got {common}")
    random = np.random.default_rng((seed, 7))
    arrival = arrivals(random, np.full(len(seconds(duration)), float(rate)))
    prompts, outputs = (
        kind.at(
            np.sqrt(common) * autoregressive(random, arrival, memory)
            + np.sqrt(1.0 - common) * random.standard_normal(len(arrival))
        )
        for kind in (prompt, output)
    )
    return Trace("lengths in clumps", arrival, prompts, outputs, duration)
