"""What the comparison shows, in words that follow from its figures, whoever wins."""

from __future__ import annotations

from enum import StrEnum

from servingpool.simulation.demo import Comparison, Entry, Role
from servingpool.simulation.report.figures import listed, more_or_less, percent, target

LEVEL = 0.005
"""Share of the GPU-hours that is no difference."""


class Verdict(StrEnum):
    """How our own did."""

    CHEAPEST = "SLO held, at the lowest cost without hindsight"
    LEVEL = "SLO held, at no lower cost than others"
    DEARER = "SLO held, but another was cheaper"
    MISSED = "SLO missed"


def verdict(comparison: Comparison) -> Verdict:
    """Against policies that know the past only; a fleet chosen in hindsight is nobody's alternative."""
    ours = comparison.ours
    if not ours.held:
        return Verdict.MISSED
    cost = _cost(ours)
    cheapest = min((_cost(entry) for entry in _alternatives(comparison) if entry.held), default=None)
    if cheapest is None or cost < cheapest * (1 - LEVEL):
        return Verdict.CHEAPEST
    return Verdict.LEVEL if cost <= cheapest * (1 + LEVEL) else Verdict.DEARER


def conclusion(comparison: Comparison) -> str:
    """One sentence: did ours hold the SLO, at what cost, against what the others cost."""
    ours, slo = comparison.ours, comparison.setup.pool.slo
    attained = percent(ours.result.score.attainment)
    if not ours.held:
        held = sorted((entry for entry in comparison.others if entry.held), key=_cost)
        by = listed([f"{entry.label} with {_cost(entry):.1f}" for entry in held])
        return (
            f"{ours.label} missed the SLO: {attained} of requests attained where {target(slo)} were asked, "
            f"with {_cost(ours):.1f} GPU-hours; {f'it was held by {by}' if held else 'nobody held it'}."
        )
    said = [_against(ours, entry) for entry in sorted(comparison.others, key=_cost) if entry.held]
    missed = [
        f"{entry.label} ({percent(entry.result.score.attainment)})" for entry in comparison.others if not entry.held
    ]
    sentence = (
        f"{ours.label} held the SLO ({attained} of requests, {target(slo)} asked) with {_cost(ours):.1f} GPU-hours"
    )
    if said:
        sentence += f": {listed(said)}"
    if missed:
        sentence += f"; {listed(missed)} missed it"
    return f"{sentence}."


def _alternatives(comparison: Comparison) -> list[Entry]:
    return [entry for entry in comparison.others if entry.role is not Role.HINDSIGHT]


def _against(ours: Entry, other: Entry) -> str:
    difference = more_or_less(_cost(ours), _cost(other))
    than = "as" if difference == "as much" else "than"
    return f"{difference} {than} {other.label}"


def _cost(entry: Entry) -> float:
    return entry.result.score.gpu_hours
