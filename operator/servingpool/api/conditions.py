"""Conditions, with types and reasons that users of HPA and KEDA know."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from servingpool.api.part import Part
from servingpool.api.text import Text
from servingpool.api.time import Time


class ConditionType(StrEnum):
    """What a condition is about. `True` is the state that its name says."""

    READY = "Ready"
    """The pool is valid, its target can be scaled and its metrics can be read."""
    METRICS_AVAILABLE = "MetricsAvailable"
    """Fresh metrics of every ready replica."""
    SLO_MET = "SLOMet"
    """Attainment over the last hour is at or above the objective."""
    SCALING_LIMITED = "ScalingLimited"
    """The need lies outside min..max."""
    CALIBRATING = "Calibrating"
    """Still learning, so nothing is scaled down."""
    DRAIN_READY = "DrainReady"
    """The target's pods finish what they have when they are removed, so a scale-down loses no request."""


class Truth(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition is as it is, or an event was posted. HPA's word wherever it has one."""

    # Ready
    SUCCEEDED_GET_SCALE = "SucceededGetScale"
    READING_HISTORY = "ReadingHistory"
    INVALID_SPEC = "InvalidSpec"
    TARGET_NOT_FOUND = "TargetNotFound"
    FAILED_UPDATE_SCALE = "FailedUpdateScale"
    AMBIGUOUS_OWNER = "AmbiguousOwner"
    OWNED_BY_HPA = "OwnedByHPA"
    OWNED_BY_KEDA = "OwnedByKEDA"
    SCALING_DISABLED = "ScalingDisabled"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    WAITING_FOR_NODE = "WaitingForNode"
    UNSCHEDULABLE = "Unschedulable"
    REPLICAS_CONTESTED = "ReplicasContested"
    PAUSED = "Paused"
    RECOMMENDING = "Recommending"
    INTERNAL_ERROR = "InternalError"
    # MetricsAvailable
    VALID_METRICS = "ValidMetrics"
    PARTIAL_METRICS = "PartialMetrics"
    FAILED_GET_METRICS = "FailedGetMetrics"
    NO_SERIES_FOR_MODEL = "NoSeriesForModel"
    UNKNOWN_BACKEND = "UnknownBackend"
    NO_READY_REPLICAS = "NoReadyReplicas"
    # SLOMet
    OBJECTIVE_MET = "ObjectiveMet"
    OBJECTIVE_MISSED = "ObjectiveMissed"
    TOO_FEW_REQUESTS = "TooFewRequests"
    # ScalingLimited
    DESIRED_WITHIN_RANGE = "DesiredWithinRange"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    # Calibrating
    LEARNING = "Learning"
    LEARNED = "Learned"
    # DrainReady
    FINISHES_REQUESTS = "FinishesRequests"
    NO_SHUTDOWN_TIMEOUT = "NoShutdownTimeout"
    PRE_STOP_TOO_SHORT = "PreStopTooShort"
    GRACE_PERIOD_TOO_SHORT = "GracePeriodTooShort"
    DRAIN_NOT_VISIBLE = "DrainNotVisible"
    # Events only
    SUCCESSFUL_RESCALE = "SuccessfulRescale"
    VICTIMS_NOT_CHOSEN = "VictimsNotChosen"


class Condition(Part):
    """A metav1.Condition."""

    type: Annotated[ConditionType, Field(strict=False)]
    """What it is about, in CamelCase."""
    status: Annotated[Truth, Field(strict=False)]
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=64)]
    """Why, as one CamelCase word for programs."""
    message: Text = ""
    """Why, as a sentence for people."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The spec's generation that it was judged by."""
    last_transition_time: Time
    """When `status` last changed."""


def updated(held: Iterable[Condition], judged: Iterable[Condition]) -> tuple[Condition, ...]:
    """`held` with each of `judged` in its type's place; one whose status did not change keeps its transition time."""
    merged = {condition.type: condition for condition in held}
    for condition in judged:
        before = merged.get(condition.type)
        if before is not None and before.status == condition.status:
            since = before.last_transition_time
            merged[condition.type] = condition.model_copy(update={"last_transition_time": since})
        else:
            merged[condition.type] = condition
    return tuple(merged.values())


def condition(
    type_: ConditionType,
    status: Truth,
    *,
    reason: Reason,
    message: str,
    generation: int | None,
    now: datetime,
) -> Condition:
    """A condition judged at `now`; pass it through `updated` before it is written."""
    return Condition(
        type=type_,
        status=status,
        reason=reason.value,
        message=message,
        observed_generation=generation,
        last_transition_time=now,
    )
