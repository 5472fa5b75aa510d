"""Hours of the 2024 conversation service at any scale, for large fleets."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.families.arrivals import arrivals
from servingpool_simulation.families.lengths import like
from servingpool_simulation.traces import Trace, azure2024_conv_curve, azure2024_conv_reconstructed

HOUR = 60
"""Minutes."""


def conv_hours(scale: float, *, day: int = 2, begin: int = 7, hours: int = 1, seed: int = 0) -> Trace:
    """`hours` hours from `begin` o'clock of a day, 0 to 6, at `scale` times the published rate.

    As `azure2024_conv_reconstructed`, but no larger than it must be: a whole day of 60 times the traffic would hold
    260 million requests. Lengths are drawn from a day of that trace at a fiftieth of the rate.
    """
    random = np.random.default_rng((seed, 12))
    minutes = azure2024_conv_curve(day)[begin * HOUR : (begin + hours) * HOUR]
    rates = random.uniform(minutes[:, 1], minutes[:, 2]) * scale
    arrival = arrivals(random, np.repeat(rates, 60))
    prompt, output = like(azure2024_conv_reconstructed(day, scale=0.02, seed=seed))(random, len(arrival))
    return Trace(f"Azure 2024 conv x {scale:g}", arrival, prompt, output, hours * 3600.0)
