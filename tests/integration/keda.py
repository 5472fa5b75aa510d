"""Real KEDA beside the local control plane, where its operator was built (`make keda`)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from build_keda import PROGRAM, home
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready

USER = "keda"
"""In the API server's audit log."""


@contextlib.contextmanager
def keda(plane: ControlPlane, namespace: str, directory: Path) -> Iterator[SupervisedProcess]:
    """Its operator, for one namespace. It serves no metrics: its HPAs know none, and keep replicas within their bounds."""
    crds = sorted((home() / "crds").glob("*.yaml"))
    for crd in crds:
        plane.apply(crd)
    certificates = directory / "keda-certificates"
    certificates.mkdir()
    for source, name in (("ca.crt", "ca.crt"), ("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copy(plane.directory / source, certificates / name)
    health, metrics, service = free_ports(3)
    process = SupervisedProcess(
        "keda",
        [
            home() / PROGRAM,
            f"--kubeconfig={plane.user_kubeconfig(USER, ['system:masters'])}",
            f"--cert-dir={certificates}",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--metrics-service-bind-address=127.0.0.1:{service}",
        ],
        directory / "keda.log",
        ready=http_ready(f"http://127.0.0.1:{health}/readyz"),
        environment={
            **os.environ,
            "WATCH_NAMESPACE": namespace,
            "POD_NAMESPACE": namespace,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": namespace,
        },
    )
    process.start()
    try:
        process.wait_ready()
        yield process
    finally:
        process.stop()
        for crd in crds:
            plane.client.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{_name(crd)}")


def _name(crd: Path) -> str:
    """The files are called keda.sh_scaledobjects.yaml."""
    group, _, plural = crd.stem.partition("_")
    return f"{plural}.{group}"
