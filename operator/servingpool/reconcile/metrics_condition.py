"""Whether the metrics of a pool can be used: the MetricsAvailable condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from servingpool.adapters.prometheus import Cause, Selection
from servingpool.api.conditions import Reason
from servingpool.catalogue.notes import Note
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.report import told_standing
from servingpool.decision.standing import Standing
from servingpool.reconcile.pool_plan import Learned, PoolPlan, StagePlan
from servingpool.reconcile.stages import of_role

CAUSES: Mapping[Cause, Callable[[str], tuple[Reason, str]]] = {
    Cause.OTHER_MODEL: lambda detail: (Reason.NO_SERIES_FOR_MODEL, Reason.NO_SERIES_FOR_MODEL.message(detail=detail)),
    Cause.OTHER_ENGINE: lambda detail: (Reason.WRONG_ENGINE, Reason.WRONG_ENGINE.message(detail=detail)),
    Cause.ROUTER: lambda detail: (Reason.ROUTER_SERIES, Reason.ROUTER_SERIES.message(detail=detail)),
    Cause.WRONG_LABELS: lambda detail: (Reason.WRONG_LABELS, Reason.WRONG_LABELS.message(detail=detail)),
    Cause.AMBIGUOUS: lambda detail: (Reason.AMBIGUOUS_GAUGES, Reason.AMBIGUOUS_GAUGES.message(detail=detail)),
    Cause.NOT_SCRAPED: lambda detail: (Reason.NOT_SCRAPED, Reason.NOT_SCRAPED.message(detail=detail)),
    Cause.SCRAPE_FAILED: lambda detail: (Reason.SCRAPE_FAILED, Reason.SCRAPE_FAILED.message(detail=detail)),
    Cause.NO_ENGINE_SERIES: lambda detail: (Reason.NO_ENGINE_SERIES, Reason.NO_ENGINE_SERIES.message(detail=detail)),
}
"""Of a fleet without any sample, all for one cause."""
WELL = (Reason.VALID_METRICS, Reason.METERED_AT_GATEWAY, Reason.NO_READY_REPLICAS, Reason.SCALED_TO_ZERO)
"""Of which no role is the cause: no sample that there should be is missing."""


def judge_metrics(plan: PoolPlan) -> tuple[Reason, str]:
    """Reason and message, which begins with the role where one alone is the cause."""
    reason, said = _at_zero(plan) or _judged(plan)
    if reason in WELL:
        return reason, said
    judged = [(one.role, _judged(one)) for one in plan.stages]
    ill = [role for role, (found, _) in judged if found not in WELL]
    return reason, of_role(ill[0], said) if len(ill) == 1 else said


def _judged(plan: PoolPlan | StagePlan) -> tuple[Reason, str]:
    observation, selection, learned = plan.seen.observation, plan.seen.selection, plan.learned
    if selection is None and isinstance(observation.metrics, Unknown) and (observation.ready or observation.starting):
        said = Reason.FAILED_GET_METRICS.message(detail=observation.metrics.reason)
        return Reason.FAILED_GET_METRICS, said
    if selection is None or not observation.ready:
        return Reason.NO_READY_REPLICAS, Reason.NO_READY_REPLICAS.message()
    missing, detail = selection.missing, selection.explain()
    if not missing:
        return _samples_condition(observation, selection, learned, plan.decision.standing)
    if len(missing) < len(observation.ready):
        return Reason.PARTIAL_METRICS, Reason.PARTIAL_METRICS.message(detail=detail)
    alike = {one.cause for one in missing.values()} - {Cause.UNKNOWN}  # only some are looked into
    return _cause_condition(alike.pop() if len(alike) == 1 else Cause.UNKNOWN, detail)


def _at_zero(plan: PoolPlan) -> tuple[Reason, str] | None:
    """What to say of the metrics of a fleet that is at 0 because no request comes; None at other times."""
    seen = plan.seen
    shown = not isinstance(seen.observation.gateway.at_zero, Unknown)
    at_zero = shown and seen.observation.requested == 0 and not seen.observation.ready
    if not at_zero or seen.gateway is None or not seen.pool.spec.goes_to_zero:
        return None
    return Reason.SCALED_TO_ZERO, Reason.SCALED_TO_ZERO.message(gateway=seen.gateway[0].text)


def _cause_condition(cause: Cause, detail: str) -> tuple[Reason, str]:
    """For a fleet without any sample, all for the same cause."""
    if cause in CAUSES:
        return CAUSES[cause](detail)
    return Reason.FAILED_GET_METRICS, Reason.FAILED_GET_METRICS.message(detail=detail)


def _samples_condition(
    observation: Observation, selection: Selection, learned: Learned, standing: Sequence[Standing]
) -> tuple[Reason, str]:
    """For a fleet whose samples are all fresh: what they lack, and which of them say what nothing moves."""
    if learned.missing is not None:
        if selection.native:
            return Reason.NATIVE_HISTOGRAMS, Reason.NATIVE_HISTOGRAMS.message(pods=selection.named_native)
        return _lacking_condition(learned.missing, partial=learned.coverage > 0.0, metered=observation.metered)
    unknown = _unknown(learned)
    if unknown is not None:
        return Reason.PARTIAL_METRICS, Reason.PARTIAL_METRICS.message(detail=unknown)
    if standing:
        return Reason.NO_PROGRESS, Reason.NO_PROGRESS.message(replicas=told_standing(standing))
    return _complete_condition(observation, selection)


def _complete_condition(observation: Observation, selection: Selection) -> tuple[Reason, str]:
    """For samples that lack nothing: what else is odd about the pods' series."""
    if selection.unreadable:
        return Reason.UNREADABLE_SERIES, Reason.UNREADABLE_SERIES.message(detail=selection.named_unreadable)
    if selection.doubled:
        return Reason.DOUBLED_SERIES, Reason.DOUBLED_SERIES.message(pods=selection.named_doubled)
    ready = len(observation.ready)
    if observation.metered:
        return Reason.METERED_AT_GATEWAY, Reason.METERED_AT_GATEWAY.message(ready=ready)
    return Reason.VALID_METRICS, Reason.VALID_METRICS.message(ready=ready)


def _unknown(learned: Learned) -> str | None:
    """What is not known of samples that lack nothing; None where all is."""
    if learned.damaged is not None:
        return Note.DAMAGED_FIGURES.message(figures=learned.damaged)
    if learned.queue_unknown is not None:
        return Note.QUEUE_UNKNOWN.message(detail=learned.queue_unknown)
    if learned.client_unknown is not None:
        return Note.CLIENT_UNKNOWN.message(detail=learned.client_unknown)
    return None


def _lacking_condition(names: str, *, partial: bool, metered: bool) -> tuple[Reason, str]:
    """For samples without a figure that decisions need. `partial`: other replicas have it."""
    detail = Note.GATEWAY_LACKS.message(names=names) if metered else Note.ALL_SAMPLES_LACK.message(names=names)
    if partial:
        return Reason.PARTIAL_METRICS, Reason.PARTIAL_METRICS.message(detail=detail)
    return Reason.MISSING_FIGURES, Reason.MISSING_FIGURES.message(detail=detail)
