"""How the HPA v2 gets from metrics to replicas: its formulas, which KEDA uses too.

Source: kubernetes `pkg/controller/podautoscaler`. In each, `replicas` is the target's `spec.replicas`.
"""

from __future__ import annotations

import math
from collections.abc import Collection

TOLERANCE = 0.1
"""A metric within 10% of its target changes nothing."""


def average_value(value: float, target: float, replicas: int) -> int:
    """External metric of type AverageValue. Loading pods count as replicas, so an order is given only once."""
    if replicas == 0 or abs(1 - value / (target * replicas)) <= TOLERANCE:
        return replicas
    return math.ceil(value / target)


def object_value(value: float, target: float, replicas: int, ready: int) -> int:
    """Object or external metric of type Value: the ratio multiplies the ready pods only."""
    ratio = value / target
    if replicas == 0 or abs(1 - ratio) <= TOLERANCE:
        return replicas
    return math.ceil(ratio * ready)


def pods_average(values: Collection[float], missing: int, target: float, replicas: int) -> int:
    """Pods metric: `values` of the pods that show it, `missing` pods without.

    Pods without a value are taken to hold the target on the way down and nothing on the way up; a fill that turns
    the direction round means hold. A pod whose container runs while the model loads is such a pod.
    """
    if replicas == 0 or not values:
        return replicas
    ratio = math.fsum(values) / len(values) / target
    if missing == 0:
        return replicas if abs(1 - ratio) <= TOLERANCE else math.ceil(ratio * len(values))
    filled = math.fsum(values) + (missing * target if ratio < 1 else 0.0)
    pods = len(values) + missing
    careful = filled / pods / target
    if abs(1 - careful) <= TOLERANCE or (ratio < 1) != (careful < 1):
        return replicas
    wanted = math.ceil(careful * pods)
    return replicas if (careful < 1 and wanted > replicas) or (careful > 1 and wanted < replicas) else wanted
