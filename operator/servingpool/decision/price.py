"""What a missed request may cost: the price at which the fleet would just have held the SLO lately.

A step that overloads the fleet for one cold start can spend the whole budget of misses; a quiet hour spends none.
Asked moment by moment ("no more than 5% now") a fleet is too large in the quiet and still too small at the step. One
price for all moments puts spare replicas where they save most. It is found by playing what is remembered of demand
again with the fleets that each price would have chosen: the lowest price whose misses are within the allowance, with
a margin. The lowest that fits one hour is too low for the next, and the more so the fewer bursts the hour had: half of
its misses may be one burst's, that came or did not. The margin is a part of the standard error of their sum, reckoned
as if moments were independent: bursts make it larger, for which the part is an allowance.
"""

from __future__ import annotations

import math

import numpy as np

from servingpool.decision import capacity
from servingpool.decision.forecast import KEPT, NOTHING, SPACING, Forecast
from servingpool.decision.miss_curve import Curve

LEAST, MOST = 1.0, 400.0
"""Replicas, for the work that keeps one replica busy. On-off code traffic came to 170, conversations to 5."""
STATES = 60
"""Moments that are played again."""
FINEST = 1.1
MARGIN = 0.75
"""Standard errors that are left free. Without, code traffic with an hour of history attained 94.8% (95.9%; means of
three seeds, of which the worst still misses), and on-off traffic without one kept nothing for the next burst and ran to
1.9 times the best static fleet behind it (1.1)."""


def price(forecast: Forecast, curve: Curve, allowance: float, *, most: int, held: float) -> float:
    """The lowest price at which the remembered past would have stayed within the allowance, margin included.

    MOST where none does.

    `held`: seconds for which a fleet keeps what was worth keeping, as it does live.
    """
    past = forecast.past(STATES, curve.load_for(allowance))
    if past is None:
        return MOST
    came = past.came[:, None]
    fleets = capacity.sizes(curve, allowance, float(max(came.max(), past.outlook.samples.max())), most)
    scales = capacity.Scales(capacity.ahead(past.outlook, curve, allowance), curve, fleets)
    late = past.counts[:, None] * came * curve.cost(came / fleets)
    within = allowance * float(past.counts @ past.came)
    rows = np.arange(len(late))
    # Of what was seen and is no longer remembered the budget has the sum: the error falls with the root of all of it.
    margin = MARGIN * math.sqrt(min(1.0, KEPT * SPACING / max(forecast.seen, 1.0)))
    counts = np.maximum(past.counts, NOTHING) * past.every
    held_for = min(round(held / past.step), past.moments)

    def held_at(price: float) -> bool:
        chosen, kept = scales.choose(price), scales.choose(capacity.STICK * price)
        for back in range(1, held_for + 1):
            chosen[back : past.moments] = np.maximum(chosen[back : past.moments], kept[: past.moments - back])
        spent = late[rows, chosen]
        return float(spent.sum()) + margin * math.sqrt(float((spent * spent / counts).sum())) <= within

    low, high = LEAST, MOST
    if not held_at(high):
        return high
    while high / low > FINEST:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if held_at(middle) else (middle, high)
    return high
