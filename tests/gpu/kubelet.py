"""Real vLLM processes in the place of a Deployment's pods: each runs what its pod's container says, at its pod's address."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.kwok import NEVER_READY_ANNOTATION
from servingpool_lab.processes import SupervisedProcess, http_ready

from ..e2e.engines import PORT  # noqa: TID252, tests are no package of an installed name
from ..pods import Pod, Pods, Replica, is_ready  # noqa: TID252

KWOK_FLAGS = ("--cidr=127.1.0.0/16",)
"""Pods get loopback addresses, so each engine has the same port at an address of its own, as in a cluster: router and
Prometheus find them by the API server and reach them."""


class Kubelet(Pods):
    """Starts a pod's engine, has the pod Ready once it answers, and ends it as a kubelet does: preStop, SIGTERM.

    An engine that outlives its grace period fails the lane.
    """

    def __init__(
        self, plane: ControlPlane, namespace: str, selector: str, python: Path, logs: Path, cores: float | None
    ) -> None:
        """`python` has vLLM; `cores`: how much of a core an engine may use, None for no limit."""
        super().__init__(plane, namespace, selector, cores)
        self._python, self._logs = python, logs
        self._pods: dict[str, Pod] = {}
        """The pod of each engine, as it was at its start."""
        self._terminated: set[str] = set()
        """Engines that were sent SIGTERM."""
        self._answering: set[str] = set()
        """Engines that have answered."""

    def _slowed(self) -> list[Replica]:
        """The share of a core stands for a GPU: loading, which is work for a CPU, is not slowed by it."""
        return [replica for name, replica in list(self._replicas.items()) if name in self._answering]

    def _start(self, pod: Pod) -> Replica:
        name, [container] = pod["metadata"]["name"], pod["spec"]["containers"]
        self._pods[name] = pod
        return Replica(
            engine(container, self._python, pod["status"]["podIP"], self._logs / f"{name}.log").start(), PORT
        )

    def _end(self, name: str, replica: Replica, seconds: float) -> bool:
        spec, pid = self._pods[name]["spec"], replica.process.pid
        if replica.process.running:
            if seconds >= spec["terminationGracePeriodSeconds"]:
                raise RuntimeError(f"{name} has not ended in its grace period\n{replica.process.log_tail()}")
            if seconds >= seconds_before_stop(spec["containers"][0]) and name not in self._terminated and pid:
                self._terminated.add(name)
                os.kill(pid, signal.SIGTERM)  # to the container's first process alone, as a kubelet does
            return False
        replica.signal(signal.SIGKILL)  # what it has left
        try:
            self._plane.client.request("DELETE", f"{self._path}/{name}", {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:  # kwok was faster
                raise
        return True

    def _update(self, pods: dict[str, Pod]) -> None:
        for name, replica in self._replicas.items():
            if name not in pods:
                continue
            if not replica.process.running:
                raise RuntimeError(f"{name} ended by itself\n{replica.process.log_tail()}")
            if not is_ready(pods[name]) and http_ready(f"http://{pods[name]['status']['podIP']}:{PORT}/health")():
                self._answering.add(name)
                self._plane.client.patch(
                    f"{self._path}/{name}", {"metadata": {"annotations": {NEVER_READY_ANNOTATION: None}}}
                )


def engine(container: Mapping[str, Any], python: Path, address: str, log: Path) -> SupervisedProcess:
    """The process of a pod's container at this address."""
    command = [*container["command"], *container["args"], f"--host={address}"]
    return SupervisedProcess(
        log.stem,
        [python if part == "python3" else part for part in command],
        log,
        ready=http_ready(f"http://{address}:{PORT}/health"),
        ready_timeout_seconds=600.0,
        stop_timeout_seconds=10.0,
        environment={**os.environ, **{one["name"]: one["value"] for one in container.get("env", [])}},
    )


def seconds_before_stop(container: Mapping[str, Any]) -> float:
    """Seconds that its preStop sleeps."""
    return float(container["lifecycle"]["preStop"]["exec"]["command"][1])
