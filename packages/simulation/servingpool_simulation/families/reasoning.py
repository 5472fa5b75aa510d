"""Reasoning models: short questions, answers of thousands of tokens."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.families.arrivals import arrivals, seconds, wandering
from servingpool_simulation.families.lengths import LogNormal
from servingpool_simulation.traces import Trace

QUESTION = LogNormal(median=350.0, spread=1.0, least=20, most=16_000)
THOUGHTS = LogNormal(median=4_000.0, spread=0.8, least=1_000, most=30_000)


def reasoning(
    rate: float,
    *,
    question: LogNormal = QUESTION,
    thoughts: LogNormal = THOUGHTS,
    drift: float = 0.3,
    duration: float = 7200.0,
    seed: int = 0,
) -> Trace:
    """`rate` questions/s to a model that thinks before it answers: outputs of 1k to 30k tokens, log-normal.

    A request lives for minutes, longer than a cold start: the batch and the KV cache fill slowly, every verdict on
    TPOT comes minutes late, and a drained replica is paid for as long.
    The rate wanders: standard deviation of its logarithm `drift`, memory 20 minutes.
    """
    random = np.random.default_rng((seed, 8))
    rates = np.full(len(seconds(duration)), float(rate)) * wandering(random, duration, drift, 1200.0)
    arrival = arrivals(random, rates)
    size = len(arrival)
    return Trace("reasoning", arrival, question.draw(random, size), thoughts.draw(random, size), duration)
