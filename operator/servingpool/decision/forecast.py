"""Demand one cold start ahead, and how wrong such forecasts have been.

What is ordered now serves a cold start later, so that is where demand must be known. How far traffic keeps what it
has is learned: `hold` says how much of a jump above the usual is still there a cold start later (1 on steps, near 0
on bursts that are gone by then), `keep` how much is left by then of what sets the usual apart from the hour's
mean. What is not foreseen is a distribution: the errors of past forecasts, at levels like this one.

A trend over ten minutes was tried and is left out: over one cold start its best weight was 0.00 to 0.05 on every trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.demand import MOST_WORK

Array = NDArray[np.float64]
Moment = tuple[float, float, float]

SPACING = 29.0
"""Seconds between two forecasts that are kept: one for each half minute that a level speaks of. Kept each minute, every
second burst of half a minute was never seen, and the others counted twice."""
NOTHING = 1e-9
"""Mean demand below which there is none."""
KEPT = 240
"""They reach back two hours, at one tick each 15 s."""
PENDING = 160
RIDGE = (20.0, 60.0)
"""Pairs that the prior belief `hold = 1`, and `keep = 1`, weighs."""
MEAN_MEMORY = 3600.0
BEYOND = 1.2
"""No jump of the past leads beyond this multiple of the highest demand that is remembered or expected. A service that
stopped and came back at full rate has shown that it comes back, not that it doubles. That what went beyond all before
it may go on as far again was worth nothing on ramps, a point of attainment where traffic doubles each 25 minutes, and
cost a tenth of the fleet for two hours behind a threefold jump."""
LIKENESS = 0.8
"""Width of "levels like this one", in roots of demand over the root of its mean: there, counts spread evenly."""
PRIOR_ERRORS = 0.18 * np.array((-1.5, -0.9, -0.45, -0.15, 0.15, 0.45, 0.9, 1.5))
"""Stand-ins before errors were seen, over the mean: 18% standard deviation, about what a conversation service shows."""
PRIOR_PAIRS = 48.0
"""Pairs of evidence that the stand-ins weigh in total."""
TRUST = 20.0
"""Pairs that speak for the demand that the fleet that was found would carry: somebody may have known why it has this
size. Without, a burst that was not seen yet meets a fleet that shrank minutes before."""
SHY = 1.5
"""Power of how much more than the mean demand that is, which divides it: twice is likely, ten times is a fleet too
large."""
TRUST_LASTS = 2 * 3600.0
"""Seconds of demand after which that is forgotten; Prometheus may have told them before the first decision."""
APART = 600.0
"""Seconds around a moment of the past that are hidden from it when it is played again. A burst that is foretold from
itself costs one spare replica, and the next one, which is like no other, meets a fleet that was thought to hold."""


class Outlook(NamedTuple):
    """Demand at the horizon, in replicas kept busy: a row for each state."""

    expected: Array
    samples: Array
    """What may come, a column each."""
    weights: Array
    """Of the samples; each row sums to 1."""

    def with_and_without_belief(self) -> Outlook:
        """Each state, and behind them each without the last column, which is what the fleet found would carry."""
        told = self.weights.copy()
        told[:, -1] = 0.0
        weights = np.concatenate((self.weights, told / told.sum(axis=1, keepdims=True)))
        return Outlook(np.tile(self.expected, 2), np.tile(self.samples, (2, 1)), weights)


class Past(NamedTuple):
    """What the recent past would have looked like to today's knowledge, moment by moment."""

    outlook: Outlook
    came: Array
    """Demand that followed, for each state."""
    counts: Array
    """How much each state stands for."""
    moments: int
    """How many of the states, from the first, are moments in order; the others are beliefs."""


class Rule(NamedTuple):
    """How what comes follows from what is."""

    mean: float
    hold: float
    keep: float

    def at(self, level: Array, usual: Array) -> Array:
        """Expected demand, given the level and what it usually was in the last ten minutes."""
        return np.maximum(0.0, self.mean + self.keep * (usual - self.mean) + self.hold * (level - usual))


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What is learned about how demand moves. All demands in replicas kept busy."""

    pending: tuple[Moment, ...] = ()
    """(due time, level then, usual level then): forecasts that have not come true yet."""
    pairs: Array = field(default_factory=lambda: np.zeros((0, 3)))
    """(level, usual level, what came a horizon later) in rows, oldest first; never changed in place."""
    mean: float = 0.0
    """Mean demand of about the last hour."""
    seen: float = 0.0
    """Seconds of demand that the mean rests on."""
    found: int = 0
    """Replicas found at first sight."""

    def __eq__(self, other: object) -> bool:
        """As of any value; what dataclasses write cannot compare arrays."""
        if not isinstance(other, Forecast):
            return NotImplemented
        mine, theirs = ((one.pending, one.mean, one.seen, one.found) for one in (self, other))
        return mine == theirs and np.array_equal(self.pairs, other.pairs)

    __hash__ = None  # type: ignore[assignment]  # as of any value that holds an array

    def learn(
        self,
        *,
        now: float,
        level: float,
        usual: float,
        ready: int,
        horizon: float,
        elapsed: float,
        foretells: bool = True,
    ) -> Forecast:
        """Settle the forecasts that are due against `level`, and file a new one if `level` foretells anything."""
        window = min(self.seen, MEAN_MEMORY)
        mean = level if self.seen == 0.0 else self.mean + (level - self.mean) * elapsed / (window + elapsed)
        due = [(then, was_usual, level) for at, then, was_usual in self.pending if at <= now]
        pending = tuple(moment for moment in self.pending if moment[0] > now)
        # As many as fit, evenly: were the oldest dropped, those about to come true would go, and a horizon longer than
        # all that is kept would never teach anything.
        if foretells and (not pending or now + horizon >= pending[-1][0] + max(SPACING, horizon / PENDING)):
            pending = (*pending, (now + horizon, level, usual))
        pairs = np.concatenate((self.pairs, due))[-KEPT:] if due else self.pairs
        return Forecast(pending[-2 * PENDING :], pairs, mean, self.seen + elapsed, self.found or ready)

    def in_other_units(self, ratio: float) -> Forecast:
        """The same where what was work of 1 is work of `ratio`."""
        pending = tuple((at, level * ratio, usual * ratio) for at, level, usual in self.pending)
        pairs = np.minimum(self.pairs * ratio, MOST_WORK)
        return replace(self, pending=pending, pairs=pairs, mean=min(self.mean * ratio, MOST_WORK))

    def outlook(self, *, level: float, usual: float, carried: float) -> Outlook:
        """Demand a horizon ahead. `carried`: demand that a replica carries within its SLO."""
        now, rule = np.array([level]), self._rule()
        expected = rule.at(now, np.array([usual]))
        return self._foresee(rule, expected, self._likeness(now), carried)

    def past(self, carried: float) -> Past | None:
        """What is remembered, moment by moment, and the prior beliefs; None where there was no demand."""
        level, usual, came = self.pairs.T
        moments = len(came)
        beliefs = np.full(len(PRIOR_ERRORS) + 1, self.mean)
        level, usual = np.append(level, beliefs), np.append(usual, beliefs)
        came = np.concatenate((came, np.maximum(0.0, self.mean * (1.0 + PRIOR_ERRORS)), [self._believed(carried)]))
        if came.sum() <= 0.0:
            return None
        rule, likeness = self._rule(), self._likeness(level)
        # No moment's samples are weighed by what came around it.
        likeness[:moments] *= _far_apart(moments)
        outlook = self._foresee(rule, rule.at(level, usual), likeness, carried)
        return Past(outlook, came, self._weights(np.ones(moments), carried), moments)

    def _rule(self) -> Rule:
        """Ridge regression of what came, towards persistence."""
        if not len(self.pairs):
            return Rule(self.mean, 1.0, 1.0)
        level, usual, came = self.pairs.T
        moves = np.stack((level - usual, usual - self.mean))
        (jumps, both), (_, drifts) = (moves @ moves.T).tolist()
        jumped, drifted = (moves @ (came - level)).tolist()
        jumps += RIDGE[0] * (jumps / len(level) + 1e-12)
        drifts += RIDGE[1] * (drifts / len(level) + 1e-12)
        determinant = jumps * drifts - both * both
        hold = 1.0 + (drifts * jumped - both * drifted) / determinant
        keep = 1.0 + (jumps * drifted - both * jumped) / determinant
        return Rule(self.mean, min(1.0, max(0.0, hold)), min(1.0, max(0.0, keep)))

    def _likeness(self, level: Array) -> Array:
        """How much what came at each remembered level (column) says of what comes at each of `level` (row)."""
        # In place: with 240 rows of 240 the temporaries took longer than the arithmetic.
        distance = np.subtract.outer(np.sqrt(level), np.sqrt(self.pairs[:, 0]))
        distance /= LIKENESS * math.sqrt(max(self.mean, NOTHING))
        distance *= distance
        distance *= -0.5
        return np.exp(distance, out=distance)

    def _foresee(self, rule: Rule, expected: Array, likeness: Array, carried: float) -> Outlook:
        then, usual, came = self.pairs.T
        # Errors are added as they were, neither scaled by the level nor by its root: those of levels like this one
        # count most and fit as they are; on steps, where there is none like it, the step that was is what may come, up
        # to BEYOND. The stand-ins have no bound: what they stand for is played as what came, and must be foreseen.
        errors = np.append(came - rule.at(then, usual), PRIOR_ERRORS * self.mean)
        samples = np.empty((len(expected), len(errors) + 1))
        told = samples[:, :-1]
        np.add.outer(expected, errors, out=told)
        highest = np.maximum(expected, came.max(initial=then.max(initial=0.0)))
        of_past = told[:, : len(came)]
        np.minimum(of_past, BEYOND * highest[:, None], out=of_past)
        np.maximum(told, 0.0, out=told)
        samples[:, -1] = self._believed(carried)
        weights = self._weights(likeness, carried)
        weights /= weights.sum(axis=1, keepdims=True)
        return Outlook(expected, samples, weights)

    def _believed(self, carried: float) -> float:
        """Demand that the fleet found would carry; none once it is forgotten, or every scale would reach that far."""
        return self.found * carried if self.seen < TRUST_LASTS else 0.0

    def _weights(self, seen: Array, carried: float) -> Array:
        """Weights of what was seen, and behind them those of the beliefs."""
        likely = self.mean / max(self.mean, self._believed(carried)) if self.mean > NOTHING else 0.0
        trust = TRUST * likely**SHY * max(0.0, 1.0 - self.seen / TRUST_LASTS)
        beliefs = np.append(np.full(len(PRIOR_ERRORS), PRIOR_PAIRS / len(PRIOR_ERRORS)), trust)
        return np.concatenate((seen, np.broadcast_to(beliefs, (*seen.shape[:-1], len(beliefs)))), axis=-1)


@lru_cache(maxsize=KEPT)
def _far_apart(moments: int) -> NDArray[np.bool_]:
    """Which of some moments in order lie further from each other than what is hidden around each. All pools': 5 MB."""
    at = SPACING * np.arange(moments)
    far: NDArray[np.bool_] = np.abs(np.subtract.outer(at, at)) > APART
    far.setflags(write=False)
    return far
