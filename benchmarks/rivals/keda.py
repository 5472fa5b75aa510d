"""Real KEDA: its operator, and its metrics adapter, which serves the external metrics of KEDA's HPAs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from build_keda import ADAPTER, PROGRAM, home
from rivals.aggregation import PATIENCE, answers, authority_of, register
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.credentials import CertificateAuthority, Identity, write_private
from servingpool_lab.processes import SupervisedProcess, http_ready

NAMESPACE = "default"
GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"


@contextmanager
def keda(plane: ControlPlane, directory: Path) -> Iterator[Callable[[], bool]]:
    """Both processes; yields whether they run. Returns once the API server answers for the adapter.

    Raises:
        ProcessError: one does not become ready.
    """
    for crd in sorted((home() / "crds").glob("*.yaml")):
        plane.apply(crd)
    health, metrics, service, serving, adapter_metrics = free_ports(5)
    kubeconfig = plane.user_kubeconfig("keda", ["system:masters"])
    authority = authority_of(plane)
    server = authority.issue_server(["localhost"], ["127.0.0.1"])
    client = authority.issue_user("keda-adapter", [])
    operator = _process(
        PROGRAM,
        directory,
        [
            f"--kubeconfig={kubeconfig}",
            f"--cert-dir={_certificates(directory / 'keda-server', authority, server)}",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--metrics-service-bind-address=127.0.0.1:{service}",
        ],
        http_ready(f"http://127.0.0.1:{health}/readyz"),
    )
    adapter = _process(
        ADAPTER,
        directory,
        [
            *(f"--{flag}={kubeconfig}" for flag in ("kubeconfig", "lister-kubeconfig")),
            *(f"--{flag}={kubeconfig}" for flag in ("authentication-kubeconfig", "authorization-kubeconfig")),
            f"--cert-dir={_certificates(directory / 'keda-client', authority, client)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={serving}",
            f"--port={adapter_metrics}",
            f"--metrics-service-address=127.0.0.1:{service}",
        ],
        lambda: answers(plane, GROUP, VERSION),
    )
    with ExitStack() as until:
        for process in (operator, adapter):
            until.callback(process.stop)
            process.start()
        operator.wait_ready()
        register(plane, GROUP, VERSION, serving)
        adapter.wait_ready()
        yield lambda: operator.running and adapter.running


def _process(name: str, directory: Path, flags: list[str], ready: Callable[[], bool]) -> SupervisedProcess:
    namespaces = ("WATCH_NAMESPACE", "POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE")
    return SupervisedProcess(
        name,
        [home() / name, *flags],
        directory / "logs" / f"{name}.log",
        ready=ready,
        ready_timeout_seconds=PATIENCE,
        environment={**os.environ, **dict.fromkeys(namespaces, NAMESPACE)},
    )


def _certificates(directory: Path, authority: CertificateAuthority, identity: Identity) -> Path:
    """The three files that KEDA's programs read."""
    directory.mkdir()
    contents = {"ca.crt": authority.certificate, "tls.crt": identity.certificate, "tls.key": identity.key}
    for name, content in contents.items():
        write_private(directory / name, content)
    return directory
