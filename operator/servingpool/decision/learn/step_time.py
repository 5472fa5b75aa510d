"""The cost of a request, learned from the fleet: the coefficients of a step, and the batch that fills a replica.

An engine may admit fewer requests at a time than its steps could carry (a limit on sequences, a small KV cache). Its
steps stay short, so by step time alone it looks idle while a queue grows. But each step costs the time `a`, however few
tokens it yields: with `n` requests in a full batch an output token costs `a / n` in addition to `b`. Counted so, a full
replica has a load of 1, whatever limits its batch. Until one was seen full, the limit in the pod's arguments counts, if
there is one: a queue that clears between two scrapes never shows a full replica.

Where requests ask for so few tokens that steps tell little of their work, the prompt's latency does. A request of 6,000
prompt tokens and an answer of two decodes one token, in the very step that the prompts share which came during its own.
Steps seen like that read the prompt's cost as up to twice what it is, and forty such requests in a scrape decode too
few tokens to tell at all: the load was unknown for ever while 17,172 requests waited. By Little's law
(`mean_prefill`) the time that such a request spends in the engine tells its work whatever the load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.engine import (
    ANOTHER_BATCH,
    FASTEST_STEP,
    LEAST_BATCH,
    MOST_BATCH,
    SHORT_ANSWER,
    STILL_SHORT,
    Steps,
    StepTime,
)
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.counters import EngineDelta
from servingpool.decision.observe.window import SampleWindow
from servingpool.decision.params import Params

RATIO_SPREAD = 0.6
"""Relative standard deviation of both prior ratios."""
NOISE = 0.15
"""Spread of one window's mean ITL around the model: mixes differ between steps."""
DRIFT_TIME = 120.0
"""Seconds over which observed and expected ITL are compared."""
SETTLED = 0.02
"""Logarithm of observed over expected ITL, below which a changed engine is learned. Where batches hardly differ, an end
at the 0.12 at which it begins left the cost of a request at 0.7 to 1.7 times what it was, for 40 minutes."""
LEAST_WINDOWS = 4.0
"""Windows of evidence before the fit is known."""

Vector = tuple[float, float, float]
Array = NDArray[np.float64]


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
        """The fit with one window of `elapsed` seconds, a row per replica; unchanged where none decoded enough.

        A step is as long as its own replica's batch makes it, so replicas are not averaged first. All count alike, and
        by their relative errors, so that one with a sick GPU is one among many. `prefills`: see `Pool`.
        """
        if not steps:
            return self
        if self.windows and self.decodes != bool(steps[0].base):
            # The two do not fit together. Steps tell more, except of engines that prefill for decode engines. One
            # request for 150 tokens to a real one made each prompt 11 times cheaper, for good.
            return self if self.decodes != prefills else StepTimeFit().update(steps, elapsed=elapsed, params=params)
        itl, decoding, prefill, base = columns = np.array(steps).T
        ratio = self._observed_over_expected(columns, params)
        drift = 0.0 if ratio is None else self.drift + min(1.0, elapsed / DRIFT_TIME) * (ratio - self.drift)
        renewing = abs(drift) > (SETTLED if self.renewing else params.engine_changed)
        keep = math.exp(-elapsed / (params.renewal if renewing else params.fit_memory))
        # Another engine is another speed first: what was seen of large and small batches is kept as if seen at it. No
        # engine changes by more than a factor of e, and a damaged sample must not drown what is left.
        speed = 1.0
        if renewing and ratio is not None:
            speed = math.exp(max(-1.0, min(1.0, ratio)) * min(1.0, elapsed / params.renewal))
        of_gram, of_moment = keep / speed**2, keep / speed
        rows = np.array((base, decoding, prefill)) / (NOISE * itl)
        products, moments = rows @ rows.T / len(steps), np.add.reduce(rows, axis=1) / (NOISE * len(steps))
        gram = tuple([held * of_gram + more for held, more in zip(self.gram, products.ravel().tolist(), strict=True)])
        moment = tuple([held * of_moment + more for held, more in zip(self.moment, moments.tolist(), strict=True)])
        mean = float(np.add.reduce(itl)) / len(itl)
        scale = mean if self.windows == 0.0 else self.scale + (mean - self.scale) / (min(self.windows, 40.0) + 1.0)
        return StepTimeFit(gram, moment, self.windows * keep + 1.0, scale, drift, renewing)

    def _observed_over_expected(self, columns: Array, params: Params) -> float | None:
        """Logarithm of observed over expected ITL of the middle replica; None where the fit is not known."""
        step = self.solve(params) if self.known else None
        if step is None:
            return None
        itl, decoding, prefill, base = columns
        # An upgrade is all replicas', a sick GPU one's.
        ratios: list[float] = np.log(itl / np.maximum(step.seconds(decoding, prefill, base), FASTEST_STEP)).tolist()
        return median(ratios)

    @property
    def decodes(self) -> bool:
        """Whether it was learned from steps, and not from requests that none decoded."""
        return self.gram[0] > 0.0

    def changed(self, params: Params) -> bool:
        """Whether the engine has differed from the learned engine for minutes."""
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
        gram = tuple([seen + per_second * belief for seen, belief in zip(self.gram, prior, strict=True)])
        return StepTime(*_non_negative(gram, self.moment))


@lru_cache
def _prior(decode_ratio: float, prefill_ratio: float) -> tuple[float, ...]:
    """The normal equations of the two ratios where a step takes a second: one row has -ratio and 1 for each."""
    decode, prefill, weight = 1.0 / decode_ratio, 1.0 / prefill_ratio, RATIO_SPREAD**-2
    rows = (2.0, -decode, -prefill, -decode, decode**2, 0.0, -prefill, 0.0, prefill**2)
    return tuple([weight * one for one in rows])


SUPPORTS = np.array(list(product((1.0, 0.0), repeat=3)))[:-1]
"""Which of three coefficients are above 0, a row for each way, all of them first: of equals it is taken."""
WITHIN, OUTSIDE = SUPPORTS[:, :, None] * SUPPORTS[:, None], np.eye(3) * (1.0 - SUPPORTS[:, None])


@lru_cache
def _non_negative(gram: tuple[float, ...], moment: tuple[float, ...]) -> Vector:
    """Argmin x'Gx/2 - m'x over x >= 0, for G of 3 x 3 by rows: of the optima on each support the one that gains most.

    0 where there is none, as of a damaged profile. A decision asks for the same one a few times.
    """
    try:
        found = np.linalg.solve(WITHIN * np.reshape(gram, (3, 3)) + OUTSIDE, (SUPPORTS * moment)[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return 0.0, 0.0, 0.0
    gain = np.where(((found >= 0.0) & (found < math.inf)).all(axis=1), found @ moment, 0.0)
    a, b, c = np.where(gain.max() > 0.0, found[gain.argmax()], 0.0).tolist()
    return a, b, c


LEAST_SECONDS = 10.0
"""Replica-seconds of full replicas before they are believed: those of one observation."""
NEARLY_FULL = 0.9
"""Share of the largest batch from which on a replica may be full."""
ANOTHER = 2.0
"""Ratio of the known full batch to a new one, above which the new batch is another limit."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Sums of requests and tokens over replicas whose batch was full, and the full batch that follows from the sums."""

    seconds: float = 0.0
    """Replica-seconds."""
    requests: float = 0.0
    tokens: float = 0.0
    decoding: float = 0.0
    """Requests that decoded, summed over the seconds."""
    batch: float = math.inf
    """Requests that decode in a full batch; infinite where none was full yet, and no limit is known."""
    most_running: float = 0.0
    """Requests in the largest batch of the last hours."""

    @property
    def known(self) -> bool:
        """Whether it is known how many decode in a full batch."""
        return math.isfinite(self.batch)

    def update(self, seen: EngineDelta, *, elapsed: float, params: Params, limit: float = math.inf) -> Saturation:
        """Add the replicas for which requests waited in these `elapsed` seconds.

        `limit`: the most that the engine's arguments admit.
        """
        full = [one for one in seen.full if not one.room]
        forget = math.exp(-elapsed / params.evidence_memory)
        # An hour of full replicas must not outweigh today's.
        keep = forget * (min(1.0, params.mean_window / (self.seconds * forget)) if self.seconds > 0.0 else 1.0)
        new_seconds = math.fsum([one.seconds for one in full])
        new_decoding = math.fsum([one.decoding for one in full])
        if self.known and new_seconds >= LEAST_SECONDS and 0.0 < ANOTHER * new_decoding / new_seconds < self.batch:
            keep = 0.0  # another engine, or other requests
        seconds = self.seconds * keep + new_seconds
        most_running = max(seen.most_running, self.most_running * forget)
        # A replica that decodes more shows that the batch was not full; more than ever ran is a damaged sample.
        busiest = max([one.decoding for one in seen.steps], default=0.0)
        decoding = max(self.decoding * keep + new_decoding, min(busiest, most_running) * seconds)
        batch = self.batch
        if seconds >= LEAST_SECONDS and decoding > 0.0:
            mean = min(MOST_BATCH, max(LEAST_BATCH, decoding / seconds))
            batch = batch if abs(mean / batch - 1.0) <= ANOTHER_BATCH else mean
        elif math.isfinite(limit):
            batch = limit
        return Saturation(
            seconds=seconds,
            requests=self.requests * keep + math.fsum([one.requests for one in full]),
            tokens=self.tokens * keep + math.fsum([one.tokens for one in full]),
            decoding=decoding,
            batch=batch,
            most_running=most_running,
        )


class ShortAnswers(NamedTuple):
    """Whether answers of the last ten minutes are short."""

    short: bool = False
    """Whether answers are so short that a request's time in the engine tells its work where there are no steps."""
    by_prompt: bool = False
    """Whether, also, most of that time is the prompt's: it tells more than steps do."""


def short_answers(window: SampleWindow, fit: StepTimeFit, params: Params) -> ShortAnswers:
    """Whether the answers in the window are short; False without requests."""
    mean = window.last(params.mean_window)
    requests = mean.sums[Column.TTFT_COUNT]
    wider = STILL_SHORT if fit.windows and not fit.decodes else 1.0
    if requests <= 0.0 or mean.sums[Column.GENERATED] > wider * SHORT_ANSWER * requests:
        return ShortAnswers()
    return ShortAnswers(short=True, by_prompt=mean.sums[Column.ITL_SUM] <= wider * mean.sums[Column.TTFT_SUM])
