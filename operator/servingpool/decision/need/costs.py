"""The cheapest fleet: replicas plus expected misses at their penalty is least, for each state of demand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.learn.forecast import FORECASTS_KEPT, HIDDEN, SPACING, Outlook, WorkForecast
from servingpool.decision.learn.miss_curve import Curve
from servingpool.decision.need.mix import Frontier
from servingpool.decision.observe.window import NOTHING
from servingpool.decision.params import Params
from servingpool.decision.plan import Course

Array = NDArray[np.float64]

SIZES, SIZES_OF_PAST = 4096, 64
"""Fleet sizes that are weighed at most, and for each moment of the past: each of so many, of more equal ratios."""
SHARES = np.geomspace(0.01, 1.0, 96)
"""Demands at which the curve is read, as shares of the highest; a sample between two counts for both."""
LEAST_LEVEL, LEVELS = float(SHARES[0]), len(SHARES)
FINEST = 1.1
"""Ratio of two penalties that are not told apart."""
BLOCK = round(HIDDEN / SPACING)
"""Moments whose misses count as one event: those of ten minutes."""


class Sizes(NamedTuple):
    """Fleets to weigh, ascending, and the price of each: of one target, its replicas."""

    fleets: Array
    prices: Array


def sizes(curve: Curve, allowance: float, highest: float, frontier: Frontier, most: int = SIZES) -> Sizes:
    """At `most` so many fleets, from the least to where even the highest demand is served with room to spare."""
    fleets, prices = frontier.upto(max(2, math.ceil(highest / curve.load_for(0.1 * allowance)) + 1))
    if len(fleets) > most:
        places = np.unique(np.geomspace(1.0, len(fleets), most).round()).astype(np.intp) - 1
        fleets, prices = fleets[places], prices[places]
    return Sizes(fleets, prices)


class CostMatrix:
    """Weighs fleets (columns) for states of demand (rows)."""

    def __init__(self, outlook: Outlook, curve: Curve, sizes: Sizes) -> None:
        # Misses are counted per request, so a demand weighs by its own size: a burst of twice the usual load brings
        # twice the requests to be late.
        levels, likely = _spread(outlook)
        self.fleets, self._prices = sizes
        self.misses = likely @ (levels * curve.cost(levels / self.fleets))
        self.expected = float((likely @ levels)[-1, 0])

    def choose(self, penalty: float) -> NDArray[np.intp]:
        """The column, for each state, of the fleet with the least sum of replicas and misses at their penalty."""
        columns: NDArray[np.intp] = (self._prices + penalty * self.misses).argmin(axis=1)
        return columns


def cheapest(
    outlook: Outlook, level: float, curve: Curve, allowance: float, penalties: Sequence[float], frontier: Frontier
) -> tuple[Array, Course]:
    """Replicas of the cheapest fleet for each state (row) at each penalty (column), and the misses of the last state.

    `level`: work that arrives now.
    """
    highest = float(np.maximum.reduce(outlook.samples, axis=None))
    if highest <= 0.0:
        none = Course(np.ones(1), np.zeros(1), 0.0, level, curve)
        return np.zeros((len(outlook.expected), len(penalties))), none
    costs = CostMatrix(outlook, curve, sizes(curve, allowance, highest, frontier))
    columns = np.array([costs.choose(penalty) for penalty in penalties]).T
    return costs.fleets[columns], Course(costs.fleets, costs.misses[-1], costs.expected, level, curve)


def miss_penalty(
    forecast: WorkForecast,
    curve: Curve,
    allowance: float,
    *,
    greatest: float,
    frontier: Frontier,
    held: float,
    params: Params,
) -> float:
    """The lowest penalty at which the remembered past would have stayed within the allowance, margin included.

    A step that overloads the fleet for one cold start can spend all allowed misses; a quiet hour spends none. Asked
    moment by moment ("no more than 5% now") a fleet is too large in the quiet and still too small at the step. One
    penalty for all moments puts spare replicas where they save most. It is found by replaying what is remembered of
    demand with the fleets that each penalty would have chosen. The margin is in standard errors of the sum of misses,
    from blocks of ten minutes, for the misses of one burst come together.

    `greatest` where none does, or nothing came; where even that does not, overloads far beyond its fleets are left out.
    `held`: seconds for which a fleet keeps what was recommended.
    """
    past = forecast.past(curve.load_for(allowance))
    if past is None:
        return greatest
    observed = past.observed[:, None]
    every = sizes(curve, allowance, float(max(observed.max(), past.outlook.samples.max())), frontier, SIZES_OF_PAST)
    costs = CostMatrix(past.outlook, curve, every)
    late = past.counts[:, None] * observed * curve.cost(observed / every.fleets)
    work = past.counts * past.observed
    rows, moments = np.arange(len(late)), past.moments
    # Of what was seen and is no longer remembered the budget has the sum: the error falls with the root of all of it.
    margin = params.penalty_margin * math.sqrt(min(1.0, FORECASTS_KEPT * SPACING / max(forecast.seen, 1.0)))
    believed = np.maximum(past.counts[moments:], NOTHING)
    unavoidable = curve.floor * work
    # Row by moment: the places of the earlier moments whose choice the scale-down window still keeps.
    kept_at = np.maximum(0, np.subtract.outer(np.arange(moments - 1), np.arange(round(held / SPACING))))
    block = np.ones(BLOCK)

    def misses(penalty: float) -> Array:
        chosen = costs.choose(penalty)
        if kept_at.size:
            kept = costs.choose(params.hysteresis * penalty)[kept_at].max(axis=1)
            chosen[1:moments] = np.maximum(chosen[1:moments], kept)
        return late[rows, chosen]

    def holds(penalty: float, counted: Array) -> bool:
        spent = misses(penalty) * counted
        # What misses at any fleet size comes evenly, and is no burst.
        bursts = np.maximum(0.0, spent - unavoidable)
        squares = float((bursts[moments:] ** 2 / believed).sum())
        if moments:
            # Of blocks that begin at every moment: where a block's edge falls must not move the penalty.
            squares += float((np.convolve(bursts[:moments], block) ** 2).sum()) / BLOCK
        return float(spent.sum()) + margin * math.sqrt(squares) <= allowance * float(work @ counted)

    low, high, counted = params.least_penalty, greatest, np.ones(len(late))
    if not holds(high, counted):
        if moments:
            counted[:moments] -= _hopeless((misses(high) > 2.0 * work)[:moments], past.observed[:moments])
        if not holds(high, counted):
            return high
    while high / low > FINEST:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle, counted) else (middle, high)
    return high


def _hopeless(overloaded: NDArray[np.bool_], observed: Array) -> NDArray[np.bool_]:
    """The moments within ten minutes around overloads that are over; none where they are a quarter of all moments.

    Two misses a request are far beyond any fleet with these cold starts, and such a burst held the penalty at its
    greatest for two hours. What came to stay is not over, and is paid for.
    """
    overloaded &= observed > observed[-BLOCK:].max()
    around: NDArray[np.bool_] = np.convolve(overloaded, np.ones(BLOCK), "same")[: len(overloaded)] > 0.0
    return around & bool(4 * around.sum() <= len(around))


def _spread(outlook: Outlook) -> tuple[Array, Array]:
    """Levels of possible demand (a column), ascending, and the probability of each in each state (row).

    Without the lowest levels, down to which no state comes.
    """
    samples = outlook.samples
    highest = max(float(np.maximum.reduce(samples, axis=None)), NOTHING)
    # In place, for a penalty weighs 60,000 samples.
    above = samples / highest
    np.log(np.maximum(above, LEAST_LEVEL, out=above), out=above)
    above /= math.log(LEAST_LEVEL)
    np.subtract(1.0, above, out=above)
    above *= LEVELS - 1
    at = np.minimum(above.astype(np.intp), LEVELS - 2)
    above -= at
    at += np.arange(len(samples))[:, None] * LEVELS
    size = len(samples) * LEVELS
    above *= outlook.weights
    likely = np.bincount(at.ravel(), (outlook.weights - above).ravel(), size)
    at += 1
    likely += np.bincount(at.ravel(), above.ravel(), size)
    by_state = np.asarray(likely, dtype=np.float64).reshape(-1, LEVELS)
    lowest = int(np.logical_or.reduce(by_state).argmax())
    return highest * SHARES[lowest:, None], by_state[:, lowest:]
