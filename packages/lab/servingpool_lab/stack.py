"""The lab's parts: started in order, watched, stopped in reverse."""

from __future__ import annotations

import abc
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from servingpool.api.crd import manifests
from servingpool_lab import kwok, workload
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local, wait_until
from servingpool_lab.prometheus import Prometheus
from servingpool_lab.scenario import Scenario

SCRAPE_SECONDS = 5.0
_KEPT = ("lock", "record.json")

Say = Callable[[str, float], None]
"""Told what was done and how many seconds it took."""


TRUTH_SECONDS = 10.0
"""Seconds that the emulator may take to answer on a busy machine."""


class LabError(RuntimeError):
    """The lab cannot run here; the message says what to do."""


class AnyStack(abc.ABC):
    """Control plane, Prometheus, emulated fleets and operator, in one directory. A subclass says what is served."""

    namespace = "default"
    """All pods are in it."""

    def __init__(
        self,
        directory: Path,
        binaries: Mapping[str, Path],
        *,
        load: tuple[float, float],
        audit_flags: Callable[[Path], list[str]] | None = None,
    ) -> None:
        """Prepare; nothing runs before `start`.

        Args:
            directory: for everything that is written.
            binaries: programs by name.
            load: seconds from a container's start to Ready, and how many more there may be, for pods that do not say.
            audit_flags: flags, by the directory, of an API server that writes down who writes; see `audit`.
        """
        self._load, self._audit_flags = load, audit_flags
        self.directory = directory.absolute()
        self._binaries = binaries
        self._exit = ExitStack()
        self._parts: dict[str, Callable[[], bool]] = {}
        self.plane: ControlPlane
        self.emulator_url = self.prometheus_url = ""
        self._metrics_port = 0
        """The operator's; Prometheus scrapes it before the operator listens."""
        self.operator: SupervisedProcess | None = None

    @abc.abstractmethod
    def _nodes(self) -> list[workload.Manifest]:
        """What the pods run on."""

    @abc.abstractmethod
    def _workloads(self) -> list[workload.Manifest]:
        """Deployments: the engines, and a gateway if there is one."""

    @abc.abstractmethod
    def _emulator(self, kubeconfig: Path, port: int) -> tuple[str, list[str]]:
        """The Python module that answers for the pods at a loopback port, and its flags."""

    def start_fleet(self, say: Say) -> None:
        """Start all but the operator, of which the cluster knows nothing yet.

        Raises:
            LabError: another lab runs in this directory, or it holds something else.
            ProcessError: a part does not become ready. Call `stop`.
            ApiError: the API server refuses a manifest. Call `stop`.
        """
        self._exit.enter_context(_own(self.directory))
        with _timed(say, "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok"):
            self.plane = self._exit.enter_context(
                ControlPlane(
                    self.directory,
                    binaries=self._binaries,
                    default_load_seconds=self._load[0],
                    default_load_jitter_seconds=self._load[1],
                    flags={"kube-apiserver": self._audit_flags(self.directory)} if self._audit_flags else {},
                )
            )
            self._parts["control plane"] = lambda: not self.plane.exited()
        with _timed(say, "GPU nodes, vLLM Deployments"):
            self._create_objects()
        with _timed(say, "emulated engines, Prometheus"):
            self._start_metrics()

    def start_operator(self, say: Say, *pools: Mapping[str, Any]) -> None:
        """Install the operator with its CRD and its rights, create the pools, and start it. Raises as `start_fleet`."""
        with _timed(say, "CRDs, the operator's rights, pools, operator"):
            for manifest in manifests().values():
                self.plane.apply(manifest)
            self.plane.apply(workload.operator_manifests())
            # Before the operator, or its first decision comes a tick later.
            self.plane.apply(pools)
            self._start_operator()

    def truth(self) -> dict[str, Any]:
        """What the emulator knows of its users, see its `/truth`. Raises OSError."""
        with open_local(f"{self.emulator_url}/truth", TRUTH_SECONDS) as response:
            truth: dict[str, Any] = json.load(response)
            return truth

    def stop(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Stop everything that `start` started, last first. Safe to call twice."""
        if self.operator is not None:
            say("operator")
            self.operator.stop()
        say("Prometheus, emulated fleet, control plane")
        self._exit.close()

    def parts(self) -> dict[str, bool]:
        """Each part, and whether it runs."""
        return {name: running() for name, running in self._parts.items()}

    def _create_objects(self) -> None:
        plane, nodes = self.plane, self._nodes()
        plane.apply(nodes)
        plane.apply(workload.emulator_rights(self.namespace))
        wait_until(lambda: self._schedulable() == len(nodes), 30, "GPU nodes ready")
        # Before everything that does not need it: replicas load while the rest starts.
        plane.apply(self._workloads())

    def _schedulable(self) -> int:
        nodes = self.plane.client.items("/api/v1/nodes")
        return sum(not node["spec"].get("taints") for node in nodes)

    def _start_metrics(self) -> None:
        kubeconfig = self.plane.user_kubeconfig(workload.EMULATOR)
        port, self._metrics_port = free_ports(2)
        self.emulator_url = f"http://127.0.0.1:{port}"
        module, flags = self._emulator(kubeconfig, port)
        emulator = self._process("emulator", module, flags, f"{self.emulator_url}/healthz")
        emulator.start()
        prometheus = self._exit.enter_context(
            Prometheus(
                self.directory / "prometheus",
                self.plane.viewer_kubeconfig("prometheus"),
                f"127.0.0.1:{port}",
                scrape_interval_seconds=SCRAPE_SECONDS,
                binary=self._binaries["prometheus"],
                operator=f"127.0.0.1:{self._metrics_port}",
            )
        )
        self.prometheus_url = prometheus.url
        self._parts["Prometheus"] = http_ready(f"{prometheus.url}/-/ready")
        emulator.wait_ready()
        self._parts["emulated fleet"] = lambda: emulator.running

    def _start_operator(self) -> None:
        health = free_ports(1)[0]
        configuration = self.directory / "operator.yaml"
        kubeconfig = self.plane.service_account_kubeconfig(workload.OPERATOR_NAMESPACE, workload.OPERATOR_ACCOUNT)
        settings = workload.operator_configuration(self.prometheus_url, health, self._metrics_port)
        configuration.write_text(json.dumps(settings, indent=1))
        flags = ["run", f"--config={configuration}", f"--kubeconfig={kubeconfig}", "--log-format=text"]
        operator = self._process("operator", "servingpool.cli.main", flags, f"http://127.0.0.1:{health}/healthz")
        self.operator = operator
        operator.start()
        operator.wait_ready()
        self._parts["operator"] = lambda: operator.running

    def _process(self, name: str, module: str, flags: list[str], health: str) -> SupervisedProcess:
        process = SupervisedProcess(
            name,
            [sys.executable, "-m", module, *flags],
            self.directory / "logs" / f"{name}.log",
            ready=http_ready(health),
            environment={**os.environ, "PYTHONUNBUFFERED": "1"},
            stop_timeout_seconds=5.0,
        )
        self._exit.callback(process.stop)
        return process


class Stack(AnyStack):
    """One workload with its fleet."""

    def __init__(self, scenario: Scenario, directory: Path, binaries: Mapping[str, Path]) -> None:
        """Prepare; nothing runs before `start`."""
        super().__init__(directory, binaries, load=(scenario.load_seconds, scenario.load_jitter))
        self.scenario, self.namespace = scenario, scenario.namespace

    def start(self, say: Say) -> None:
        """Start everything; returns once the operator runs. Raises as `start_fleet`."""
        self.start_fleet(say)
        self.start_operator(say, workload.serving_pool(self.scenario))

    def _nodes(self) -> list[workload.Manifest]:
        return workload.nodes(self.scenario)

    def _workloads(self) -> list[workload.Manifest]:
        return [workload.deployment(self.scenario)]

    def _emulator(self, kubeconfig: Path, port: int) -> tuple[str, list[str]]:
        scenario, slo = self.scenario, self.scenario.workload.slo
        options: dict[str, object] = {
            "kubeconfig": kubeconfig,
            "namespace": scenario.namespace,
            "selector": f"{kwok.APP_LABEL}={scenario.workload.name}",
            "port": port,
            "model": scenario.workload.model,
            "trace": scenario.workload.trace,
            "profile": scenario.workload.profile,
            "ttft": slo.time_to_first_token,
            "tpot": slo.time_per_output_token,
            "attainment": slo.attainment,
            "start-at": scenario.start_at,
            "seconds": scenario.minutes and scenario.minutes * 60,
            "open-with": scenario.workload.initial,
            "max": scenario.workload.maximum,
        }
        return "servingpool_lab.emulator", [f"--{name}={value}" for name, value in options.items() if value is not None]


@contextmanager
def _timed(say: Say, what: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    say(what, time.monotonic() - begin)


@contextmanager
def _own(directory: Path) -> Iterator[None]:
    """Holds the directory for this lab alone, emptied of what the last one left."""
    if directory.is_dir() and any(directory.iterdir()) and not (directory / "lock").is_file():
        raise LabError(f"{directory} holds other files: choose another --directory")
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise LabError(
                f"another lab (pid {lock.read().strip()}) runs in {directory}: stop it, or choose another --directory"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        for entry in directory.iterdir():
            if entry.name not in _KEPT:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        yield
