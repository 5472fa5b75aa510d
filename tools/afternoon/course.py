"""The afternoon itself: what is started, what a person types, and how long is waited between."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from afternoon.pod_metrics import PodMetrics
from afternoon.record import Command, FleetObservation, Record, Write
from recording import say
from servingpool.decision.pool import Slo
from servingpool_lab import audit
from servingpool_lab.scenario import WORKLOADS, Scenario
from servingpool_lab.stack import Stack
from servingpool_simulation.prices import price

SLO = Slo(time_to_first_token=2.5, time_per_output_token=0.15, attainment=0.95)
"""Two of vLLM's buckets, so attainment is counted exactly."""
METRIC = "vllm:num_requests_running"
TARGET = 16.0
"""Running requests for each replica: what the benchmark's HPA has."""
MINIMUM = 2
OBSERVE_SECONDS = 5.0
SHORTEST = 10.0
"""Minutes of history that `suggest` and `record` take at least."""
NAME = WORKLOADS["conv"].name
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


@dataclass(frozen=True)
class Minutes:
    """How long each phase lasts."""

    hpa: float
    recommend: float
    auto: float
    released: float


class Afternoon:
    """One run, in a directory of its own."""

    def __init__(self, directory: Path, binaries: Mapping[str, Path], minutes: Minutes) -> None:
        workload = replace(WORKLOADS["conv"], slo=SLO)
        total = minutes.hpa + minutes.recommend + minutes.auto + minutes.released
        self._stack = Stack(Scenario(workload, minutes=total), directory / "lab", binaries, audited=True)
        self._desk, self._bin, self._minutes = directory / "desk", directory / "bin", minutes
        self._kubectl = binaries["kubectl"]
        self._over = threading.Event()
        self.record = Record(
            title=workload.title,
            hardware=f"{workload.model} on {workload.hardware}",
            slo=asdict(SLO),
            gpus=workload.gpus_per_replica,
            cores=os.cpu_count() or 0,
            target=TARGET,
            minimum=MINIMUM,
            maximum=workload.maximum,
        )

    def run(self) -> Record:
        """From start to stop; about the sum of the minutes, and two more.

        Raises:
            ProcessError, ApiError, LabError: a part did not start.
            AssertionError: the HPA was not deleted and created again, so there is nothing to show.
        """
        watching = threading.Thread(target=self._observe, daemon=True)
        try:
            self._stack.start_fleet(say)
            self._set_the_desk()
            self._wait_for_users()
            watching.start()
            with PodMetrics(self._stack.plane, self._stack.prometheus_url):
                self._phases()
            self.record.writes = self._writes()
            assert {"hpa_deleted", "hpa_created"} <= self.record.marks.keys(), "the HPA was not deleted and created"
            return self.record
        finally:
            self._over.set()
            self._stack.stop()

    def _phases(self) -> None:
        workload, minutes = self._stack.scenario.workload, self._minutes
        (self._desk / "hpa.yaml").write_text(yaml.safe_dump(hpa(), sort_keys=False))
        self._type("cat hpa.yaml")
        self._type("kubectl apply -f hpa.yaml")
        self._begin("hpa", minutes.hpa)
        span = f"{max(SHORTEST, minutes.hpa):.0f}m --prometheus $PROMETHEUS"
        self._type(f"kubectl get hpa {NAME}")
        self._type(
            f"servingpool suggest hpa/{NAME} --since {span} "
            f"--gpu-price {workload.gpu_product}={price(workload.profile) / workload.gpus_per_replica:g} > pool.yaml"
        )
        self._type("cat pool.yaml")
        self._type(
            "sed -i -e 's/timeToFirstToken: .*/timeToFirstToken: 2500ms/' "
            "-e 's/timePerOutputToken: .*/timePerOutputToken: 150ms/' pool.yaml"
        )
        self._type(f"servingpool record deployment/{NAME} --since {span} -o {NAME}.rec")
        # 5: the HPA's part is under two hours, too little for a verdict.
        self._type(f"servingpool backtest --from {NAME}.rec --pool pool.yaml", allowed=(0, 5))

        self._stack.start_operator(say)
        self._type("kubectl apply -f pool.yaml")
        self._begin("recommend", minutes.recommend)
        self._type("servingpool get")
        self._type(f"servingpool explain {NAME}")
        self._type(f"servingpool compare {NAME} --since {minutes.recommend:.0f}m --prometheus $PROMETHEUS")
        self._type(f"servingpool adopt {NAME} --dry-run", allowed=(0, 3))
        if self._type(f"servingpool adopt {NAME} --yes", allowed=(0, 3)) == 3:
            self._type(f"servingpool adopt {NAME} --yes --accept")
        self._type("kubectl get hpa")
        self._begin("auto", minutes.auto)
        self._type("servingpool get")
        self._type(f"servingpool explain {NAME}")
        self._type(f"servingpool history {NAME} --since {minutes.auto:.0f}m --prometheus $PROMETHEUS")
        self._type(f"servingpool release {NAME} --yes")
        self._begin("released", minutes.released)
        self._type("kubectl get hpa")
        self._type("servingpool get")
        self.record.marks["end"] = time.time()

    def _begin(self, phase: str, minutes: float) -> None:
        self.record.marks[phase] = time.time()
        say(f"{phase} for {minutes:g} minutes", 0.0)
        time.sleep(60 * minutes)

    def _type(self, typed: str, *, allowed: tuple[int, ...] = (0,)) -> int:
        """Run it as a person would, and keep what it says."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._stack.plane.kubeconfig),
            "PROMETHEUS": self._stack.prometheus_url,
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "COLUMNS": "120",
        }
        at, begun = time.time(), time.monotonic()
        done = subprocess.run(  # noqa: S603, commands of this file
            ["bash", "-c", typed],  # noqa: S607, a person's shell
            cwd=self._desk,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - begun
        failed = done.returncode not in allowed
        self.record.commands.append(Command(at, typed, done.stdout, seconds, done.returncode, failed))
        say(f"$ {typed}\n{done.stdout}", seconds)
        return done.returncode

    def _set_the_desk(self) -> None:
        """A folder for the person's files, and the two commands that they type."""
        for folder in (self._desk, self._bin):
            folder.mkdir(parents=True, exist_ok=True)
        commands = {"kubectl": [str(self._kubectl)], "servingpool": [sys.executable, "-m", "servingpool.cli.main"]}
        for name, command in commands.items():
            path = self._bin / name
            path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            path.chmod(0o755)

    def _wait_for_users(self) -> None:
        say("first requests", 0.0)
        while not self._stack.truth()["open"]:
            time.sleep(1.0)

    def _observe(self) -> None:
        while not self._over.is_set():
            try:
                self.record.observations.append(_observation(self._stack.truth()))
            except OSError as error:
                now = time.time()
                minute = (now - self.record.marks.get("hpa", now)) / 60.0
                self.record.faults.append(f"Nothing was seen in minute {minute:.1f}: {error}.")
            self._over.wait(OBSERVE_SECONDS)

    def _writes(self) -> list[Write]:
        """Of the Deployment's replicas; notes when the HPA went and came back."""
        found = []
        for one in audit.writes(self._stack.plane, "default"):
            at = one.seconds
            if one.resource == "horizontalpodautoscalers" and at > self.record.marks["recommend"]:
                match one.verb:
                    case "delete":
                        self.record.marks["hpa_deleted"] = at
                    case "create":
                        self.record.marks["hpa_created"] = at
            if one.replicas is not None and one.name == NAME:
                found.append(Write(at, one.user, one.replicas))
        return found


def _observation(truth: Mapping[str, Any]) -> FleetObservation:
    return FleetObservation(
        at=time.time(),
        arrived=truth["arrived"],
        attained=truth["attained"],
        **truth["ended"],
        in_flight=truth["in_flight"],
        replica_seconds=truth["replica_seconds"],
        ready=truth["replicas"]["ready"],
        load=os.getloadavg()[0],
    )


def hpa() -> dict[str, Any]:
    """What scales before the operator comes, as many people have it."""
    target = {"type": "AverageValue", "averageValue": f"{TARGET:g}"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
            "minReplicas": MINIMUM,
            "maxReplicas": WORKLOADS["conv"].maximum,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": target}}],
        },
    }
