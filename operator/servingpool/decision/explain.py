"""The sentence that a person reads at 3 a.m."""

from __future__ import annotations

import math

from servingpool.decision.assess import Assessment
from servingpool.decision.decision import Figures
from servingpool.decision.demand import IDLE_WINDOW
from servingpool.decision.limits import Limited
from servingpool.decision.unknown import Reading, Unknown


def reason(requested: int, assessment: Assessment | Unknown, answer: Limited, figures: Figures) -> str:
    """Why this many replicas, in one sentence with units."""
    parts = (
        [f"the need is unknown ({assessment.reason})"]
        if isinstance(assessment, Unknown)
        else _weighed(assessment, figures)
    )
    parts += [limit.reason for limit in answer.applied]
    return f"{_move(requested, answer.replicas)}: {'; '.join(parts)}"


def _weighed(assessment: Assessment, figures: Figures) -> list[str]:
    if assessment.idle:
        return [f"no request in the last {IDLE_WINDOW / 60:.0f} minutes, so nothing is kept beyond min"]
    parts = [
        f"{_number(figures.arrivals)} requests/s now",
        f"work for {_number(assessment.expected)} fully busy replicas is expected in {figures.horizon:.0f} s",
    ]
    if assessment.backlog >= 0.1:
        parts.append(f"{assessment.backlog:.1f} more are kept busy by {_number(figures.queue)} queued requests")
    if not isinstance(figures.full_requests, Unknown):
        parts.append(
            f"a full replica serves {_number(figures.full_requests)} requests/s, "
            f"{_number(figures.full_batch)} at a time"
        )
    return [*parts, _sizing(assessment)]


def _sizing(assessment: Assessment) -> str:
    need, curve = assessment.need, assessment.curve
    if not assessment.holdable:
        if assessment.told:
            return f"the SLO holds at no fleet size ({_percent(curve.floor)} miss), and {_paying(need)}"
        return f"too few requests were seen to tell whether the SLO can hold, and {_paying(need)}"
    safe = curve.load_for(assessment.allowance)
    plain = max(1, math.ceil((assessment.expected + assessment.backlog) / safe))
    if assessment.today:
        return f"{plain} would do then, and the present load needs {need:.0f}"
    if need > plain:
        spare = f"{need - plain:.0f} {'is' if need - plain == 1 else 'are'} spare"
        return (
            f"{plain} would do at load {_number(safe)}, and {spare}: work for {_number(assessment.possible)} may come, "
            f"and a missed request is priced at {_number(assessment.price)} times its GPU time"
        )
    if need < plain:
        return f"{plain} would hold the SLO throughout, but {need:.0f} cost less, the price of misses included"
    return f"the SLO holds up to load {_number(safe)}, so {need:.0f} {'is' if need == 1 else 'are'} needed"


def _paying(count: float) -> str:
    return "1 replica pays off" if count == 1 else f"{count:.0f} replicas pay off"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.2%}"


def _move(requested: int, replicas: int) -> str:
    if replicas == requested:
        return f"hold {replicas}"
    return f"scale {'up' if replicas > requested else 'down'} {requested} -> {replicas}"


def _number(figure: Reading) -> str:
    if isinstance(figure, Unknown):
        return "an unknown number of"
    if 0.0 < figure < 0.01:
        return "less than 0.01"
    return f"{figure:.2g}" if figure < 10 else f"{figure:.0f}"
