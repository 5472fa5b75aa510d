"""The sentence that a person reads at 3 a.m."""

from __future__ import annotations

from servingpool.decision.decision import Figures
from servingpool.decision.limits import Limited
from servingpool.decision.observation import Observation
from servingpool.decision.unknown import Reading, Unknown


def reason(observation: Observation, need: Reading, backlog: float, answer: Limited, figures: Figures) -> str:
    """Why this many replicas, in one sentence with units."""
    if isinstance(need, Unknown):
        return f"{_move(observation.requested, answer.replicas)}: the need is unknown ({need.reason})"
    sizing = (
        f"{_number(figures.arrivals)} requests/s now; work for {_number(figures.forecast)} fully busy replicas is "
        f"expected in {figures.horizon:.0f} s; the SLO holds up to load {_number(figures.safe_load)}, "
        f"so {need:.1f} replicas are needed"
    )
    parts = [sizing]
    if backlog >= 0.1:
        parts.append(f"{backlog:.1f} of them to work off {_number(figures.queue)} queued requests")
    if answer.applied:
        parts.append(answer.applied[-1].reason)
    return f"{_move(observation.requested, answer.replicas)}: {'; '.join(parts)}"


def _move(requested: int, replicas: int) -> str:
    if replicas == requested:
        return f"hold {replicas}"
    return f"scale {'up' if replicas > requested else 'down'} {requested} -> {replicas}"


def _number(figure: Reading) -> str:
    return (
        "an unknown number of" if isinstance(figure, Unknown) else f"{figure:.2g}" if figure < 10 else f"{figure:.0f}"
    )
