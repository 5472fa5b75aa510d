"""The same pools on a real API server, watched by the real operator process, which is measured from outside."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fleet
import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_process import StandInPrometheus
from rich.console import Console

from servingpool.api.crd import manifests
from servingpool.api.group import API_VERSION, PLURAL
from servingpool_lab import kwok
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local, wait_until

ROOT = Path(__file__).parents[1]
NAMESPACE, ACCOUNT = "servingpool-system", "servingpool-operator"
PODS_PER_NODE = 400
AT_ONCE = 16
MIB = 2**20
SEED = 1

say = Console(stderr=True).print


@dataclass(frozen=True, slots=True)
class Look:
    """The operator's own account at one time, and what the kernel says of it."""

    cpu: float
    rss: float
    ticks: float
    busy: float
    """Seconds of wall time in ticks."""
    queries: float
    received: int
    compressed: int
    writes: Mapping[str, float]


class RealCluster:
    """A control plane with all pools, and the operator under its own rights."""

    def __init__(self, directory: Path, pools: int, pods: int, per_namespace: int, interval: float) -> None:
        self._every, self._pods, self._interval = fleet.entries(pools, per_namespace), pods, interval
        self._directory = directory
        self.plane = ControlPlane(directory, default_load_seconds=1.0, default_load_jitter_seconds=0.0)

    def populate(self) -> None:
        """Create nodes, Deployments and pools, and wait until every pod is Ready."""
        plane = self.plane
        for definition in manifests().values():
            plane.apply(definition)
        for manifest in ("namespace.yaml", "rbac.yaml"):
            plane.apply(ROOT / "deploy" / manifest)
        nodes = 2 + 2 * len(self._every) * self._pods // PODS_PER_NODE
        plane.apply(kwok.gpu_node(f"gpu-{i}", gpus=PODS_PER_NODE, pods=PODS_PER_NODE, cpu="4k") for i in range(nodes))
        namespaces = sorted({entry.namespace for entry in self._every})
        self._create("/api/v1/namespaces", ({"metadata": {"name": name}} for name in namespaces))
        for path, make in (
            ("/apis/apps/v1/namespaces/{}/deployments", fleet.deployment),
            (f"/apis/{API_VERSION}/namespaces/{{}}/{PLURAL}", fleet.serving_pool),
        ):
            self._create(path, (make(entry, self._pods) for entry in self._every))
        wanted = len(self._every) * self._pods
        wait_until(lambda: sum(map(len, self.serving())) >= wanted, 900, f"{wanted} pods ready")

    def serving(self) -> list[list[str]]:
        """Names of the pods that are Ready, by pool."""
        found: dict[str, list[str]] = {entry.name: [] for entry in self._every}
        path, more = "/api/v1/pods?limit=1000", ""
        while True:
            page = self.plane.client.get(path + more)
            for pod in page["items"]:
                conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
                if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
                    found[pod["metadata"]["labels"]["app"]].append(pod["metadata"]["name"])
            if not page["metadata"].get("continue"):
                return list(found.values())
            more = f"&continue={page['metadata']['continue']}"

    def operator(self, prometheus: str) -> tuple[SupervisedProcess, int]:
        """`servingpool run`, not started, and the port of its metrics."""
        health, metrics = free_ports(2)
        config = self._directory / "operator.json"
        settings = {
            "interval": f"{self._interval:g}s",
            "backends": [{"name": "default", "url": prometheus}],
            "healthPort": health,
            "metricsPort": metrics,
        }
        config.write_text(json.dumps(settings))
        kubeconfig = self.plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        command = [sys.executable, "-m", "servingpool.cli.main", "run", f"--config={config}"]
        process = SupervisedProcess(
            "operator",
            [*command, f"--kubeconfig={kubeconfig}"],
            self._directory / "operator.log",
            ready=http_ready(f"http://127.0.0.1:{health}/healthz"),
            environment={**os.environ, "POD_NAMESPACE": NAMESPACE},
        )
        return process, metrics

    def _create(self, path: str, manifests: Iterable[dict[str, Any]]) -> None:
        def create(manifest: dict[str, Any]) -> None:
            self.plane.client.create(path.format(manifest["metadata"].get("namespace", "")), manifest)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(create, manifests))


def measure(
    directory: Path, *, pools: int, pods: int, per_namespace: int, ticks: int, interval: float
) -> dict[str, object]:
    """Start everything, and account for some ticks: while pools are warmed, under steady traffic, and without."""
    cluster = RealCluster(directory, pools, pods, per_namespace, interval)
    began = time.monotonic()
    say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok")
    with cluster.plane:
        say(f"creating {pools} ServingPools, {pools} Deployments and {pools * pods} pods")
        cluster.populate()
        populated = time.monotonic() - began
        settings = {
            "pools": pools,
            "replicas": pods,
            "slots": 2 * pods,
            "per_namespace": per_namespace,
            "seed": SEED,
            "begin": time.time(),
        }
        with StandInPrometheus(directory, **settings) as prometheus:  # type: ignore[arg-type]
            prometheus.advance(time.time(), cluster.serving())
            operator, port = cluster.operator(prometheus.url)
            operator.start().wait_ready()
            try:
                run = _Run(cluster, prometheus, operator, port, interval)
                found = run.phases(pools, ticks)
            finally:
                operator.stop()
    return {
        "pools": pools,
        "pools_per_namespace": per_namespace,
        "interval_seconds": interval,
        "seconds_to_create_everything": round(populated, 1),
        **found,
    }


class _Run:
    def __init__(
        self,
        cluster: RealCluster,
        prometheus: StandInPrometheus,
        operator: SupervisedProcess,
        port: int,
        interval: float,
    ) -> None:
        self._cluster, self._prometheus, self._interval = cluster, prometheus, interval
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._process = psutil.Process(operator.pid)

    def phases(self, pools: int, ticks: int) -> dict[str, object]:
        say("operator: first ticks, with history")
        start = self._look()
        self._until(lambda: self._samples().get("servingpool_decided_pools", 0.0) >= pools)
        warm = self._look()
        say("operator: steady traffic")
        self._go_on(12)
        first = self._look()
        self._go_on(ticks)
        steady = self._look()
        say("operator: no traffic")
        self._go_on(12, share=0.0)
        quiet = self._look()
        self._go_on(ticks, share=0.0)
        idle = self._look()
        pods = sum(map(len, self._cluster.serving()))
        return {
            "warming": _difference(start, warm, pods),
            "steady": _difference(first, steady, pods),
            "idle": _difference(quiet, idle, pods),
        }

    def _go_on(self, ticks: int, share: float = 1.0) -> None:
        wanted = self._samples()["servingpool_tick_duration_seconds_count"] + ticks
        self._until(lambda: self._samples()["servingpool_tick_duration_seconds_count"] >= wanted, share)

    def _until(self, done: Callable[[], bool], share: float = 1.0) -> None:
        """Move the traffic on with the clock."""
        while not done():
            began = time.monotonic()
            self._prometheus.advance(time.time(), self._cluster.serving(), share)
            time.sleep(max(0.2, self._interval - (time.monotonic() - began)))

    def _look(self) -> Look:
        figures, sent = self._samples(), self._prometheus.sent()
        with self._process.oneshot():
            times, memory = self._process.cpu_times(), self._process.memory_info()
        return Look(
            cpu=times.user + times.system,
            rss=memory.rss / MIB,
            ticks=figures.get("servingpool_tick_duration_seconds_count", 0.0),
            busy=figures.get("servingpool_tick_duration_seconds_sum", 0.0),
            queries=sent["queries"],
            received=sent["bytes"],
            compressed=sent["compressed_bytes"],
            writes={
                kind: figures.get(f"servingpool_api_writes_total {kind}", 0.0) for kind in ("scale", "status", "event")
            },
        )

    def _samples(self) -> dict[str, float]:
        """The operator's metrics by name; the number of pools that were decided on; writes by kind."""
        with open_local(self._url, 30.0) as answer:
            page = answer.read().decode()
        found: dict[str, float] = {"servingpool_decided_pools": 0.0}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == "servingpool_desired_replicas":
                    found["servingpool_decided_pools"] += 1.0
                elif "kind" in sample.labels:
                    found[f"{sample.name} {sample.labels['kind']}"] = sample.value
                elif not sample.labels:
                    found[sample.name] = sample.value
        return found


def _difference(before: Look, after: Look, pods: int) -> dict[str, Any]:
    ticks = max(after.ticks - before.ticks, 1.0)

    def each(a: float, b: float) -> float:
        return (b - a) / ticks

    figures: Sequence[tuple[str, float]] = (
        ("cpu_seconds", each(before.cpu, after.cpu)),
        ("wall_seconds", each(before.busy, after.busy)),
        ("rss_mib", after.rss),
        ("queries", each(before.queries, after.queries)),
        ("received_mib", each(before.received, after.received) / MIB),
        ("received_compressed_mib", each(before.compressed, after.compressed) / MIB),
        *((f"{kind}_writes", each(before.writes[kind], after.writes[kind])) for kind in after.writes),
    )
    return {"ticks": int(ticks), "pods": pods} | {name: round(value, 3) for name, value in figures}
