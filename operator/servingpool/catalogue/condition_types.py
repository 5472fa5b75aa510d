"""The conditions of a ServingPool, and the statuses that they have."""

from __future__ import annotations

from enum import StrEnum

from servingpool.catalogue.template import Entry


class Truth(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionType(Entry):
    """Subject of a condition."""

    good: Truth
    """The status of a pool that needs no attention."""
    meaning: str

    READY = (
        "Ready",
        Truth.TRUE,
        "The spec is valid and the target can be scaled. True in mode Recommend and Paused.",
    )
    METRICS_AVAILABLE = "MetricsAvailable", Truth.TRUE, "Prometheus has fresh metrics of the ready replicas."
    SLO_MET = "SLOMet", Truth.TRUE, "Enough requests met the SLO in the last hour, and roughly in the last 5 minutes."
    SCALING_LIMITED = (
        "ScalingLimited",
        Truth.FALSE,
        "The replicas that the traffic needs lie outside min and max, or a GPUBudget allows fewer.",
    )
    CALIBRATING = "Calibrating", Truth.FALSE, "The operator still learns the engine and the traffic."
    DRAIN_READY = "DrainReady", Truth.TRUE, "The pod template lets a removed pod finish its requests."
    ZERO_READY = (
        "ZeroReady",
        Truth.TRUE,
        "Of a pool with min 0: its gateway shows requests at 0 replicas, and holds the first one for a cold start.",
    )
    TARGETS_AVAILABLE = (
        "TargetsAvailable",
        Truth.TRUE,
        "Every target delivers its requested replicas. Only pools of several targets have this condition.",
    )
    OBJECTS_READ = (
        "ObjectsRead",
        Truth.TRUE,
        "All objects around the pool are read in full. Only pools around which some were not have this condition.",
    )
    COUNTED = "Counted", Truth.TRUE, "Of a GPUBudget: the GPUs of all its pools are known."
    EXCLUSIVE = "Exclusive", Truth.TRUE, "Of a GPUBudget: no other budget counts its targets."
    SUFFICIENT = "Sufficient", Truth.TRUE, "Of a GPUBudget: no pool is limited by it."
