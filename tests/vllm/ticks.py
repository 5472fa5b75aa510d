"""What the operator does in a tick up to its decision, on a cluster of one pod that runs the engine under test."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import TargetKey
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.samples import FleetReading, Selection
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.decide import decide
from servingpool.decision.figures import Figures
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Observation, ReplicaMetrics
from servingpool.decision.observe.counters import CounterDelta, diff_counters
from servingpool.decision.observe.samples import Sample
from servingpool.decision.pool import Pool
from servingpool.loop.backfill import core_of
from servingpool.reconcile.collect.collected import observe
from servingpool.reconcile.collect.readings import Readings
from servingpool_lab.prometheus import Prometheus

from .engine import MODEL, Vllm

NAMESPACE, DEPLOYMENT, POD = "chat", "vllm", "vllm-7f9c6d5b4-x2x4z"
SCRAPE_INTERVAL = 1.0


class FixedTargets(Prometheus):
    """The lab's Prometheus with these pods and their addresses in place of discovery, and the labels that it would give."""

    def __init__(self, directory: Path, pods: Mapping[str, str], *, binary: Path) -> None:
        kubeconfig, unused = Path("/dev/null"), ""
        super().__init__(directory, kubeconfig, unused, scrape_interval_seconds=SCRAPE_INTERVAL, binary=binary)
        self._pods = pods

    def configuration(self) -> dict[str, Any]:
        targets = [
            {"targets": [address], "labels": {"namespace": NAMESPACE, "pod": pod}}
            for pod, address in self._pods.items()
        ]
        return super().configuration() | {"scrape_configs": [{"job_name": "pods", "static_configs": targets}]}


Watch = Callable[[Mapping[str, Vllm]], FixedTargets]
"""Makes a Prometheus that scrapes these engines, by the names of their pods."""


@dataclass(frozen=True, slots=True)
class Look:
    """One tick for one pool."""

    at: float
    """Unix seconds."""
    selection: Selection
    observation: Observation
    delta: CounterDelta
    """What happened since the look before."""
    figures: Figures

    @property
    def scraped(self) -> bool:
        """Whether there is a page."""
        return bool(self.observation.metrics)

    @property
    def page(self) -> ReplicaMetrics:
        """The engine's."""
        assert isinstance(self.observation.metrics, tuple), self.observation.metrics
        assert self.scraped, self.selection.explain()
        (page,) = self.observation.metrics
        return page


class Operator:
    """One pool for each SLO, all on the same Deployment and read together. `look` is one tick."""

    def __init__(self, prometheus: str, *slos: dict[str, Any]) -> None:
        self.backend = PrometheusBackend(BackendConfig(url=prometheus))
        self._readings = Readings({"default": self.backend})
        self._cache = cluster({DEPLOYMENT: POD})
        self.pools = [_pool(f"pool-{index}", slo) for index, slo in enumerate(slos)]
        self._memories = [Memory() for _ in slos]
        self._samples: list[Mapping[str, Sample]] = [{} for _ in slos]

    def core(self, index: int) -> Pool:
        """A pool in the core's units."""
        return core_of(self.pools[index])

    async def look(self) -> list[Look]:
        """Read, observe and decide for every pool."""
        now = time.time()
        await self._readings.read("default", self.pools, now)
        workload = self._cache.workload(TargetKey(NAMESPACE, DEPLOYMENT))
        assert workload is not None
        looks = []
        for index, pool in enumerate(self.pools):
            reading, gateway = self._readings.of(pool), self._readings.gateway(pool)
            assert isinstance(reading, FleetReading), reading
            observation, selection = observe(pool, [workload], self._cache, reading, gateway, now)
            assert selection is not None
            core = self.core(index)
            delta = diff_counters(observation, core, CounterDelta(samples=self._samples[index]))
            self._samples[index] = delta.samples
            outcome = decide(observation, core, self._memories[index], now)
            self._memories[index] = outcome.memory
            looks.append(Look(now, selection, observation, delta, outcome.decision.figures))
        return looks

    async def aclose(self) -> None:
        await self.backend.aclose()


def _pool(name: str, slo: dict[str, Any]) -> ServingPool:
    return ServingPool.model_validate(
        {
            "apiVersion": "servingpool.dev/v1alpha1",
            "kind": "ServingPool",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
            "spec": {"model": MODEL, "slo": slo, "targets": [{"name": DEPLOYMENT, "min": 1, "max": 4}]},
        }
    )


def cluster(pods: Mapping[str, str]) -> ClusterCache:
    """Deployments of one replica each, Ready, by name with the name of their pod, as the watches would show them."""
    cache, since = ClusterCache(), datetime.now(UTC).isoformat(timespec="seconds")
    meta = {"namespace": NAMESPACE, "creationTimestamp": since}
    for name, pod in pods.items():
        owned, revision = {"controller": True, "kind": "Deployment", "uid": name}, f"{name}-revision"
        cache.see_workload({"metadata": meta | {"name": name, "uid": name}, "spec": {"replicas": 1}}, gone=False)
        cache.see_replica_set(
            {"metadata": meta | {"name": revision, "uid": revision, "ownerReferences": [owned]}}, gone=False
        )
        cache.see_pod(
            {
                "metadata": meta
                | {"name": pod, "uid": pod, "ownerReferences": [owned | {"kind": "ReplicaSet", "uid": revision}]},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]},
            },
            gone=False,
        )
    return cache
