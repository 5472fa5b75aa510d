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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

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
RENEWAL = 67.0
"""Seconds after which a window counts 1/e until the fit is back."""
MINIMUM_WINDOWS = 4.0
"""Windows of evidence before the fit is called known."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The three coefficients."""

    base: float
    """a: seconds of a step with no work in it."""
    per_request: float
    """b: seconds per decoding request."""
    per_prefill_token: float
    """c: seconds per prefill token."""

    def work(self, prompt_tokens: float, output_tokens: float) -> float:
        """Replica-seconds that one request costs."""
        return self.per_prefill_token * prompt_tokens + self.per_request * output_tokens


@dataclass(frozen=True, slots=True)
class StepTimeFit:
    """Weighted normal equations of (a, b, c): six sums and three, so it is small and forgets smoothly."""

    gram: tuple[float, ...] = (0.0,) * 9
    moment: tuple[float, ...] = (0.0,) * 3
    windows: float = 0.0
    """Windows of evidence held, after forgetting."""
    scale: float = 0.0
    """Seconds: running mean of the ITL seen, which sets the prior's absolute size."""
    drift: float = 0.0
    """Logarithm of ITL seen over ITL expected, as a mean of the last minutes."""

    def learn(self, *, itl: float, decoding: float, prefill_per_step: float, elapsed: float) -> StepTimeFit:
        """Add one window's fleet means: ITL in seconds, requests decoding per replica, prefill tokens per step."""
        drift = self._drift(itl, decoding, prefill_per_step, elapsed)
        keep = math.exp(-elapsed / (RENEWAL if abs(drift) > CHANGED else FORGETTING))
        row = np.array([1.0, decoding, prefill_per_step])
        weight = 1.0 / (RELATIVE_NOISE * itl) ** 2
        gram = np.array(self.gram).reshape(3, 3) * keep + weight * np.outer(row, row)
        moment = np.array(self.moment) * keep + weight * itl * row
        scale = itl if self.windows == 0.0 else self.scale + (itl - self.scale) / (min(self.windows, 40.0) + 1.0)
        return StepTimeFit(
            tuple(gram.ravel().tolist()), tuple(moment.tolist()), self.windows * keep + 1.0, scale, drift
        )

    def _drift(self, itl: float, decoding: float, prefill_per_step: float, elapsed: float) -> float:
        step = self.solve() if self.known else None
        if step is None:
            return 0.0
        expected = step.base + step.per_request * decoding + step.per_prefill_token * prefill_per_step
        return self.drift + min(1.0, elapsed / DRIFT_TIME) * (math.log(itl / expected) - self.drift)

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
        gram = np.array(self.gram).reshape(3, 3) + _PRIOR / self.scale**2
        base, per_request, per_token = _non_negative(gram, np.array(self.moment))
        return StepTime(base, per_request, per_token)


def _prior() -> Array:
    """The normal equations of the two ratios where a step takes a second."""
    gram = np.zeros((3, 3))
    for ratio, column in ((PRIOR_DECODE_RATIO, 1), (PRIOR_PREFILL_RATIO, 2)):
        row = np.zeros(3)
        row[0], row[column] = -ratio, 1.0
        gram += np.outer(row, row) / (PRIOR_SPREAD * ratio) ** 2
    return gram


_PRIOR = _prior()


def _non_negative(gram: Array, moment: Array) -> list[float]:
    """Argmin x'Gx/2 - m'x over x >= 0, by trying every support: seven small solves at most, no scipy in the image."""
    free = _solved(gram, moment)
    if free is not None:
        return free  # the unconstrained optimum is feasible, so it is the optimum
    best, best_value = [0.0] * 3, 0.0
    for support in ([0, 1], [0, 2], [1, 2], [0], [1], [2]):
        solution = _solved(gram[np.ix_(support, support)], moment[support])
        if solution is not None and (value := -0.5 * float(moment[support] @ solution)) < best_value:
            best, best_value = [0.0] * 3, value
            for place, figure in zip(support, solution, strict=True):
                best[place] = figure
    return best


def _solved(gram: Array, moment: Array) -> list[float] | None:
    """None where there is no solution, or none without a negative in it."""
    try:
        solution: list[float] = np.linalg.solve(gram, moment).tolist()
    except np.linalg.LinAlgError:
        return None
    return solution if all(0.0 <= figure < math.inf for figure in solution) else None
