"""Documents among chats: few prompts, most of the work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servingpool_simulation.families.arrivals import arrivals, seconds, wandering
from servingpool_simulation.families.lengths import LogNormal
from servingpool_simulation.traces import Ints, Trace


@dataclass(frozen=True, slots=True)
class Tail:
    """The documents: Pareto lengths from `least` tokens on."""

    share: float = 0.04
    """Of all requests."""
    least: float = 12_000.0
    index: float = 0.9
    """Exponent: the share above x tokens falls as x ** -index."""

    def __post_init__(self) -> None:
        if not (0 <= self.share <= 1 and self.least >= 1 and self.index > 0):
            raise ValueError(f"need share 0 to 1, least >= 1 token and index > 0, got {self}")


TAIL = Tail()


def tailed(random: np.random.Generator, body: LogNormal, tail: Tail, size: int) -> Ints:
    """Lengths from `body`, some from `tail` instead, up to `body.most`.

    The tail is drawn by inversion from the truncated distribution, so nothing piles up at its end.
    """
    lengths = body.draw(random, size)
    far = random.random(size) < tail.share
    beyond = 1.0 - (tail.least / body.most) ** tail.index
    drawn = tail.least * (1.0 - random.random(int(far.sum())) * beyond) ** (-1.0 / tail.index)
    lengths[far] = np.minimum(np.rint(drawn), body.most).astype(np.int64)
    return lengths


def long_prompts(
    rate: float,
    prompt: LogNormal,
    output: LogNormal,
    *,
    tail: Tail = TAIL,
    drift: float = 0.25,
    duration: float = 7200.0,
    seed: int = 0,
) -> Trace:
    """`rate` requests/s with log-normal prompts, some of them documents from `tail`.

    ServeGen (arXiv 2505.09999) describes production prompts as this mixture; an exponent near 1 gives the tail most of
    the work. No replica computes a prompt of 120k tokens within seconds, so a floor of misses stays at any fleet
    size, and a mean over minutes jumps with a single request.
    The rate wanders: standard deviation of its logarithm `drift`, memory 15 minutes.
    """
    random = np.random.default_rng((seed, 6))
    rates = np.full(len(seconds(duration)), float(rate)) * wandering(random, duration, drift, 900.0)
    arrival = arrivals(random, rates)
    prompts = tailed(random, prompt, tail, len(arrival))
    return Trace("long prompts", arrival, prompts, output.draw(random, len(arrival)), duration)
