"""Real KEDA: its operator, and its metrics adapter, which serves the external metrics of KEDA's HPAs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import keda_process
from build_keda import ADAPTER
from rivals.aggregation import PATIENCE, answers, authority_of, register
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.credentials import CertificateAuthority, Identity, write_private

NAMESPACE = "default"
GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"


@contextmanager
def keda(plane: ControlPlane, directory: Path) -> Iterator[Callable[[], bool]]:
    """Both processes; yields whether they run. Returns once the API server answers for the adapter.

    Raises:
        ProcessError: one does not become ready.
    """
    authority, logs = authority_of(plane), directory / "logs"
    server = authority.issue_server(["localhost"], ["127.0.0.1"])
    client = authority.issue_user("keda-adapter", [])
    certificates = _certificates(directory / "keda-server", authority, server)
    operator, service = keda_process.operator(plane, NAMESPACE, certificates, logs / "keda-operator.log", PATIENCE)
    serving, adapter_metrics = free_ports(2)
    kubeconfig = keda_process.kubeconfig(plane)
    adapter = keda_process.program(
        ADAPTER,
        NAMESPACE,
        [
            *(f"--{flag}={kubeconfig}" for flag in ("kubeconfig", "lister-kubeconfig")),
            *(f"--{flag}={kubeconfig}" for flag in ("authentication-kubeconfig", "authorization-kubeconfig")),
            f"--cert-dir={_certificates(directory / 'keda-client', authority, client)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={serving}",
            f"--port={adapter_metrics}",
            f"--metrics-service-address=127.0.0.1:{service}",
        ],
        logs / "keda-adapter.log",
        lambda: answers(plane, GROUP, VERSION),
        PATIENCE,
    )
    with ExitStack() as until:
        for process in (operator, adapter):
            until.callback(process.stop)
            process.start()
        operator.wait_ready()
        register(plane, GROUP, VERSION, serving)
        adapter.wait_ready()
        yield lambda: operator.running and adapter.running


def _certificates(directory: Path, authority: CertificateAuthority, identity: Identity) -> Path:
    """The three files that KEDA's programs read."""
    directory.mkdir()
    contents = {"ca.crt": authority.certificate, "tls.crt": identity.certificate, "tls.key": identity.key}
    for name, content in contents.items():
        write_private(directory / name, content)
    return directory
