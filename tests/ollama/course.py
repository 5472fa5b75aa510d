"""A course of real Ollama replicas under load, scaled by the operator through what LiteLLM counts."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servingpool.adapters.gateways.own_gateway import gateway_of
from servingpool.adapters.gateways.totals import GatewayTotals
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.gateways import shipped_gateways
from servingpool.adapters.prometheus.samples import FleetReading, ReadRequest
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import GatewayMetrics
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.kwok import LOAD_SECONDS_ANNOTATION
from servingpool_lab.processes import wait_until

from ..integration.operators import Cluster, OperatorProcess, Traffic, install, prometheus  # noqa: TID252
from .client import Answer, Client
from .fleet import MODEL, Fleet
from .litellm import LiteLLM

ROOT = Path(__file__).parents[2]
NAMESPACE, NAME, GATEWAY = "ollama", "ollama", "litellm"
STEPS = os.environ.get("OLLAMA_RATES", "0.3x90,1.6x180,0.3x60")
"""Requests/s x seconds."""
SLOTS, CORES = 2, float(os.environ.get("OLLAMA_CORES", "0.25"))
TOKENS, LOAD_SECONDS = 48, 8.0
TTFT, TPOT, ATTAINMENT, MOST = 2.0, 0.5, 90.0, 3
EVERY = 5
"""Seconds between two scrapes, and between two ticks."""
GIVEN_BACK = 1500.0
"""Seconds from the last answer until one replica is left: the last spare goes after 20 minutes without a request."""
SETTLED = 30.0
"""Seconds until what LiteLLM counts after an answer has been scraped."""


@dataclass
class Moment:
    """The pool at one time."""

    at: float
    replicas: int
    ready: int
    status: Mapping[str, Any]


@dataclass
class Course:
    """What came of one."""

    answers: Sequence[Answer]
    moments: Sequence[Moment]
    read: GatewayMetrics
    """What the operator's own code read of LiteLLM in Prometheus, from the first request to the last."""
    peak: Mapping[str, Any]
    """Status when most replicas were asked for."""
    last: Mapping[str, Any]
    judged: float | None
    """Attainment by the status after the last answer, in percent."""
    log: str

    @property
    def turns(self) -> list[int]:
        """Replicas asked for, in turn."""
        counts = [moment.replicas for moment in self.moments]
        return [one for place, one in enumerate(counts) if place == 0 or one != counts[place - 1]]

    @property
    def good(self) -> float:
        """Percent of requests that met the SLO, by their client."""
        return 100.0 * sum(one.good(TTFT, TPOT) for one in self.answers) / len(self.answers)


@dataclass
class Recorder:
    """Looks at the pool once a second."""

    cluster: Cluster
    moments: list[Moment] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(1.0):
            with suppress(OSError):
                status = self.cluster.status(NAME)
                ready = int(status.get("readyReplicas") or 0)
                self.moments.append(Moment(time.time(), self.cluster.replicas(NAME), ready, status))


def manifests() -> list[dict[str, Any]]:
    """The Deployment and its pool."""
    container = {
        "name": "ollama",
        "image": "ollama/ollama:0.17.4",
        "env": [{"name": "OLLAMA_NUM_PARALLEL", "value": f"{SLOTS}"}],
    }
    labels = {"app": NAME}
    meta = {"labels": labels, "annotations": {LOAD_SECONDS_ANNOTATION: f"{LOAD_SECONDS:g}"}}
    template = {"metadata": meta, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    own = {"name": NAME, "namespace": NAMESPACE}
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    pool = {
        "engine": "ollama",
        "model": MODEL,
        "slo": {"timeToFirstToken": f"{TTFT:g}s", "timePerOutputToken": f"{TPOT * 1e3:g}ms", "attainment": ATTAINMENT},
        "targets": [{"name": NAME, "min": 1, "max": MOST}],
        "behavior": {"calibration": "60s", "coldStart": "20s", "scaleDownWindow": "40s"},
        "metrics": {"gateway": {"name": GATEWAY, "workload": GATEWAY}},
    }
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": own, "spec": deployment},
        {"apiVersion": "servingpool.dev/v1alpha1", "kind": "ServingPool", "metadata": own, "spec": pool},
    ]


class Reading:
    """What the operator reads of LiteLLM, by its own code, from the first call on."""

    def __init__(self, url: str, pool: Mapping[str, Any]) -> None:
        self._config = BackendConfig(url=url)
        self._pool = ServingPool.read(pool)
        self._totals = GatewayTotals()

    def begun(self) -> bool:
        """Whether LiteLLM is scraped, so that its counting begins here."""
        asyncio.run(self.read())
        return bool(self._totals.last)

    async def read(self) -> GatewayMetrics:
        """The gateway's figures now."""
        request = ReadRequest(engine=GATEWAY, gateway=True, ttft_bounds=frozenset({TTFT}))
        async with aclosing(PrometheusBackend(self._config)) as backend:
            reading = await backend.read(request, time.time())
        assert isinstance(reading, FleetReading), reading
        own = gateway_of(self._pool, self._config)
        assert own is not None
        return self._totals.read(self._pool, own, shipped_gateways()[GATEWAY], reading, metered=True)


def play(program: Path, model: Path, binaries: dict[str, Path], directory: Path) -> Course:
    """Start everything, send the load, and wait until one replica is left."""
    steps = [(float(rate), float(seconds)) for rate, _, seconds in (one.partition("x") for one in STEPS.split(","))]
    with ControlPlane(directory / "plane", binaries=binaries) as plane:
        plane.add_gpu_node("gpu-0", gpus=8)
        install(plane, NAMESPACE)
        cluster = Cluster(plane, Traffic(plane, {}), NAMESPACE)
        fleet = Fleet(plane, NAMESPACE, NAME, program, directory, slots=SLOTS, cores=CORES)
        fleet.load(model)
        gateway = LiteLLM(directory, MODEL, f"http://127.0.0.1:{fleet.port}")
        page = {
            "job_name": GATEWAY,
            "metrics_path": "/metrics/",
            "static_configs": [
                {"targets": [f"127.0.0.1:{gateway.port}"], "labels": {"namespace": NAMESPACE, "pod": f"{GATEWAY}-0"}}
            ],
        }
        intervals = {"scrape_interval": f"{EVERY}s", "scrape_timeout": f"{EVERY}s"}
        scraping = {"global": intervals, "scrape_configs": [page]}
        gateway.process.start()
        try:
            gateway.process.wait_ready()
            with prometheus(binaries["prometheus"], scraping, directory) as url, fleet:
                return _scaled(cluster, url, gateway, steps, directory)
        finally:
            gateway.process.stop()


def _scaled(
    cluster: Cluster, url: str, gateway: LiteLLM, steps: Sequence[tuple[float, float]], directory: Path
) -> Course:
    for manifest in manifests():
        cluster.plane.apply(manifest)
    settings = {
        "interval": f"{EVERY}s",
        "backends": [{"name": "default", "url": url, "timeout": f"{EVERY}s", "staleness": "30s"}],
        "leaderElection": {"enabled": False},
        "namespaces": [NAMESPACE],
    }
    operator = OperatorProcess(cluster.plane, directory, settings).start()
    recorder = Recorder(cluster)
    watching = threading.Thread(target=recorder.run)
    watching.start()
    try:
        wait_until(lambda: cluster.status(NAME).get("readyReplicas") == 1, 120, "one replica is ready")
        client = Client(gateway.url, gateway.key, MODEL, TOKENS)
        reading = Reading(url, cluster.found(NAME))
        wait_until(reading.begun, 60, "LiteLLM is scraped")
        asyncio.run(client.run(steps))
        time.sleep(SETTLED)
        judged = cluster.status(NAME).get("attainment")
        read = asyncio.run(reading.read())
        with suppress(TimeoutError):  # what was measured first
            wait_until(lambda: cluster.replicas(NAME) == 1, GIVEN_BACK, "the fleet is given back", 1.0)
        time.sleep(2.0)
    finally:
        recorder.over.set()
        watching.join()
        operator.process.stop()
    peak = max(recorder.moments, key=lambda one: one.replicas)
    return Course(client.answers, recorder.moments, read, peak.status, cluster.status(NAME), judged, operator.log())
