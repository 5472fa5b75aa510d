"""How long an engine step takes, learned from what the fleet shows.

A continuous-batching engine does one step after another; a step decodes one token for each running
request and may carry prefill tokens of newcomers. Its duration is close to

    step = a + b * (requests decoding) + c * (prefill tokens in the step)          [seconds]

Every output token occupies one slot of one step and every prompt token is prefilled once, so a request
costs `b * output + c * prompt` replica-seconds on top of the steps that run anyway. Offered work over
ready replicas is the load; without queueing ITL = a / (1 - load).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from servingpool.decision.intake import FASTEST_STEP, Steps

# What b and c are in units of a, before anything was seen. A decode step reads all weights once
# (time a); a further request reads its KV cache, a further prefill token costs compute. On the ten
# GPU/model pairs measured by aiconfigurator (L40S to H200, 8B and 70B) b/a is 0.0046-0.0092 at 1k
# context and c/a 0.0030-0.0066, so one dimensionless prior serves them all, and only a must be learned.
PRIOR_DECODE_RATIO = 0.006
PRIOR_PREFILL_RATIO = 0.0045
PRIOR_SPREAD = 0.6
"""Relative standard deviation of both ratios."""
RELATIVE_NOISE = 0.15
"""Spread of one window's mean ITL around the model: mixes differ between steps."""
FORGETTING = 2400.0
"""Seconds after which a window counts 1/e: an engine upgrade is re-learned within the hour."""
DRIFT_TIME = 120.0
"""Seconds over which seen and expected ITL are compared."""
CHANGED = 0.12
"""Logarithm from which on the engine is another one: an upgrade, FP8 switched on, a slower GPU. Mixes stay below."""
BACK = 0.02
"""Logarithm up to which the fit is back. While renewal ended at CHANGED, some of the old engine's windows stayed for an
hour, and gave with the new one's a slope that neither has: at 0.7 of the step times, conversations were thought to cost
1.5 times what they did ten minutes later, and 1.3 times twenty minutes later."""
RENEWAL = 67.0
"""Seconds after which a window counts 1/e until the fit is back, and in which what is left follows the new speed."""
MINIMUM_WINDOWS = 4.0
"""Windows of evidence before the fit is called known: the fifth, for the first have faded a little by then."""


MOST_BATCH = 1024.0
"""Largest batch of any engine, in requests (vLLM's largest default). Where a step takes as long with one request as
with many, an output token still costs this fraction of a step."""


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
    """Requests that decode in a full batch; infinite where none is known to be full, see `saturation`."""
    tokens: float = 1.0
    """Tokens that a step yields for each request: more than one with speculative decoding."""
    stretch: float = 1.0
    """Work of the usual request over what it would be without a limit on the batch."""

    def seconds(self, decoding: float, prefill_tokens: float) -> float:
        """Of a step with so much in it."""
        return self.base + self.per_request * decoding + self.per_prefill_token * prefill_tokens

    def work(self, prompt_tokens: float, steps: float) -> float:
        """Replica-seconds that one request costs; `steps` is of decoding it."""
        decoding = max(self.per_request, self.base / MOST_BATCH) + self.base / self.batch
        return self.per_prefill_token * prompt_tokens + decoding * steps

    @property
    def between_tokens(self) -> float:
        """Seconds from one token to the next where there is no load."""
        return self.base / self.tokens

    def limited(self, *, batch: float, tokens: float, prompt_tokens: float, steps: float) -> StepTime:
        """With this full batch and yield, where the usual request has so many prompt tokens and decoding steps."""
        free = replace(self, tokens=tokens)
        limited = replace(free, batch=batch)
        without = free.work(prompt_tokens, steps)
        return replace(limited, stretch=limited.work(prompt_tokens, steps) / without) if without > 0.0 else limited


@dataclass(frozen=True, slots=True)
class StepTimeFit:
    """Weighted normal equations of (a, b, c): nine sums and three, so it is small and forgets smoothly."""

    gram: tuple[float, ...] = (0.0,) * 9
    moment: tuple[float, ...] = (0.0,) * 3
    windows: float = 0.0
    """Windows of evidence held, after forgetting."""
    scale: float = 0.0
    """Seconds: running mean of the ITL seen, which sets the prior's absolute size."""
    drift: float = 0.0
    """Logarithm of ITL seen over ITL expected, as a mean of the last minutes."""
    renewing: bool = False
    """Whether the engine has changed and the fit is not back yet."""

    def learn(self, steps: Sequence[Steps], *, elapsed: float) -> StepTimeFit:
        """Add one window of `elapsed` seconds, as each replica saw it; nothing where none decoded enough.

        A step meets what is in its own replica. While two replicas worked off the queue of an overload and eleven new
        ones were nearly idle, the ITL was the full ones' and the fleet's mean batch was not: a request was thought to
        cost 1.8 times what it does, and 25 replicas stood for an hour where 8 do. All replicas count alike, and by
        their relative errors, so that one with a sick GPU is one among many.
        """
        if not steps:
            return self
        gone = self._gone(steps)
        drift = 0.0 if gone is None else self.drift + min(1.0, elapsed / DRIFT_TIME) * (gone - self.drift)
        renewing = abs(drift) > (BACK if self.renewing else CHANGED)
        keep = math.exp(-elapsed / (RENEWAL if renewing else FORGETTING))
        # Another engine is another speed first: at it, what was seen of large and small batches holds until they come
        # again. So what is left is kept as if seen at the speed of now.
        speed = math.exp(_bounded(gone) * min(1.0, elapsed / RENEWAL)) if renewing and gone is not None else 1.0
        of_gram, of_moment = keep / speed**2, keep / speed
        itl, decoding, prefill = np.array(steps).T
        rows = np.stack((np.ones(len(steps)), decoding, prefill)) / (RELATIVE_NOISE * itl)
        products, moments = rows @ rows.T / len(steps), rows.sum(axis=1) / (RELATIVE_NOISE * len(steps))
        gram = tuple(held * of_gram + more for held, more in zip(self.gram, products.ravel().tolist(), strict=True))
        moment = tuple(held * of_moment + more for held, more in zip(self.moment, moments.tolist(), strict=True))
        mean = float(itl.mean())
        scale = mean if self.windows == 0.0 else self.scale + (mean - self.scale) / (min(self.windows, 40.0) + 1.0)
        return StepTimeFit(gram, moment, self.windows * keep + 1.0, scale, drift, renewing)

    def _gone(self, steps: Sequence[Steps]) -> float | None:
        """Logarithm of ITL seen over ITL expected; None where nothing is expected yet."""
        step = self.solve() if self.known else None
        if step is None:
            return None
        # Of the middle replica: an upgrade is all replicas', a sick GPU one's.
        return median(math.log(one.itl / max(step.seconds(one.decoding, one.prefill), FASTEST_STEP)) for one in steps)

    @property
    def changed(self) -> bool:
        """Whether the engine has not been the one that was learned, for minutes."""
        return abs(self.drift) > CHANGED

    @property
    def known(self) -> bool:
        """Whether enough windows were seen to act on it."""
        return self.windows >= MINIMUM_WINDOWS

    def solve(self) -> StepTime | None:
        """Non-negative least squares with the prior; None before the first window."""
        if self.windows == 0.0:
            return None
        per_second = self.scale**-2
        gram = [seen + per_second * prior for seen, prior in zip(self.gram, _PRIOR, strict=True)]
        return StepTime(*_non_negative(gram, self.moment))


def _bounded(gone: float) -> float:
    """Within a factor of e: no engine changes by more, and a damaged page must not drown what is left."""
    return max(-1.0, min(1.0, gone))


def _prior() -> tuple[float, ...]:
    """The normal equations of the two ratios where a step takes a second."""
    gram = np.zeros((3, 3))
    for ratio, column in ((PRIOR_DECODE_RATIO, 1), (PRIOR_PREFILL_RATIO, 2)):
        row = np.zeros(3)
        row[0], row[column] = -ratio, 1.0
        gram += np.outer(row, row) / (PRIOR_SPREAD * ratio) ** 2
    return tuple(gram.ravel().tolist())


_PRIOR = _prior()


def _non_negative(gram: Sequence[float], moment: Sequence[float]) -> tuple[float, float, float]:
    """Argmin x'Gx/2 - m'x over x >= 0, for G of 3 x 3 by rows.

    By trying every support, written out: where noise makes a coefficient negative, seven calls of a general solver
    took 88 microseconds, and this takes 9.
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


def _with_less_support(gram: Sequence[float], moment: Sequence[float]) -> Iterator[tuple[float, float, float]]:
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


def _solved(gram: Sequence[float], moment: Sequence[float]) -> tuple[float, float, float] | None:
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
    """Of a symmetric system of two; negative where it has no solution."""
    determinant = aa * bb - ab * ab
    if determinant <= 0.0:
        return -1.0, -1.0
    return (bb * a - ab * b) / determinant, (aa * b - ab * a) / determinant


def _feasible(figures: Sequence[float]) -> bool:
    return all(0.0 <= figure < math.inf for figure in figures)
