"""Demand one cold start ahead, and how wrong such forecasts have been.

What is ordered now serves a cold start later, so demand must be known then. How far traffic persists is learned:
`persistence` is the part of a jump above the usual that is still there a cold start later (1 on steps, near 0 on bursts
that are over by then), `reversion` the part of what sets the usual apart from the hour's mean. What is not foreseen is
a distribution: the errors of past forecasts, at levels like this one.

The memory keeps rates, which stay true when the engine changes. A forecast is in work, by today's step time.

A trend over ten minutes is left out: over one cold start its best weight was 0.00 to 0.05 on every trace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.engine import MOST_WORK, NO_DEMAND, Rates, StepTime
from servingpool.decision.observe.window import NOTHING
from servingpool.decision.params import DEFAULT, HOUR, REMEMBERED, Params

Array = NDArray[np.float64]
Moment = tuple[float, Rates, Rates]

SPACING = 29.0
"""Seconds between two forecasts that are kept, about the rate window: kept each minute, every second burst of half a
minute was never seen, and the others counted twice."""
FORECASTS_KEPT = 240
"""Forecasts that came true, two hours of them; and as many that have not come true yet."""
HIDDEN = 600.0
"""Seconds around a moment of the past that are hidden from it when it is replayed. A burst that is predicted from
itself costs one spare replica, and the next one, which is like no other, meets a fleet that was thought to hold."""
LIKENESS = 0.8
"""Width of "levels like this one", in roots of demand over the root of its mean: there, counts spread evenly."""
PRIOR_SHAPE = np.array((-1.5, -0.9, -0.45, -0.15, 0.15, 0.45, 0.9, 1.5))
"""Prior errors, in standard deviations."""
INITIAL_POWER = 1.5
"""Power of how much more than the mean the initial fleet could serve, which divides its weight: twice is likely, ten
times is a fleet too large."""


class Outlook(NamedTuple):
    """Demand at the horizon, in replicas kept busy: a row for each state."""

    expected: Array
    samples: Array
    """Possible demands, a column each; the last is the demand that the initial fleet could serve."""
    weights: Array
    """Weights of the samples; each row sums to 1."""

    @classmethod
    def certain(cls, level: float) -> Outlook:
        """This demand and no other."""
        return cls(np.array([level]), np.array([[level, level]]), np.array([[1.0, 0.0]]))

    def plus(self, work: float) -> Outlook:
        """The outlook with so much work in addition."""
        return self._replace(expected=self.expected + work, samples=self.samples + work)

    def with_and_without_initial(self) -> Outlook:
        """Each state, and after them each without the last column."""
        rest = self.weights.copy()
        rest[:, -1] = 0.0
        weights = np.concatenate((self.weights, rest / rest.sum(axis=1, keepdims=True)))
        return Outlook(np.concatenate((self.expected,) * 2), np.concatenate((self.samples,) * 2), weights)

    def exceeded_by(self, share: float) -> float:
        """Demand that this share of the possible demands exceeds, in the first state.

        Without what the initial fleet could serve, which orders nothing.
        """
        samples, weights = self.samples[0, :-1], self.weights[0, :-1]
        order = samples.argsort()
        place = int(weights[order].cumsum().searchsorted((1.0 - share) * np.add.reduce(weights)))
        return float(samples[order[min(place, len(order) - 1)]])


class Past(NamedTuple):
    """The recent past, as today's knowledge would have forecast it, moment by moment."""

    outlook: Outlook
    observed: Array
    """Demand that followed, for each state."""
    counts: Array
    """Weight of each state."""
    moments: int
    """How many of the states, from the first, are moments in order; the others are prior beliefs."""


class Rule(NamedTuple):
    """Expected demand, as a function of demand now."""

    mean: float
    persistence: float
    reversion: float

    def at(self, level: Array, usual: Array) -> Array:
        """Expected demand, given the level and its mean over the last ten minutes."""
        drift, jump = self.reversion * (usual - self.mean), self.persistence * (level - usual)
        return np.maximum(0.0, self.mean + drift + jump)


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """The learned movement of demand."""

    pending: tuple[Moment, ...] = ()
    """(due time in Unix seconds, demand then, usual demand then): forecasts that have not come true yet."""
    pairs: Array = field(default_factory=lambda: np.zeros((0, 3, 2)))
    """(demand, usual demand, observed a horizon later) in rows, as `Rates`, oldest first; never changed in place."""
    mean: Rates = NO_DEMAND
    """Mean demand of about the last hour."""
    seen: float = 0.0
    """Seconds of demand that the mean rests on."""
    initial_replicas: int = 0
    """Replicas at first sight."""

    def update(
        self, *, now: float, demand: Rates, usual: Rates, ready: int, horizon: float, elapsed: float, files: bool = True
    ) -> Forecast:
        """Settle the forecasts that are due against `demand`; file a new one if `files`, where one is due."""
        weight = elapsed / (min(self.seen, HOUR) + elapsed) if self.seen > 0.0 else 1.0
        mean = Rates(*(old + (new - old) * weight for old, new in zip(self.mean, demand, strict=True)))
        due = [(then, was_usual, demand) for at, then, was_usual in self.pending if at <= now]
        pending = tuple([moment for moment in self.pending if moment[0] > now])
        # Spread over the horizon: were the oldest dropped, a horizon longer than all that is kept would teach nothing.
        spacing = max(SPACING, 2 * horizon / FORECASTS_KEPT)
        if files and (not pending or now + horizon >= pending[-1][0] + spacing):
            pending = (*pending, (now + horizon, demand, usual))
        pairs = np.concatenate((self.pairs, due))[-FORECASTS_KEPT:] if due else self.pairs
        return Forecast(pending[-FORECASTS_KEPT:], pairs, mean, self.seen + elapsed, self.initial_replicas or ready)

    def in_work(self, step: StepTime, params: Params) -> WorkForecast:
        """What follows from it, in work by this step time."""
        pairs, mean = step.work(self.pairs[..., 0], self.pairs[..., 1]), step.work(*self.mean)
        pairs, mean = np.minimum(pairs, MOST_WORK), min(mean, MOST_WORK)
        return WorkForecast(pairs, mean, self.seen, self.initial_replicas, params)


@dataclass(frozen=True, slots=True)
class Busy:
    """Mean demand while requests come, over about the last four hours of such time.

    It outlasts nights at zero, in which windows empty and the forecast's mean fades.
    """

    rates: Rates = NO_DEMAND
    """Demand."""
    prompt: float = 0.0
    """Tokens of a request that are computed."""
    steps: float = 0.0
    """Steps that decode a request."""
    tokens: float = 1.0
    """Output tokens of a step for each request."""
    seconds: float = 0.0
    """Seconds that the means rest on."""

    def update(self, seen: Sequence[float], elapsed: float, memory: float) -> Busy:
        """Add `elapsed` seconds in which a request began and that were `seen` to have these figures, in their order.

        `memory`: seconds that a mean rests on at most.
        """
        seconds = self.seconds + elapsed
        weight, before = elapsed / min(seconds, memory), (*self.rates, self.prompt, self.steps, self.tokens)
        mean = [was + (now - was) * weight for was, now in zip(before, seen, strict=True)]
        return Busy(Rates(mean[0], mean[1]), mean[2], mean[3], mean[4], seconds)


@dataclass(frozen=True, eq=False)
class WorkForecast:
    """A `Forecast` with all demands in replicas kept busy."""

    pairs: Array
    """(level, usual level, observed a horizon later) in rows."""
    mean: float
    seen: float
    initial_replicas: int = 0
    params: Params = DEFAULT

    def outlook(self, *, level: float, usual: float, capacity: float) -> Outlook:
        """Demand a horizon ahead. `capacity`: demand that a replica serves within the SLO."""
        now = np.array([level])
        return self._foresee(self.rule.at(now, np.array([usual])), self._likeness(now), capacity)

    def outlook_of(self, level: float, *, capacity: float) -> Outlook:
        """Possible demand where about this level is expected, whatever the level is now."""
        expected = np.array([level])
        return self._foresee(expected, self._likeness(expected), capacity)

    def past(self, capacity: float) -> Past | None:
        """The remembered moments and the prior beliefs; None where there was no demand."""
        level, usual, observed = self.pairs.T
        moments = len(observed)
        errors = self.params.prior_error * PRIOR_SHAPE
        beliefs = np.full(len(errors) + 1, self.mean)
        level, usual = np.concatenate((level, beliefs)), np.concatenate((usual, beliefs))
        initial = [self._initial(capacity)]
        observed = np.concatenate((observed, np.maximum(0.0, self.mean * (1.0 + errors)), initial))
        if observed.sum() <= 0.0:
            return None
        likeness = self._likeness(level)
        # No moment's samples are weighed by what came around it.
        likeness[:moments] *= _far_apart(moments)
        outlook = self._foresee(self.rule.at(level, usual), likeness, capacity)
        return Past(outlook, observed, self._weights(np.ones(moments), capacity), moments)

    @cached_property
    def rule(self) -> Rule:
        """Ridge regression of the observed demand, towards persistence."""
        if not len(self.pairs):
            return Rule(self.mean, 1.0, 1.0)
        (level, usual, observed), weight = self.pairs.T, self.params.persistence_weight
        moves = np.array((level - usual, usual - self.mean))
        (jumps, both), (_, drifts) = (moves @ moves.T).tolist()
        jumped, drifted = (moves @ (observed - level)).tolist()
        jumps += weight * (jumps / len(level) + 1e-12)
        drifts += 3.0 * weight * (drifts / len(level) + 1e-12)
        determinant = jumps * drifts - both * both
        persistence = 1.0 + (drifts * jumped - both * drifted) / determinant
        reversion = 1.0 + (jumps * drifted - both * jumped) / determinant
        return Rule(self.mean, min(1.0, max(0.0, persistence)), min(1.0, max(0.0, reversion)))

    def _likeness(self, level: Array) -> Array:
        """How much the error at each remembered level (column) says of the error at each of `level` (row)."""
        # In place: with 240 rows of 240 the temporaries took longer than the arithmetic.
        distance = np.subtract.outer(np.sqrt(level), np.sqrt(self.pairs[:, 0]))
        distance /= LIKENESS * math.sqrt(max(self.mean, NOTHING))
        distance *= distance
        distance *= -0.5
        return np.exp(distance, out=distance)

    def _foresee(self, expected: Array, likeness: Array, capacity: float) -> Outlook:
        then, usual, observed = self.pairs.T
        # Errors are added as they were, not scaled by the level: those of levels like this one count most and fit as
        # they are. Those of the past lead no further than `beyond` the highest demand; prior errors have no bound.
        errors = np.concatenate(
            (observed - self.rule.at(then, usual), self.params.prior_error * PRIOR_SHAPE * self.mean)
        )
        samples = np.empty((len(expected), len(errors) + 1))
        may_come = samples[:, :-1]
        np.add.outer(expected, errors, out=may_come)
        highest = np.maximum(expected, observed.max(initial=then.max(initial=0.0)))
        of_past = may_come[:, : len(observed)]
        np.minimum(of_past, self.params.beyond * highest[:, None], out=of_past)
        np.maximum(may_come, 0.0, out=may_come)
        samples[:, -1] = self._initial(capacity)
        weights = self._weights(likeness, capacity)
        weights /= weights.sum(axis=1, keepdims=True)
        return Outlook(expected, samples, weights)

    def _initial(self, capacity: float) -> float:
        """Demand that the initial fleet could serve: somebody may have known why it has this size. 0 once forgotten."""
        return self.initial_replicas * capacity if self.seen < REMEMBERED else 0.0

    def _weights(self, seen: Array, capacity: float) -> Array:
        """Weights of what was seen, and after them those of the prior errors and of the initial fleet."""
        likely = self.mean / max(self.mean, self._initial(capacity)) if self.mean > NOTHING else 0.0
        initial = self.params.initial_weight * likely**INITIAL_POWER * max(0.0, 1.0 - self.seen / REMEMBERED)
        count = seen.shape[-1]
        weights = np.empty((*seen.shape[:-1], count + len(PRIOR_SHAPE) + 1))
        weights[..., :count] = seen
        weights[..., count:-1] = self.params.prior_weight / len(PRIOR_SHAPE)
        weights[..., -1] = initial
        return weights


@lru_cache(maxsize=FORECASTS_KEPT)
def _far_apart(moments: int) -> NDArray[np.bool_]:
    """Which of some moments in order lie further from each other than what is hidden around each. All pools': 5 MB."""
    at = SPACING * np.arange(moments)
    far: NDArray[np.bool_] = np.abs(np.subtract.outer(at, at)) > HIDDEN
    far.setflags(write=False)
    return far
