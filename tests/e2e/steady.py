"""Traffic that must not notice what becomes of the control plane."""

from __future__ import annotations

import time
from typing import Any

from .cluster import Cluster
from .engines import Engine, engine_manifests
from .load import LoadGenerator
from .pools import serving_pool
from .scenes import percent
from .waiting import eventually

NAME = "steady"
"""Of the namespace, the Deployment, the pool and the model."""
TTFT, TPOT, ATTAINMENT = 2.0, 0.3, 95.0
"""As in `serving_pool`. Seconds, and percent."""
ENGINE = Engine(name=NAME, namespace=NAME, model=NAME, replicas=2, load_seconds=5)
LONGEST = 3600
"""Seconds of traffic; it ends with the cluster."""


class Steady:
    """A pool in Auto mode under two requests a second, and what their client saw since a given time."""

    def __init__(self, cluster: Cluster, load: LoadGenerator) -> None:
        self._cluster, self._load = cluster, load
        cluster.namespace(NAME)
        cluster.apply(engine_manifests(ENGINE))
        target = {"name": NAME, "min": 2, "max": 4, "gpusPerReplica": 1, "costPerReplicaHour": 2.5}
        cluster.apply(serving_pool(NAME, NAME, targets=[target], compareTo="hosted"))
        cluster.wait_serving(NAME, NAME, replicas=2)
        self._course = load.start(ENGINE.url, NAME, f"2x{LONGEST}")

    @property
    def begun_at(self) -> float:
        """When its traffic began, in Unix seconds."""
        return self._course.begun_at

    def serves(self) -> bool:
        """Whether at least two replicas are ready."""
        return self._cluster.ready(NAME, NAME) >= 2

    def replicas(self) -> int:
        """What its Deployment asks for."""
        return self._cluster.replicas(NAME, NAME)

    def since(self, moment: float) -> dict[str, Any]:
        """Figures of the requests from then (Unix seconds) until now."""
        return self.between(moment, time.time())

    def between(self, begin: float, end: float) -> dict[str, Any]:
        """Figures of the requests that were sent then (Unix seconds), as of a moment when the last has ended.

        The generator's clock and ours are the same machine's.
        """
        zero = self._course.begun_at

        def ended() -> dict[str, Any]:
            found = self._load.summary(self._course, ttft=TTFT, tpot=TPOT, begin=begin - zero, end=end - zero)
            return found if found["requests"] and found["ended"] == found["requests"] else {}

        return eventually(ended, 60, "an answer to every steady request")


def unharmed(figures: dict[str, Any]) -> dict[str, Any]:
    """As columns of a result. Raises AssertionError where a request was lost, or too many were late."""
    attainment = percent(figures["attainment"])
    assert figures["requests"] > 0
    assert figures["lost"] == 0
    assert attainment is not None
    assert attainment >= ATTAINMENT
    return {"requests": figures["requests"], "lost": 0, "attainment": attainment, "slo": f"{ATTAINMENT:g}"}
