"""The run itself: all rivals at once on one control plane."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import build_keda
from lane import tested_commit
from rivals import aggregation
from rivals.aggregation import serving_custom_metrics
from rivals.autoscalers import hpas, scaled_objects
from rivals.emulated import LATE
from rivals.keda import keda
from rivals.record import FleetRecord, Record, Simulated, Write, by_minute, judged
from rivals.scene import (
    FLEETS,
    JITTER,
    LOAD,
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
SILENT = 3
"""Observations in a row in which a part does not answer, before the page says so: the machine may be busy."""


def say(what: str, seconds: float) -> None:
    """What was done, for who watches, and how many seconds it took."""
    print(f"{seconds:6.1f} s  {what}", flush=True)


class RivalsStack(AnyStack):
    """The scene on the local control plane."""

    def __init__(self, minutes: float, fleets: Sequence[Fleet], directory: Path, binaries: Mapping[str, Path]) -> None:
        super().__init__(directory, binaries, load=(LOAD, JITTER), audit_flags=_flags)
        self._minutes, self._fleets = minutes, fleets

    def _nodes(self) -> list[Manifest]:
        return nodes()

    def _workloads(self) -> list[Manifest]:
        return deployments(self._fleets)

    def _emulator(self, kubeconfig: Path, port: int) -> tuple[str, list[str]]:
        flags = [f"--kubeconfig={kubeconfig}", f"--port={port}", f"--minutes={self._minutes:g}"]
        flags += ["--fleets", *(one.slug for one in self._fleets)]
        return "rivals.emulated", flags


def _flags(directory: Path) -> list[str]:
    return [*audit.flags(directory), *aggregation.flags(directory)]


class Rivals:
    """One run, in a directory of its own. `absent`: why it has not those that need KEDA; empty where it has."""

    def __init__(self, minutes: float, directory: Path, binaries: Mapping[str, Path], absent: str = "") -> None:
        self._fleets = [one for one in FLEETS.values() if not (one.by_keda and absent)]
        self._stack = RivalsStack(minutes, self._fleets, directory / "lab", binaries)
        self._minutes, self._absent = minutes, absent
        self._running: list[Callable[[], bool]] = []
        self._simulated: dict[str, Simulated] = {}
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
            with ExitStack() as until:
                self._start_rivals(until)
                self._wait_for_users()
                began = time.time()
                self._stack.plane.apply(hpas())
                if not self._absent:
                    self._stack.plane.apply(scaled_objects(self._stack.prometheus_url))
                self._stack.start_operator(say, serving_pool())
                meanwhile = threading.Thread(target=self._simulate, daemon=True)
                meanwhile.start()
                self._watch(began)
                meanwhile.join()
                return self._record(commit, began)
        finally:
            self._stack.stop()

    def _start_rivals(self, until: ExitStack) -> None:
        """What serves their metrics, while the first replicas load."""
        stack = self._stack
        adapter = until.enter_context(serving_custom_metrics(stack.plane, stack.prometheus_url, stack.directory))
        self._running.append(lambda: adapter.running)
        if not self._absent:
            self._running.append(until.enter_context(keda(stack.plane, stack.directory)))
        say("adapters", 0.0)

    def _wait_for_users(self) -> None:
        while not all(one.get("open") for one in self._fleets_now().values()):
            time.sleep(0.2)

    def _fleets_now(self) -> Mapping[str, Any]:
        """What the emulator knows of each fleet; all unknown while it does not answer, as on a busy machine."""
        try:
            fleets: Mapping[str, Any] = self._stack.truth()["fleets"]
        except OSError:
            return {one.slug: {} for one in self._fleets}
        return fleets

    def _simulate(self) -> None:
        trace = traffic(self._minutes)
        self._simulated = {one.slug: simulated(one, trace) for one in self._fleets}

    def _watch(self, began: float) -> None:
        end, printed, silent = began + 60.0 * self._minutes + TAIL, 0.0, 0
        while (now := time.time()) < end:
            missing = [name for name, running in self._stack.parts().items() if not running]
            missing += [] if all(runs() for runs in self._running) else ["an adapter or KEDA"]
            silent = silent + 1 if missing else 0
            if silent == SILENT:
                self._faults.append(f"{', '.join(missing)} did not run in minute {(now - began) / 60:.1f}.")
            self._loads.append(os.getloadavg()[0])
            if now - printed >= LINE_SECONDS:
                printed = now
                say(self._line(), now - began)
            time.sleep(max(0.0, now + OBSERVE_SECONDS - time.time()))

    def _line(self) -> str:
        fleets = (
            f"{name} {one['replicas']['ready']}+{one['replicas']['loading']} {100 * (one['attainment'] or 0.0):.0f}%"
            for name, one in self._fleets_now().items()
            if one
        )
        return f"{'  '.join(fleets)}  load {self._loads[-1]:.1f}"

    def _record(self, commit: str, began: float) -> Record:
        with open_local(f"{self._stack.emulator_url}/truth/series", 180.0) as response:
            raw = response.read()
        (self._stack.directory.parent / "clients.json").write_bytes(raw)
        found, trace = json.loads(raw), traffic(self._minutes)
        late = found.pop(LATE)
        writes = audit.writes(self._stack.plane, "default")
        self._faults += self._errors()
        return Record(
            commit=commit,
            day=f"{datetime.now(UTC):%Y-%m-%d}",
            minutes=self._minutes,
            cores=os.cpu_count() or 0,
            versions={
                "Kubernetes": KUBERNETES_VERSION,
                **({} if self._absent else {"KEDA": build_keda.VERSION}),
                "Prometheus": PROMETHEUS_VERSION,
            },
            load=(sum(self._loads) / len(self._loads), max(self._loads)),
            late=(late["mean"], late["most"]),
            tail=TAIL,
            sent=by_minute(trace),
            fleets={one.slug: self._fleet(one, found[one.slug], trace, writes, began) for one in self._fleets},
            absent={slug: self._absent for slug, one in FLEETS.items() if one not in self._fleets},
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
            simulated=self._simulated.get(fleet.slug) or simulated(fleet, trace),
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
