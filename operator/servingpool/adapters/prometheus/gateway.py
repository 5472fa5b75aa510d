"""Demand that has not reached an engine yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from servingpool.adapters.prometheus.config import GatewayQueue
from servingpool.decision.observation import Reading, Unknown


@dataclass(frozen=True, slots=True)
class GatewayReading:
    """The queues of all models at about one time."""

    queues: Mapping[tuple[str | None, str], Reading]
    """Requests held, by namespace (None where the gateway's series have none) and model."""
    by_namespace: bool

    @classmethod
    def of(cls, gateway: GatewayQueue, rows: Iterable[Mapping[str, Any]]) -> Self:
        """From an instant query's rows. KeyError, TypeError or ValueError if they are not what was asked for."""
        queues: dict[tuple[str | None, str], Reading] = {}
        for row in rows:
            labels, value = row["metric"], float(row["value"][1])
            namespace = labels.get(gateway.namespace_label, "") if gateway.namespace_label else None
            finite = math.isfinite(value)
            queues[namespace, labels.get(gateway.model_label, "")] = (
                value if finite else Unknown(f"{gateway.metric} is {value}")
            )
        return cls(queues, gateway.namespace_label is not None)

    def select(self, namespace: str, model: str) -> Reading:
        """One pool's part. A queue without a series is unknown, not empty: the gateway may know it by another name."""
        absent = Unknown(f"the gateway publishes no queue of model '{model}'")
        return self.queues.get((namespace if self.by_namespace else None, model), absent)
