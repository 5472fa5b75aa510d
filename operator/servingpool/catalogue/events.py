"""The events on a ServingPool. A condition that turns bad posts one too, with its own reason and message."""

from __future__ import annotations

from servingpool.catalogue.condition_types import ConditionType
from servingpool.catalogue.template import Entry, Templated

WARNED = (
    *(ConditionType.READY, ConditionType.METRICS_AVAILABLE, ConditionType.SLO_MET),
    *(ConditionType.DRAIN_READY, ConditionType.ZERO_READY, ConditionType.TARGETS_AVAILABLE),
)
"""Conditions that post a Warning event when they turn False; SLOMet only where no fleet size helps."""


class EventReason(Templated, Entry):
    """Why an event was posted that no condition stands for."""

    type: str
    """Normal or Warning."""
    template: str
    meaning: str
    action: str

    SUCCESSFUL_RESCALE = (
        "SuccessfulRescale",
        "Normal",
        "New size: {replicas}; reason: {reason}",
        "The operator has set replicas. Of several targets the size is their sum.",
        "Nothing.",
    )
    RECOMMENDED = (
        "Recommended",
        "Normal",
        "Recommended {replicas} replicas, {requested} are requested; reason: {reason}",
        "In mode Recommend: what Auto would have done. Posted once per change of the recommendation.",
        "Compare with `servingpool compare`.",
    )
    VICTIMS_NOT_CHOSEN = (
        "VictimsNotChosen",
        "Warning",
        "{cause}, so Kubernetes may delete busy pods. {remedy}",
        "Before a scale-down the operator could not mark the idle pods for removal. Posted once per pool.",
        "Grant the right, or accept it. With podDeletionCost.enabled=false the event is Normal.",
    )
