"""LeaderWorkerSet's own controller, CRD and webhooks, from its Go module (tools/lws, Apache License 2.0)."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from servingpool_lab.api_client import load_manifests
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.credentials import CertificateAuthority, write_private
from servingpool_lab.go_modules import MODULES, BuildError
from servingpool_lab.go_toolchain import find_go
from servingpool_lab.processes import SupervisedProcess, http_ready, wait_until

from .operators import PATIENCE

MODULE = "sigs.k8s.io/lws"
API_VERSION = "leaderworkerset.x-k8s.io/v1"


def source() -> Path:
    """The module's folder, in Go's own cache."""
    try:
        go = find_go()
    except BuildError as error:
        pytest.skip(f"no Go, which knows where {MODULE} lies: {error}")
    done = subprocess.run(
        [go.path, "list", "-m", "-f", "{{.Dir}}", MODULE],
        cwd=MODULES["lws"].directory,
        env=go.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


@contextmanager
def controller(plane: ControlPlane, namespace: str, directory: Path) -> Iterator[None]:
    """It runs for one namespace while the context lasts; the test is skipped where it is not built."""
    binary = MODULES["lws"].output_directory() / "lws"
    if not binary.is_file():
        pytest.skip("LeaderWorkerSet's controller is not built: python -m servingpool_lab.binaries lws")
    config = source() / "config"
    plane.apply(config / "crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml")
    plane.apply(config / "crd/bases/disaggregatedset.x-k8s.io_disaggregatedsets.yaml")
    webhook, health, metrics = free_ports(3)
    authority = CertificateAuthority()
    server = authority.issue_server(["localhost"], ["127.0.0.1"])
    write_private(directory / "tls.crt", server.certificate)
    write_private(directory / "tls.key", server.key)
    settings = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"port": webhook, "host": "127.0.0.1", "certDir": str(directory)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
    }
    (directory / "config.yaml").write_text(json.dumps(settings))
    process = SupervisedProcess(
        "lws",
        [binary, f"--config={directory / 'config.yaml'}"],
        directory / "lws.log",
        ready=http_ready(f"http://127.0.0.1:{health}/readyz"),
        environment={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
    )
    process.start()
    paths = []
    try:
        process.wait_ready()
        wait_until(lambda: _listens(webhook), PATIENCE, "the webhooks' server listens: readyz does not tell")
        for manifest in load_manifests(config / "webhook/manifests.yaml"):
            hooks = _local(manifest, namespace, f"https://127.0.0.1:{webhook}", authority.certificate)
            paths.append(plane.client.path_of(hooks))
            plane.apply(hooks)
        yield
    finally:
        for path in paths:  # they would refuse every pod of the namespace
            plane.client.delete(path)
        process.stop()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _local(manifest: Any, namespace: str, url: str, authority: bytes) -> dict[str, Any]:
    """The webhooks for one namespace, by URL: their Service does not exist here."""
    bundle = base64.b64encode(authority).decode()
    only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    # As the module's own kustomization has it: of pods, those of a LeaderWorkerSet.
    own = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
    webhooks = [
        {
            **hook,
            "clientConfig": {"url": f"{url}{hook['clientConfig']['service']['path']}", "caBundle": bundle},
            "namespaceSelector": only,
            **({"objectSelector": own} if "pod" in hook["name"] else {}),
        }
        for hook in manifest["webhooks"]
    ]
    meta = {"name": f"lws-{manifest['metadata']['name']}"}
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": meta, "webhooks": webhooks}


def leader_worker_set(namespace: str, name: str, size: int, **labels: str) -> dict[str, Any]:
    """One of `size` pods a group. `labels` are the leaders'."""

    def template(gpus: int, own: dict[str, str]) -> dict[str, Any]:
        container = {
            "name": "vllm",
            "image": "vllm/vllm-openai:latest",
            "args": ["--max-num-seqs=64"],
            "ports": [{"containerPort": 8000}],
            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        }
        meta = {"labels": own, "annotations": {"prometheus.io/scrape": "true"}}
        return {"metadata": meta, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}

    group = {"size": size, "leaderTemplate": template(1, labels), "workerTemplate": template(2, {})}
    return {
        "apiVersion": API_VERSION,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 1, "leaderWorkerTemplate": group},
    }
