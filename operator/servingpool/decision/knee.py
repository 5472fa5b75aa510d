"""The miss curve as believed now: evidence, and where physics expects the knee."""

from __future__ import annotations

import math

from servingpool.decision.miss_curve import ESTIMATED, OBSERVED, Curve, MissCurve
from servingpool.decision.pool import Pool
from servingpool.decision.step_time import StepTime

FULL_KNEE_SHARE = 0.9
"""Where the knee is expected, of a load of 1, where a replica was seen full and that is what limits it."""
LOWEST_KNEE, HIGHEST_KNEE = 0.06, 1.0


def posterior(evidence: MissCurve, pool: Pool, step: StepTime) -> Curve:
    """The miss curve as believed now."""
    highest = _highest(pool, step)
    observed = math.isfinite(step.batch) and highest >= HIGHEST_KNEE
    highest = min(HIGHEST_KNEE, highest)
    share = FULL_KNEE_SHARE if observed else pool.params.knee_share
    return evidence.posterior(
        expected_knee=max(LOWEST_KNEE, share * highest),
        highest_knee=highest,
        shape=OBSERVED if observed else ESTIMATED,
        params=pool.params,
        most_floor=_most_floor(evidence, pool),
    )


def _most_floor(evidence: MissCurve, pool: Pool) -> float:
    """The highest floor that may be believed: light load alone proves one with which no fleet holds the SLO.

    Any may be where hardly a request was seen, for then the prior is all that is known; and where the gateway judges,
    for much of a miss there is beyond the engines, and no fleet size would prove it.
    """
    allowed = pool.slo.allowed
    if pool.slo.at_gateway or not has_evidence(evidence, allowed):
        return 1.0
    return evidence.floor_proven(enough_for(allowed), allowed)


def _highest(pool: Pool, step: StepTime) -> float:
    """The load beyond which a knee hardly lies; above 1 where that is beyond a full replica."""
    bound = pool.slo.time_per_output_token
    # ITL = a / (1 - load) reaches the bound at 1 - a / bound: a knee hardly lies beyond. Where even an idle engine
    # breaks TPOT, TPOT says nothing on the size of the fleet.
    unlimited = bound is None or tpot_infeasible(pool, step)
    highest = HIGHEST_KNEE if bound is None or unlimited else 1.0 - step.between_tokens / bound
    # That is a load by step time alone; `stretch` puts it into units of a full batch.
    return step.stretch * min(HIGHEST_KNEE, max(LOWEST_KNEE, highest))


def highest_knee(pool: Pool, step: StepTime) -> float:
    """The highest load at which an engine can hold TPOT."""
    return min(HIGHEST_KNEE, _highest(pool, step))


def tpot_infeasible(pool: Pool, step: StepTime) -> bool:
    """Whether even without load a token takes longer than it may."""
    bound = pool.slo.time_per_output_token
    return bound is not None and step.between_tokens >= bound


def has_evidence(evidence: MissCurve, share: float) -> bool:
    """Whether enough requests were seen to speak of misses as rare as `share`, and not the prior alone."""
    return math.fsum(evidence.requests) > enough_for(share)


def enough_for(share: float) -> float:
    """Requests that tell of misses as rare as `share`."""
    return 3.0 / share
