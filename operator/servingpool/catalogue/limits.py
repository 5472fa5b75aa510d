"""The limits: what stands between the raw need and the replicas that are set. `servingpool explain` lists them."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class LimitName(StrEnum):
    """The name of a limit in `status.lastDecision.limits`."""

    meaning: str
    action: str

    def __new__(cls, name: str, meaning: str, action: str) -> Self:
        """A member is the string `name`."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning, member.action = meaning, action
        return member

    PARTIAL = (
        "PartialMetrics",
        "Scale-down is blocked: some ready replicas could not be read.",
        "Check the scrape of the pods that MetricsAvailable names.",
    )
    QUEUE_UNKNOWN = (
        "QueueUnknown",
        "Scale-down is blocked: the number of queued requests is unknown.",
        "Check the metrics that MetricsAvailable names.",
    )
    REQUESTS_WAIT = (
        "RequestsWait",
        "Scale-down is blocked: requests have waited longer than the TTFT bound allows.",
        "Nothing. It ends with the queue.",
    )
    REPLICAS_MISSING = (
        "ReplicasMissing",
        "Scale-down is blocked: some requested replicas have no pod yet.",
        "If it lasts, kubectl describe the ReplicaSet: a quota may refuse its pods.",
    )
    ROLLOUT = (
        "RolloutInProgress",
        "Scale-down is blocked until the rollout ends.",
        "If it does not end, check the rollout.",
    )
    CALIBRATING = (
        "Calibrating",
        "The pool is still learned: no scale-down, and scale-up only if requests are late or queued.",
        "Wait, usually 5 minutes.",
    )
    WINDOW_FILLING = (
        "WindowFilling",
        "Scale-down is blocked: the scale-down window is not full yet.",
        "Wait for the time that the message names.",
    )
    SCALE_DOWN_WINDOW = (
        "ScaleDownWindow",
        "Scale-down is blocked or partial: more replicas were needed within the window.",
        "Lower spec.behavior.scaleDownWindow if it is longer than two cold starts and savings matter more.",
    )
    TOO_LITTLE = (
        "NotWorthAMove",
        "The change is below 1.5% of the fleet, so replicas stay as they are.",
        "Nothing.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "Scale-up is blocked: pods are unschedulable, and more would be too.",
        "Add nodes, free GPUs, or lower targets[].max.",
    )
    PROPORTION = (
        "OrderInProportion",
        "Scale-up is limited to what serves arrivals and queue: few misses were seen, so more would be a guess.",
        "Nothing. It ends as requests are seen.",
    )
    ONE_COLD_START = (
        "OneColdStart",
        "Scale-up is limited to twice the ready replicas plus 4 within one cold start.",
        "Nothing. The next replicas follow as these become ready.",
    )
    LEARNING_STEP = (
        "LearningStep",
        "Scale-up is limited to about twice the initial replicas until the engine's speed is known.",
        "Nothing. It takes decoded requests to learn the speed.",
    )
    MINIMUM = (
        "TooFewReplicas",
        "Raised to targets[].min.",
        "Lower min to save GPUs.",
    )
    MAXIMUM = (
        "TooManyReplicas",
        "Reduced to targets[].max.",
        "Raise max if there are GPUs, or relax the SLO.",
    )
