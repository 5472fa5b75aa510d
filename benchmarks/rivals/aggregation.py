"""APIs that kube-apiserver passes on to a process of this machine: where the HPA controller reads its metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rivals import custom_metrics
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.credentials import CertificateAuthority, Identity, write_private
from servingpool_lab.processes import SupervisedProcess

PATIENCE = 180.0
"""Seconds for a process to be ready on a busy machine."""
FRONT_PROXY = "front-proxy-client"


def flags(directory: Path) -> list[str]:
    """Flags of a kube-apiserver that passes requests on; writes the certificates that they name."""
    authority = CertificateAuthority()
    proxy = authority.issue_user(FRONT_PROXY, [])
    ca, certificate, key = (directory / f"front-proxy-{part}.pem" for part in ("ca", "client", "key"))
    for path, content in ((ca, authority.certificate), (certificate, proxy.certificate), (key, proxy.key)):
        write_private(path, content)
    return [
        f"--requestheader-client-ca-file={ca}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]


def authority_of(plane: ControlPlane) -> CertificateAuthority:
    """The control plane's."""
    certificate, key = ((plane.directory / name).read_bytes() for name in ("ca.crt", "ca.key"))
    return CertificateAuthority(Identity(certificate, key))


def register(plane: ControlPlane, group: str, version: str, port: int) -> None:
    """A Service of type ExternalName is how the API server reaches a process of this machine."""
    name = {"name": group.replace(".", "-"), "namespace": "default"}
    service = {"type": "ExternalName", "externalName": "localhost"}
    plane.apply({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": service})
    plane.apply(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**name, "port": port},
            },
        }
    )


def answers(plane: ControlPlane, group: str, version: str) -> bool:
    """Whether the API server passes requests on to it."""
    try:
        plane.client.get(f"/apis/{group}/{version}")
    except (ApiError, OSError):
        return False
    return True


@contextmanager
def serving_custom_metrics(plane: ControlPlane, prometheus: str, directory: Path) -> Iterator[SupervisedProcess]:
    """The adapter of the plain HPAs; returns once the API server answers for it."""
    server = authority_of(plane).issue_server(["localhost"], ["127.0.0.1"])
    certificate, key = (directory / f"custom-metrics-{part}.pem" for part in ("certificate", "key"))
    write_private(certificate, server.certificate)
    write_private(key, server.key)
    [port] = free_ports(1)
    group, version = custom_metrics.GROUP, custom_metrics.VERSION
    process = SupervisedProcess(
        "custom metrics",
        [
            *(sys.executable, "-m", custom_metrics.__name__, f"--prometheus={prometheus}", f"--port={port}"),
            *(f"--certificate={certificate}", f"--key={key}"),
        ],
        directory / "logs" / "custom-metrics.log",
        ready=lambda: answers(plane, group, version),
        ready_timeout_seconds=PATIENCE,
        environment={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    process.start()
    try:
        register(plane, group, version, port)
        yield process.wait_ready()
    finally:
        process.stop()
