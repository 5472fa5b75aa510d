"""What a missed request may cost: the price at which the fleet would just have held the SLO lately.

A step that overloads the fleet for one cold start can spend the whole budget of misses; a quiet hour spends none.
Asked moment by moment ("no more than 5% now") a fleet is too large in the quiet and still too small at the step. One
price for all moments puts spare replicas where they save most. It is found by playing what is remembered of demand
again with the fleets that each price would have chosen: the lowest price whose misses are within the allowance, with
a margin. The lowest that fits one hour is too low for the next, and the more so the fewer bursts the hour had: half of
its misses may be one burst's, that came or did not. The margin is in standard errors of their sum, reckoned from blocks
of ten minutes: the misses of one burst come together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from servingpool.decision import capacity
from servingpool.decision.forecast import APART, KEPT, NOTHING, SPACING, Forecast
from servingpool.decision.miss_curve import Curve

LEAST = 3.0
"""Lowest price, in replicas for the work that keeps one busy: who serves a request at all holds it worth more than the
GPU time that it takes. At 1 conversations with two hours of calm behind them gave their third replica away just before
the rate rose: 88.8%, the worst of three seeds; at 3 all of them attain."""
DEAREST = 7.0
"""Highest price, in replicas for the work that keeps one busy, times the share of misses that is allowed: no replica
is ordered for less than a seventh of the misses that are allowed to the work of one. It is what bursts cost that no
fleet could be ready for. At 20 nothing more is held, and a fifth more replicas are kept behind the first burst of code;
at 10 a pool found at one replica takes 1.46 times the best static fleet on code and attains 99.8% behind ten minutes,
at 7 1.33 times and 99.5%; at 5 a day of code attains 94.9%."""
FINEST = 1.1
MARGIN = 2.0
"""Standard errors that are left free. The next two hours have an error of their own, so were their bursts drawn alike
they would stay within the plan in 11 of 12 cases. With 1.5 five of 54 runs with two hours of history miss the SLO, here
four, at 0.7% more GPUs; without any, on-off traffic ran to 1.9 times the best static fleet behind its first burst."""
BLOCK = round(APART / SPACING)
"""Moments whose misses count as one event: ten minutes."""


def price(forecast: Forecast, curve: Curve, allowance: float, *, dearest: float, most: int, held: float) -> float:
    """The lowest price at which the remembered past would have stayed within the allowance, margin included.

    `dearest` where none does, or nothing came.

    `held`: seconds for which a fleet keeps what was worth keeping, as it does live.
    """
    past = forecast.past(curve.load_for(allowance))
    if past is None:
        return dearest
    came = past.came[:, None]
    fleets = capacity.sizes(curve, allowance, float(max(came.max(), past.outlook.samples.max())), most)
    scales = capacity.Scales(capacity.ahead(past.outlook, curve, allowance), curve, fleets)
    late = past.counts[:, None] * came * curve.cost(came / fleets)
    within = allowance * float(past.counts @ past.came)
    rows, moments = np.arange(len(late)), past.moments
    # Of what was seen and is no longer remembered the budget has the sum: the error falls with the root of all of it.
    margin = MARGIN * math.sqrt(min(1.0, KEPT * SPACING / max(forecast.seen, 1.0)))
    believed = np.maximum(past.counts[moments:], NOTHING)
    unavoidable = curve.floor * past.counts * past.came
    block = np.ones(BLOCK)
    held_for = round(held / SPACING)

    def held_at(price: float) -> bool:
        chosen = scales.choose(price)
        if held_for and moments:
            kept = _highest_of_last(held_for, scales.choose(capacity.STICK * price)[: moments - 1])
            chosen[1:moments] = np.maximum(chosen[1:moments], kept)
        spent = late[rows, chosen]
        # What misses at any fleet size comes evenly, and is no burst.
        bursts = np.maximum(0.0, spent - unavoidable)
        squares = float((bursts[moments:] ** 2 / believed).sum())
        if moments:
            # Of blocks that begin at every moment: where a block's edge falls must not move the price.
            squares += float((np.convolve(bursts[:moments], block) ** 2).sum()) / BLOCK
        return float(spent.sum()) + margin * math.sqrt(squares) <= within

    low, high = LEAST, dearest
    if not held_at(high):
        return high
    while high / low > FINEST:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if held_at(middle) else (middle, high)
    return high


def _highest_of_last(span: int, values: NDArray[np.intp]) -> NDArray[np.intp]:
    """At each place the highest of the last `span` values, up to it."""
    highest, width = values.copy(), 1
    while width < span:
        step = min(width, span - width)
        highest[step:] = np.maximum(highest[step:], highest[:-step])
        width += step
    return highest
