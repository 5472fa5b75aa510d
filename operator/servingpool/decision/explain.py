"""The sentence that a person reads at 3 a.m."""

from __future__ import annotations

import math

from servingpool.decision.assess import Assessment
from servingpool.decision.decision import Figures
from servingpool.decision.limits import Limited
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool.decision.unknown import Reading, Unknown


def reason(
    observation: Observation, pool: Pool, assessment: Assessment | Unknown, answer: Limited, figures: Figures
) -> str:
    """Why this many replicas, in one sentence with units."""
    move = _move(observation.requested, answer.replicas)
    if isinstance(assessment, Unknown):
        return f"{move}: the need is unknown ({assessment.reason})"
    parts = [
        f"{_number(figures.arrivals)} requests/s now",
        f"work for {_number(assessment.expected)} fully busy replicas is expected in {figures.horizon:.0f} s",
    ]
    if assessment.backlog >= 0.1:
        parts.append(f"{assessment.backlog:.1f} more are kept busy by {_number(figures.queue)} queued requests")
    parts.append(_sizing(pool, assessment))
    if answer.applied:
        parts.append(answer.applied[-1].reason)
    return f"{move}: {'; '.join(parts)}"


def _sizing(pool: Pool, assessment: Assessment) -> str:
    need, curve = assessment.need, assessment.curve
    if curve.floor > 1.0 - pool.slo.attainment:
        return f"the SLO holds at no fleet size ({curve.floor:.0%} miss), and {need:.0f} replicas are worth their price"
    safe = curve.load_for(assessment.allowance)
    plain = max(1, math.ceil((assessment.expected + assessment.backlog) / safe))
    if assessment.today:
        return f"{plain} would do then, and the present load needs {need:.0f}"
    if need > plain:
        return (
            f"{plain} would do at load {_number(safe)}, and {need - plain:.0f} more stand by: work for "
            f"{_number(assessment.possible)} may come, and a miss is priced at {_number(assessment.price)}"
        )
    if need < plain:
        return f"{plain} would keep all of it within the SLO, and {need:.0f} are worth their price"
    return f"the SLO holds up to load {_number(safe)}, so {need:.0f} are needed"


def _move(requested: int, replicas: int) -> str:
    if replicas == requested:
        return f"hold {replicas}"
    return f"scale {'up' if replicas > requested else 'down'} {requested} -> {replicas}"


def _number(figure: Reading) -> str:
    return (
        "an unknown number of" if isinstance(figure, Unknown) else f"{figure:.2g}" if figure < 10 else f"{figure:.0f}"
    )
