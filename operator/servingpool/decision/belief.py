"""What is believed now, read off the memory: the miss curve, the cold start, and whether that is enough to go by."""

from __future__ import annotations

import math

from servingpool.decision.memory import Memory
from servingpool.decision.miss_curve import GUESSED, SEEN_FULL, Curve
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool.decision.step_time import StepTime

KNEE_SHARE = 0.75
"""Where the prior expects the knee, as a share of the load at which even a smooth stream breaks TPOT."""
FULL_KNEE_SHARE = 0.9
"""The same where a replica was seen full, and full is what limits it."""
NO_TPOT_KNEE = 1.0
LOWEST_KNEE = 0.06
STUCK_AFTER = 300.0
"""Seconds that a replica may wait for a node before ordering more is pointless: nodes come in 2 to 4 minutes."""


def posterior(memory: Memory, pool: Pool, step: StepTime) -> Curve:
    """The miss curve as believed now."""
    bound = pool.slo.time_per_output_token
    # ITL = a / (1 - load) reaches the bound at 1 - a / bound: a knee hardly lies beyond.
    # Where even an idle engine breaks TPOT, TPOT says nothing on the size of the fleet.
    highest = NO_TPOT_KNEE if bound is None or hopeless(pool, step) else 1.0 - step.between_tokens / bound
    # Both are loads by step time alone.
    highest = step.stretch * min(NO_TPOT_KNEE, max(LOWEST_KNEE, highest))
    seen_full = math.isfinite(step.batch) and highest >= NO_TPOT_KNEE
    highest = min(NO_TPOT_KNEE, highest)
    return memory.profile.curve.posterior(
        expected_knee=max(LOWEST_KNEE, (FULL_KNEE_SHARE if seen_full else KNEE_SHARE) * highest),
        highest_knee=highest,
        shape=SEEN_FULL if seen_full else GUESSED,
    )


def hopeless(pool: Pool, step: StepTime) -> bool:
    """Whether even without load a token takes longer than it may."""
    bound = pool.slo.time_per_output_token
    return bound is not None and step.between_tokens >= bound


def stuck(observation: Observation, memory: Memory, pool: Pool) -> int:
    """Replicas for which there has been no node for longer than a cluster autoscaler takes to bring one.

    It does so because pods are pending: being unschedulable for minutes is its normal case.
    """
    patience = max(STUCK_AFTER, horizon(memory, pool))
    return sum(replica.unschedulable and replica.age > patience for replica in observation.starting)


def told(memory: Memory, share: float) -> bool:
    """Whether enough requests were seen to speak of misses as rare as `share`, and not the prior alone."""
    return math.fsum(memory.profile.curve.requests) > 3.0 / share


def horizon(memory: Memory, pool: Pool) -> float:
    """Seconds from an order to the capacity: the cold start, and one look more to see it."""
    return memory.profile.cold_start.expected(pool.behavior.cold_start) + memory.interval


def settled(memory: Memory, pool: Pool) -> bool:
    """Past calibration: long enough seen, counting what a kept profile or history has seen."""
    return memory.profile.learned >= pool.behavior.calibration and memory.profile.fit.known
