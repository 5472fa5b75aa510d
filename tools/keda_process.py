"""Processes of the real KEDA that `make keda` has built, beside a local control plane."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from build_keda import PROGRAM, home
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready

USER = "keda"
"""In the API server's audit log."""
READY = 60.0
"""Seconds for a program to be ready."""


def crds() -> list[Path]:
    """Manifests of its custom resources."""
    return sorted((home() / "crds").glob("*.yaml"))


def kubeconfig(plane: ControlPlane) -> Path:
    """Of USER, who may do anything."""
    return plane.user_kubeconfig(USER, ["system:masters"])


def operator(
    plane: ControlPlane, namespace: str, certificates: Path, log: Path, ready: float = READY
) -> tuple[SupervisedProcess, int]:
    """Its operator, for one namespace, and the port of its metrics service; not started yet, its CRDs are there.

    `certificates`: folder with ca.crt, tls.crt and tls.key of a server. `ready`: seconds for it to be ready.
    """
    for crd in crds():
        plane.apply(crd)
    health, metrics, service = free_ports(3)
    flags = [
        f"--kubeconfig={kubeconfig(plane)}",
        f"--cert-dir={certificates}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--metrics-service-bind-address=127.0.0.1:{service}",
    ]
    return program(PROGRAM, namespace, flags, log, http_ready(f"http://127.0.0.1:{health}/readyz"), ready), service


def program(
    name: str, namespace: str, flags: list[str], log: Path, is_ready: Callable[[], bool], ready: float = READY
) -> SupervisedProcess:
    """A program of KEDA, for one namespace; not started yet."""
    namespaces = ("WATCH_NAMESPACE", "POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE")
    return SupervisedProcess(
        name,
        [home() / name, *flags],
        log,
        ready=is_ready,
        ready_timeout_seconds=ready,
        environment={**os.environ, **dict.fromkeys(namespaces, namespace)},
    )
