"""The run itself: what is started, and what is observed every few seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet_run.record import ClusterObservation, PoolObservation, Record, Said, TargetObservation
from fleet_run.scale_writes import scale_writes
from fleet_run.scene import BUDGET, POOLS, TARGETS, Pace, budget, deployments, nodes, serving_pool
from recording import say
from servingpool.api.group import API_VERSION
from servingpool_lab import audit, kwok
from servingpool_lab.api_client import ApiError
from servingpool_lab.stack import AnyStack
from servingpool_lab.workload import Manifest

OBSERVE_SECONDS = 5.0
LINE_SECONDS = 60.0
"""Between two lines for who watches."""
CONDITIONS = ("Ready", "MetricsAvailable", "TargetsAvailable", "ScalingLimited", "ZeroReady", "SLOMet", "Calibrating")
DEPLOYMENTS, PODS = "/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/pods"
SERVING_POOLS = f"/apis/{API_VERSION}/namespaces/default/servingpools"
GPU_BUDGET = f"/apis/{API_VERSION}/gpubudgets/{BUDGET}"


class FleetStack(AnyStack):
    """The scene on the local control plane."""

    def __init__(self, pace: Pace, directory: Path, binaries: Mapping[str, Path]) -> None:
        super().__init__(directory, binaries, load=pace.load, audit_flags=audit.flags_with_pods)
        self.pace = pace

    def _nodes(self) -> list[Manifest]:
        return nodes()

    def _workloads(self) -> list[Manifest]:
        return deployments(self.pace)

    def _emulator(self, kubeconfig: Path, port: int) -> tuple[str, list[str]]:
        flags = [f"--kubeconfig={kubeconfig}", f"--port={port}", f"--minutes={self.pace.minutes:g}"]
        return "fleet_run.emulated", flags


class FleetRun:
    """One run, in a directory of its own."""

    def __init__(self, directory: Path, binaries: Mapping[str, Path], pace: Pace) -> None:
        self._stack = FleetStack(pace, directory / "lab", binaries)
        self._pace = pace
        self._latest: dict[tuple[str, str], tuple[str, str]] = {}
        self._changes: dict[tuple[str, str], Said] = {}
        self.record = Record(minutes=pace.minutes, cores=os.cpu_count() or 0)

    def run(self) -> Record:
        """From start to stop: the minutes of the pace, and about three more.

        Raises:
            ProcessError, ApiError, LabError: a part did not start.
        """
        try:
            self._stack.start_fleet(say)
            self._wait_for_users()
            self._stack.start_operator(say, budget(), *(serving_pool(pool, self._pace) for pool in POOLS))
            self.record.begin = time.time()
            self._watch()
            self.record.end = time.time()
            self.record.said += self._changes.values()
            self.record.said.sort(key=lambda one: one.at)
            self.record.writes = scale_writes(audit.writes(self._stack.plane, "default"), dict.fromkeys(TARGETS, 1))
            self.record.faults += self._errors()
            return self.record
        finally:
            self._stack.stop()

    def _wait_for_users(self) -> None:
        say("first requests", 0.0)
        while not all(one["open"] for one in self._stack.truth().values()):
            time.sleep(0.5)

    def _watch(self) -> None:
        end, printed = time.monotonic() + 60.0 * self._pace.minutes, -LINE_SECONDS
        while (now := time.monotonic()) < end:
            missing = [name for name, runs in self._stack.parts().items() if not runs]
            if missing:
                self.record.faults.append(f"{', '.join(missing)} did not run in minute {self._minute():.1f}.")
            try:
                self.record.observations.append(self._observe())
            except (OSError, ApiError) as error:
                self.record.faults.append(f"Nothing was seen in minute {self._minute():.1f}: {error}.")
            if now - printed >= LINE_SECONDS and self.record.observations:
                printed = now
                say(_line(self.record.observations[-1]), 60.0 * self._minute())
            time.sleep(max(0.0, now + OBSERVE_SECONDS - time.monotonic()))

    def _minute(self) -> float:
        return self.record.minute(time.time())

    def _observe(self) -> ClusterObservation:
        client = self._stack.plane.client
        found, pods = self._ordered_with_pods()
        at = time.time()
        limited = {}
        for pool in client.items(SERVING_POOLS):
            name, status = pool["metadata"]["name"], pool.get("status", {})
            limited[name] = self._note(at, name, status)
        shares = client.get(GPU_BUDGET).get("status", {}).get("pools", ())
        truth = self._stack.truth()
        return ClusterObservation(
            at,
            os.getloadavg()[0],
            {name: _target(found[name], [pod for pod in pods if kwok.app_of(pod) == name]) for name in TARGETS},
            {name: _pool(one, limited=limited.get(name, False)) for name, one in truth.items()},
            sum(one.get("wanted", 0) for one in shares),
        )

    def _ordered_with_pods(self) -> tuple[Mapping[str, Manifest], list[Manifest]]:
        """Deployments by name and all pods, of one moment.

        No one list has both. Where replicas were ordered between two lists, old orders beside new pods would show GPUs
        over the budget that nobody held, so both are read again.
        """
        client = self._stack.plane.client
        found = _by_name(client.items(DEPLOYMENTS))
        while True:
            before, pods = found, client.items(PODS)
            found = _by_name(client.items(DEPLOYMENTS))
            if all(found[name]["spec"]["replicas"] == before[name]["spec"]["replicas"] for name in TARGETS):
                return found, pods

    def _note(self, at: float, pool: str, status: Mapping[str, Any]) -> bool:
        """Keep what its status says anew; whether the budget limits it."""
        limited = False
        for one in status.get("conditions", ()):
            if one["type"] not in CONDITIONS:
                continue
            state = (one["status"], one["reason"])
            limited |= (one["type"], *state) == ("ScalingLimited", "True", "GPUBudget")
            if self._latest.get((pool, one["type"])) != state:
                self._latest[pool, one["type"]] = state
                about = f"{one['type']} {one['status']}, {one['reason']}"
                self.record.said.append(Said(at, pool, about, one["message"]))
        for change in status.get("history", ()):
            when = datetime.fromisoformat(change["at"]).timestamp()
            about = f"{change['from']} -> {change['to']}"
            self._changes[pool, change["at"]] = Said(when, pool, about, change["why"])
        return limited

    def _errors(self) -> Iterator[str]:
        """What the operator's log has of errors."""
        assert self._stack.operator is not None
        lines = self._stack.operator.log_file.read_text().splitlines()
        bad = [line for line in lines if "Traceback" in line or " ERROR " in line or "CRITICAL" in line]
        if bad:
            yield f"The operator's log has {len(bad)} lines of errors, the first: `{bad[0]}`"


def _by_name(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in manifests}


def _target(deployment: Mapping[str, Any], pods: list[dict[str, Any]]) -> TargetObservation:
    return TargetObservation(
        ordered=deployment["spec"]["replicas"],
        ready=deployment.get("status", {}).get("readyReplicas", 0),
        pods=len(pods),
        draining=sum("deletionTimestamp" in pod["metadata"] for pod in pods),
        without_node=sum("nodeName" not in pod["spec"] for pod in pods),
    )


def _pool(truth: Mapping[str, Any], *, limited: bool) -> PoolObservation:
    return PoolObservation(
        arrived=truth["arrived"],
        attained=truth["attained"],
        **truth["ended"],
        in_flight=truth["in_flight"],
        held_back=truth["front_door"],
        limited=limited,
    )


def _line(observation: ClusterObservation) -> str:
    targets = "  ".join(
        f"{name} {one.ready}/{one.ordered}" + (f" ({one.without_node} without node)" if one.without_node else "")
        for name, one in observation.targets.items()
    )
    pools = "  ".join(
        f"{name} {one.attained}/{one.ended} in flight {one.in_flight}" + (" limited" if one.limited else "")
        for name, one in observation.pools.items()
    )
    return f"{targets}  GPUs {observation.gpus}  {pools}  load {observation.load:.1f}"
