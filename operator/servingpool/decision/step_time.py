"""How long an engine step takes, learned from what the fleet shows.

A continuous-batching engine does one step after another; a step decodes one token for each running request and may
carry prefill tokens of new ones. Its duration is close to

    step = a + b * (requests decoding) + c * (prefill tokens in the step)          [seconds]

Every output token takes one slot of one step and every prompt token is prefilled once, so a request costs
`b * output + c * prompt` replica-seconds on top of the steps that run anyway. Offered work over ready replicas is the
load; without queueing ITL = a / (1 - load).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import NamedTuple

import numpy as np

from servingpool.decision.params import Params

RATIO_SPREAD = 0.6
"""Relative standard deviation of both prior ratios."""
NOISE = 0.15
"""Spread of one window's mean ITL around the model: mixes differ between steps."""
DRIFT_TIME = 120.0
"""Seconds over which observed and expected ITL are compared."""
LEAST_WINDOWS = 4.0
"""Windows of evidence before the fit is known."""
FASTEST_STEP = 1e-5
"""Seconds. No engine steps faster: such an ITL is a damaged sample, and one alone would drown the fit."""
LARGEST_BATCH = 1024.0
"""Requests, vLLM's largest default. Where a step takes as long with one request as with many, an output token still
costs this fraction of a step."""

Vector = tuple[float, float, float]


class Steps(NamedTuple):
    """The steps of one replica in one interval, as means."""

    itl: float
    """Seconds of a step."""
    decoding: float
    """Requests in the batch."""
    prefill: float
    """Prefill tokens in a step."""
    base: float = 1.0
    """0 where a request without a step to decode takes the place of a step: its time grows from no base."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The three coefficients, and what a step yields."""

    base: float
    """a: seconds of a step with no work in it."""
    per_request: float
    """b: seconds per decoding request."""
    per_prefill_token: float
    """c: seconds per prefill token."""
    batch: float = math.inf
    """Requests that decode in a full batch; infinite where none is known to be full."""
    tokens: float = 1.0
    """Tokens that a step yields for each request: more than one with speculative decoding."""
    stretch: float = 1.0
    """Work of the usual request over what it would be without a limit on the batch."""

    def seconds(self, decoding: float, prefill_tokens: float) -> float:
        """Duration of a step with so much in it."""
        return self.base + self.per_request * decoding + self.per_prefill_token * prefill_tokens

    def expected(self, steps: Steps) -> float:
        """Duration of a step as these are."""
        return self.base * steps.base + self.per_request * steps.decoding + self.per_prefill_token * steps.prefill

    def work(self, prompt_tokens: float, steps: float) -> float:
        """Replica-seconds that one request costs; `steps` decode it."""
        decoding = max(self.per_request, self.base / LARGEST_BATCH) + self.base / self.batch
        return self.per_prefill_token * prompt_tokens + decoding * steps

    @property
    def between_tokens(self) -> float:
        """Seconds from one token to the next where there is no load."""
        return self.base / self.tokens

    def limited(self, *, batch: float, tokens: float, prompt_tokens: float, steps: float) -> StepTime:
        """With this full batch and yield, where the usual request has so many prompt tokens and decoding steps."""
        base, per_request, per_token = self.base, self.per_request, self.per_prefill_token
        limited = StepTime(base, per_request, per_token, batch, tokens, self.stretch)
        without = self.work(prompt_tokens, steps)
        if without <= 0.0:
            return limited
        return StepTime(base, per_request, per_token, batch, tokens, limited.work(prompt_tokens, steps) / without)


@dataclass(frozen=True, slots=True)
class StepTimeFit:
    """Weighted normal equations of (a, b, c): nine sums and three, so it is small and forgets smoothly."""

    gram: tuple[float, ...] = (0.0,) * 9
    moment: tuple[float, ...] = (0.0,) * 3
    windows: float = 0.0
    """Windows of evidence held, after forgetting."""
    scale: float = 0.0
    """Seconds: running mean of the ITL, which sets the prior's absolute size."""
    drift: float = 0.0
    """Logarithm of observed over expected ITL, as a mean of the last minutes."""
    renewing: bool = False
    """Whether the engine has changed and is not learned yet."""

    def update(self, steps: Sequence[Steps], *, elapsed: float, params: Params, prefills: bool = False) -> StepTimeFit:
        """Add one window of `elapsed` seconds, a row per replica; nothing where none decoded enough.

        A step is as long as its own replica's batch makes it, so replicas are not averaged first. All count alike, and
        by their relative errors, so that one with a sick GPU is one among many. `prefills`: see `Pool`.
        """
        if not steps:
            return self
        if self.windows and self.decodes != bool(steps[0].base):
            # The two do not fit together. Steps tell more, except of engines that prefill for decode engines. One
            # request for 150 tokens to a real one made each prompt 11 times cheaper, for good.
            return self if self.decodes != prefills else StepTimeFit().update(steps, elapsed=elapsed, params=params)
        ratio = self._observed_over_expected(steps, params)
        drift = 0.0 if ratio is None else self.drift + min(1.0, elapsed / DRIFT_TIME) * (ratio - self.drift)
        renewing = abs(drift) > (params.engine_settled if self.renewing else params.engine_changed)
        keep = math.exp(-elapsed / (params.renewal if renewing else params.fit_memory))
        # Another engine is another speed first: what was seen of large and small batches is kept as if seen at it. No
        # engine changes by more than a factor of e, and a damaged sample must not drown what is left.
        speed = 1.0
        if renewing and ratio is not None:
            speed = math.exp(max(-1.0, min(1.0, ratio)) * min(1.0, elapsed / params.renewal))
        of_gram, of_moment = keep / speed**2, keep / speed
        itl, decoding, prefill, base = np.array(steps).T
        rows = np.array((base, decoding, prefill)) / (NOISE * itl)
        products, moments = rows @ rows.T / len(steps), rows.sum(axis=1) / (NOISE * len(steps))
        gram = tuple(held * of_gram + more for held, more in zip(self.gram, products.ravel().tolist(), strict=True))
        moment = tuple(held * of_moment + more for held, more in zip(self.moment, moments.tolist(), strict=True))
        mean = float(itl.mean())
        scale = mean if self.windows == 0.0 else self.scale + (mean - self.scale) / (min(self.windows, 40.0) + 1.0)
        return StepTimeFit(gram, moment, self.windows * keep + 1.0, scale, drift, renewing)

    def _observed_over_expected(self, steps: Sequence[Steps], params: Params) -> float | None:
        """Logarithm, of the middle replica: an upgrade is all replicas', a sick GPU one's. None while not known."""
        step = self.solve(params) if self.known else None
        if step is None:
            return None
        return median(math.log(one.itl / max(step.expected(one), FASTEST_STEP)) for one in steps)

    @property
    def decodes(self) -> bool:
        """Whether it was learned from steps, and not from requests that none decoded."""
        return self.gram[0] > 0.0

    def changed(self, params: Params) -> bool:
        """Whether the engine has not been the one that was learned, for minutes."""
        return abs(self.drift) > params.engine_changed

    @property
    def known(self) -> bool:
        """Whether enough windows were seen to act on it."""
        return self.windows >= LEAST_WINDOWS

    def solve(self, params: Params) -> StepTime | None:
        """Non-negative least squares with the prior; None before the first window."""
        if self.windows == 0.0:
            return None
        prior, per_second = _prior(params.decode_ratio, params.prefill_ratio), self.scale**-2
        gram = [seen + per_second * belief for seen, belief in zip(self.gram, prior, strict=True)]
        return StepTime(*_non_negative(gram, self.moment))


@lru_cache
def _prior(decode_ratio: float, prefill_ratio: float) -> tuple[float, ...]:
    """The normal equations of the two ratios where a step takes a second."""
    gram = np.zeros((3, 3))
    for ratio, column in ((decode_ratio, 1), (prefill_ratio, 2)):
        row = np.zeros(3)
        row[0], row[column] = -ratio, 1.0
        gram += np.outer(row, row) / (RATIO_SPREAD * ratio) ** 2
    return tuple(gram.ravel().tolist())


def _non_negative(gram: Sequence[float], moment: Sequence[float]) -> Vector:
    """Argmin x'Gx/2 - m'x over x >= 0, for G of 3 x 3 by rows, by trying every support.

    Written out: seven calls of a general solver took 88 microseconds, and this takes 9.
    """
    free = _solved(gram, moment)
    if free is not None:
        return free  # the unconstrained optimum is feasible, so it is the optimum
    best, best_value = (0.0, 0.0, 0.0), 0.0
    for found in _with_less_support(gram, moment):
        value = -0.5 * sum(one * other for one, other in zip(moment, found, strict=True))
        if value < best_value and _feasible(found):
            best, best_value = found, value
    return best


def _with_less_support(gram: Sequence[float], moment: Sequence[float]) -> Iterator[Vector]:
    """The optima with one coefficient at 0, and with two."""
    aa, ab, ac, _, bb, bc, _, _, cc = gram
    a, b, c = moment
    one, other = _solved_pair(aa, ab, bb, a, b)
    yield one, other, 0.0
    one, other = _solved_pair(aa, ac, cc, a, c)
    yield one, 0.0, other
    one, other = _solved_pair(bb, bc, cc, b, c)
    yield 0.0, one, other
    yield (a / aa if aa > 0.0 else -1.0), 0.0, 0.0
    yield 0.0, (b / bb if bb > 0.0 else -1.0), 0.0
    yield 0.0, 0.0, (c / cc if cc > 0.0 else -1.0)


def _solved(gram: Sequence[float], moment: Sequence[float]) -> Vector | None:
    """None where there is no solution, or none without a negative in it."""
    aa, ab, ac, _, bb, bc, _, _, cc = gram
    if aa <= 0.0:
        return None
    # One row of elimination leaves a pair.
    of_b, of_c = ab / aa, ac / aa
    b, c = _solved_pair(
        bb - of_b * ab, bc - of_b * ac, cc - of_c * ac, moment[1] - of_b * moment[0], moment[2] - of_c * moment[0]
    )
    found = ((moment[0] - ab * b - ac * c) / aa, b, c)
    return found if _feasible(found) else None


def _solved_pair(aa: float, ab: float, bb: float, a: float, b: float) -> tuple[float, float]:
    """Solution of a symmetric system of two; negative where it has none."""
    determinant = aa * bb - ab * ab
    if determinant <= 0.0:
        return -1.0, -1.0
    return (bb * a - ab * b) / determinant, (aa * b - ab * a) / determinant


def _feasible(figures: Sequence[float]) -> bool:
    return all(0.0 <= figure < math.inf for figure in figures)
