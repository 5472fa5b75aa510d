"""The run itself: all rivals at once on one control plane."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import build_keda
from lane import tested_commit
from recording import say
from rivals.keda import aggregation_flags, keda
from rivals.record import FleetRecord, Record, Simulated, Write, by_minute, judged
from rivals.scaled_objects import scaled_objects
from rivals.scene import (
    FLEETS,
    POOL,
    PROFILE,
    TAIL,
    Fleet,
    deployments,
    nodes,
    options,
    serving_pool,
    traffic,
)
from servingpool_lab import audit
from servingpool_lab.go_modules import KUBERNETES_VERSION, PROMETHEUS_VERSION
from servingpool_lab.processes import open_local
from servingpool_lab.stack import AnyStack
from servingpool_lab.workload import Manifest
from servingpool_simulation.run import simulate
from servingpool_simulation.traces import Trace

OBSERVE_SECONDS, LINE_SECONDS = 5.0, 60.0


class RivalsStack(AnyStack):
    """The scene on the local control plane."""

    def __init__(self, minutes: float, directory: Path, binaries: Mapping[str, Path]) -> None:
        super().__init__(directory, binaries, load=(60.0, 6.0), audit_flags=_flags)
        self._minutes = minutes

    def _nodes(self) -> list[Manifest]:
        return nodes()

    def _workloads(self) -> list[Manifest]:
        return deployments()

    def _emulator(self, kubeconfig: Path, port: int) -> tuple[str, list[str]]:
        flags = [f"--kubeconfig={kubeconfig}", f"--port={port}", f"--minutes={self._minutes:g}"]
        return "rivals.emulated", flags


def _flags(directory: Path) -> list[str]:
    return [*audit.flags(directory), *aggregation_flags(directory)]


class Rivals:
    """One run, in a directory of its own."""

    def __init__(self, minutes: float, directory: Path, binaries: Mapping[str, Path]) -> None:
        self._stack = RivalsStack(minutes, directory / "lab", binaries)
        self._minutes = minutes
        self._loads: list[float] = []
        self._faults: list[str] = []

    def run(self) -> Record:
        """From start to stop: the minutes, and about six more.

        Raises:
            ProcessError, ApiError, LabError, TimeoutError: a part did not start.
        """
        commit = tested_commit()
        try:
            self._stack.start_fleet(say)
            with keda(self._stack.plane, self._stack.directory) as runs:
                say("KEDA and its adapter", 0.0)
                self._wait_for_users()
                began = time.time()
                # Deployments exist, so an HPA scales from its first sync on.
                self._stack.plane.apply(scaled_objects(self._stack.prometheus_url))
                self._stack.start_operator(say, serving_pool())
                self._watch(runs, began)
                return self._record(commit, began)
        finally:
            self._stack.stop()

    def _wait_for_users(self) -> None:
        while not all(one["open"] for one in self._stack.truth()["fleets"].values()):
            time.sleep(0.2)

    def _watch(self, runs: Callable[[], bool], began: float) -> None:
        end, printed = began + 60.0 * self._minutes + TAIL, 0.0
        while (now := time.time()) < end:
            missing = [name for name, running in self._stack.parts().items() if not running]
            missing += [] if runs() else ["KEDA"]
            if missing:
                self._faults.append(f"{', '.join(missing)} did not run in minute {(now - began) / 60:.1f}.")
            self._loads.append(os.getloadavg()[0])
            if now - printed >= LINE_SECONDS:
                printed = now
                say(self._line(), now - began)
            time.sleep(max(0.0, now + OBSERVE_SECONDS - time.time()))

    def _line(self) -> str:
        truth = self._stack.truth()
        fleets = (
            f"{name} {one['replicas']['ready']}+{one['replicas']['loading']} {100 * (one['attainment'] or 0.0):.0f}%"
            for name, one in truth["fleets"].items()
        )
        return f"{'  '.join(fleets)}  load {self._loads[-1]:.1f}, late {truth['late']['most']:.2f} s"

    def _record(self, commit: str, began: float) -> Record:
        late = self._stack.truth()["late"]
        with open_local(f"{self._stack.emulator_url}/truth/series", 60.0) as response:
            raw = response.read()
        (self._stack.directory.parent / "clients.json").write_bytes(raw)
        found, trace = json.loads(raw), traffic(self._minutes)
        writes = audit.writes(self._stack.plane, "default")
        self._faults += self._errors()
        return Record(
            commit=commit,
            day=f"{datetime.now(UTC):%Y-%m-%d}",
            minutes=self._minutes,
            cores=os.cpu_count() or 0,
            versions={"Kubernetes": KUBERNETES_VERSION, "KEDA": build_keda.VERSION, "Prometheus": PROMETHEUS_VERSION},
            load=(sum(self._loads) / len(self._loads), max(self._loads)),
            late=(late["mean"], late["most"]),
            sent=by_minute(trace),
            fleets={name: self._fleet(fleet, found[name], trace, writes, began) for name, fleet in FLEETS.items()},
            faults=self._faults,
        )

    def _fleet(
        self, fleet: Fleet, found: Mapping[str, Any], trace: Trace, writes: list[audit.Write], began: float
    ) -> FleetRecord:
        course = found["course"]
        last = max(place for place, at in enumerate(course["time"]) if at <= trace.duration + 1.0)
        return FleetRecord(
            **judged(found["clients"], trace),
            replicas=[int(one) for one in course["requested"][: last + 1]],
            replica_hours=course["replica_seconds"][last] / 3600.0,
            writes=list(_scales(fleet.slug, writes, began, began + trace.duration)),
            simulated=simulated(fleet, trace),
        )

    def _errors(self) -> Iterator[str]:
        """What the operator's log has of errors."""
        assert self._stack.operator is not None
        lines = self._stack.operator.log_file.read_text().splitlines()
        bad = [line for line in lines if "Traceback" in line or " ERROR " in line or "CRITICAL" in line]
        if bad:
            yield f"The operator's log has {len(bad)} lines of errors, the first: `{bad[0]}`"


def _scales(name: str, writes: list[audit.Write], begin: float, end: float) -> Iterator[Write]:
    for one in writes:
        replicas = one.replicas if (one.name, one.resource) == (name, "deployments/scale") else None
        if replicas is not None and begin <= one.seconds < end:
            yield Write(round((one.seconds - begin) / 60.0, 2), one.user.rpartition(":")[2], replicas)


def simulated(fleet: Fleet, trace: Trace) -> Simulated:
    """The simulator's run of the same course."""
    score = simulate(trace, PROFILE, POOL, fleet.policy(), options(fleet)).score
    changes = round(score.scale_changes_per_hour * trace.duration / 3600.0)
    return Simulated(score.attainment, score.replica_hours, changes)
