"""Burstiness alone: the same requests at the same mean rate, in gaps more or less even."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.families.arrivals import arrivals, seconds, wandering
from servingpool_simulation.families.lengths import Lengths
from servingpool_simulation.traces import Trace


def renewal(
    rate: float,
    cv: float,
    lengths: Lengths,
    *,
    duration: float = 3600.0,
    drift: float = 0.0,
    drift_memory: float = 900.0,
    seed: int = 0,
) -> Trace:
    """Gamma gaps of coefficient of variation `cv` (1 to 10) at a mean of `rate` requests/s for `duration` seconds.

    BurstGPT (arXiv 2401.17644) models the gaps in Azure OpenAI's logs as gamma, and those of the Azure 2023 code
    trace have a CV of 13. A CV of 10 brings about 100 requests at once, which a rate over a scrape does not show.
    With `drift`, the standard deviation of the rate's logarithm, the mean wanders with a memory of
    `drift_memory` seconds.
    """
    random = np.random.default_rng((seed, 1))
    rates = np.full(len(seconds(duration)), float(rate))
    if drift:
        rates *= wandering(random, duration, drift, drift_memory)
    arrival = arrivals(random, rates, cv)
    return Trace(f"renewal CV {cv:g}", arrival, *lengths(random, len(arrival)), duration)
