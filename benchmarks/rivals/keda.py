"""Real KEDA: its operator and its metrics adapter, which the API server asks for the HPA controller."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from build_keda import ADAPTER, PROGRAM, home
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.credentials import CertificateAuthority, Identity, write_private
from servingpool_lab.processes import SupervisedProcess, http_ready

NAMESPACE, METRICS_API = "default", "external.metrics.k8s.io"
FRONT_PROXY = "front-proxy-client"
_GROUP, _USER, _EXTRA = "X-Remote-Group", "X-Remote-User", "X-Remote-Extra-"


def aggregation_flags(directory: Path) -> list[str]:
    """Flags of a kube-apiserver that passes requests on to an adapter; writes the certificates that they name."""
    authority = CertificateAuthority()
    proxy = authority.issue_user(FRONT_PROXY, [])
    ca, certificate, key = (directory / f"front-proxy-{part}.pem" for part in ("ca", "client", "key"))
    for path, content in ((ca, authority.certificate), (certificate, proxy.certificate), (key, proxy.key)):
        write_private(path, content)
    return [
        f"--requestheader-client-ca-file={ca}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        f"--requestheader-group-headers={_GROUP}",
        f"--requestheader-username-headers={_USER}",
        f"--requestheader-extra-headers-prefix={_EXTRA}",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]


@contextmanager
def keda(plane: ControlPlane, directory: Path) -> Iterator[Callable[[], bool]]:
    """Both processes; yields whether they run. Returns once the API server answers for the adapter.

    Raises:
        ProcessError, TimeoutError: one does not become ready.
    """
    for crd in sorted((home() / "crds").glob("*.yaml")):
        plane.apply(crd)
    health, metrics, service, serving, adapter_metrics = free_ports(5)
    kubeconfig = plane.user_kubeconfig("keda", ["system:masters"])
    authority = CertificateAuthority(
        Identity(*((plane.directory / name).read_bytes() for name in ("ca.crt", "ca.key")))
    )
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
            f"--kubeconfig={kubeconfig}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--cert-dir={_certificates(directory / 'keda-client', authority, client)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={serving}",
            f"--port={adapter_metrics}",
            f"--metrics-service-address=127.0.0.1:{service}",
        ],
        lambda: _answers(plane),
    )
    with ExitStack() as until:
        for process in (operator, adapter):
            until.callback(process.stop)
            process.start()
        operator.wait_ready()
        _register(plane, serving)
        adapter.wait_ready()
        yield lambda: operator.running and adapter.running


def _process(name: str, directory: Path, flags: list[str], ready: Callable[[], bool]) -> SupervisedProcess:
    environment = {
        **os.environ,
        **dict.fromkeys(("WATCH_NAMESPACE", "POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE"), NAMESPACE),
    }
    log = directory / "logs" / f"{name}.log"
    command = [home() / name, *flags]
    return SupervisedProcess(
        name, command, log, ready=ready, ready_timeout_seconds=180.0, environment=environment
    )


def _certificates(directory: Path, authority: CertificateAuthority, identity: Identity) -> Path:
    """The three files that KEDA's programs read."""
    directory.mkdir()
    for name, content in (
        ("ca.crt", authority.certificate),
        ("tls.crt", identity.certificate),
        ("tls.key", identity.key),
    ):
        write_private(directory / name, content)
    return directory


def _register(plane: ControlPlane, port: int) -> None:
    """A Service of type ExternalName is how the API server reaches a process of this machine."""
    name = {"name": "keda-metrics-apiserver", "namespace": NAMESPACE}
    service = {"type": "ExternalName", "externalName": "localhost"}
    plane.apply({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": service})
    plane.apply(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta1.{METRICS_API}"},
            "spec": {
                "group": METRICS_API,
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**name, "port": port},
            },
        }
    )


def _answers(plane: ControlPlane) -> bool:
    try:
        plane.client.get(f"/apis/{METRICS_API}/v1beta1")
    except (ApiError, OSError):
        return False
    return True
