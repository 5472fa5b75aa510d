"""What the comparison shows, in words that follow from its figures, whoever wins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from servingpool_simulation.demo import Comparison, Entry, Role
from servingpool_simulation.report.figures import listed, more_or_less, percent, target

LEVEL = 0.005
"""Share of the GPU-hours that is no difference."""


class Verdict(StrEnum):
    """How our own did, against policies that know the past only: a fleet chosen in hindsight is no alternative."""

    CHEAPEST = "cheapest"
    LEVEL = "level"
    DEARER = "dearer"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One sentence in two parts, the first of which says it all."""

    verdict: Verdict
    head: str
    figures: str

    @property
    def sentence(self) -> str:
        """Both parts."""
        return f"{self.head}: {self.figures}."


def conclude(comparison: Comparison) -> Conclusion:
    """Did ours hold the SLO, at what cost, and what did it cost the others."""
    ours, slo = comparison.ours, comparison.setup.pool.slo
    others = sorted(comparison.others, key=_cost)
    held = [entry for entry in others if entry.held]
    attained = (
        f"{percent(ours.result.score.attainment)} of requests met the SLO (objective {target(slo)}) "
        f"with {_cost(ours):.1f} GPU-hours"
    )
    if not ours.held:
        by = listed([f"{entry.label} with {_cost(entry):.1f}" for entry in held])
        figures = f"{attained}; {f'it was held by {by}' if held else 'no policy held it'}"
        return Conclusion(Verdict.MISSED, f"{ours.label} missed the SLO", figures)
    figures = attained
    if held:
        figures += f", {listed([_against(ours, entry) for entry in held])}"
    missed = [f"{entry.label} ({percent(entry.result.score.attainment)})" for entry in others if not entry.held]
    if missed:
        figures += f"; {listed(missed)} missed it"
    baselines = [entry for entry in held if entry.role is not Role.HINDSIGHT]
    verdict = _verdict(_cost(ours), _cost(baselines[0]) if baselines else math.inf)
    head = {
        Verdict.CHEAPEST: f"{ours.label} held the SLO at the lowest cost without hindsight",
        Verdict.LEVEL: f"{ours.label} held the SLO at the cost of the cheapest other policy",
        Verdict.DEARER: f"{ours.label} held the SLO, but {baselines[0].label if baselines else ''} did so for less",
    }
    return Conclusion(verdict, head[verdict], figures)


def _verdict(cost: float, cheapest: float) -> Verdict:
    if cost < cheapest * (1 - LEVEL):
        return Verdict.CHEAPEST
    return Verdict.LEVEL if cost <= cheapest * (1 + LEVEL) else Verdict.DEARER


def _against(ours: Entry, other: Entry) -> str:
    difference = more_or_less(_cost(ours), _cost(other))
    than = "as" if difference == "as much" else "than"
    return f"{difference} {than} {other.label}"


def _cost(entry: Entry) -> float:
    return entry.result.score.gpu_hours
