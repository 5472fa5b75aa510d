"""One real control plane and one real Prometheus for all integration tests of a session."""

import contextlib
import functools
import http.server
import re
import threading
import uuid
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from servingpool_lab import audit
from servingpool_lab.api_client import ApiError
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import Cluster, Traffic, install

PodMetrics = dict[tuple[str, str], str]
UNAUTHORIZED = "401 Unauthorized"
"""A page that is answered with this status."""
HERE = Path(__file__).parent
LONG = {
    "test_emulator.py",
    "test_engines_scaled.py",
    "test_faults.py",
    "test_lab.py",
    "test_operator.py",
    "test_other_kinds.py",
    "test_roles.py",
    "test_several_targets.py",
    "test_zero.py",
}
"""Over a minute each. They begin first, so that none is left alone at the end."""
STORIES = {"test_handover.py", "test_leader.py", "test_operator.py", "test_zero.py"}
"""One operator process, or two, for the whole module: what a test does to it is what the next one finds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stories as they are written, and modules of ours among the others': ours wait, the others compute."""
    ours, others = (
        modules(item for item in items if HERE in item.path.parents),
        modules(item for item in items if HERE not in item.path.parents),
    )
    ours.sort(key=lambda module: (module[0].path.name not in LONG, module[0].path.name))
    for module in ours:
        if module[0].path.name in STORIES:
            module.sort(key=lambda item: item.location[1] or 0)
    # Each with its place between 0 and 1.
    placed = [(index / len(some), module) for some in (ours, others) for index, module in enumerate(some)]
    items[:] = [item for _, module in sorted(placed, key=itemgetter(0)) for item in module]


def modules(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests of each file, in the order that they are given in."""
    found: dict[Path, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(item.path, []).append(item)
    return list(found.values())


@pytest.fixture(scope="session")
def binaries() -> dict[str, Path]:
    # Minutes the first time: `python -m servingpool_lab.binaries` does it ahead of a test run.
    return ensure_binaries()


@pytest.fixture(scope="session")
def control_plane(binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with the fake node gpu-0. Pods that do not say load for two seconds. It writes down who scales."""
    directory = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(
        directory,
        binaries=binaries,
        default_load_seconds=2.0,
        default_load_jitter_seconds=0.0,
        flags={
            "kube-apiserver": audit.flags(directory),
            "kube-controller-manager": ["--horizontal-pod-autoscaler-sync-period=1s"],
        },
    ) as plane:
        plane.add_gpu_node("gpu-0", gpus=8)
        yield plane


class _MetricsHandler(http.server.BaseHTTPRequestHandler):
    def __init__(self, texts: PodMetrics, *arguments: Any) -> None:
        self._texts = texts
        super().__init__(*arguments)

    def do_GET(self) -> None:
        match = re.fullmatch(r"/pods/([^/]+)/([^/]+)/metrics", self.path)
        text = self._texts.get((match[1], match[2])) if match else None
        self.send_response(404 if text is None else 401 if text == UNAUTHORIZED else 200)
        self.send_header("Content-Type", "text/html" if (text or "").startswith("<") else "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_: Any) -> None:
        """Scrapes are no news."""


@pytest.fixture(scope="session")
def pod_metrics() -> PodMetrics:
    """What each pod, by namespace and name, exposes. Tests write, Prometheus reads."""
    return {}


@pytest.fixture(scope="session")
def metrics_target(pod_metrics: PodMetrics) -> Iterator[str]:
    """host:port of the one server that speaks for every pod."""
    port = free_ports(1)[0]
    handler = functools.partial(_MetricsHandler, pod_metrics)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def prometheus(
    control_plane: ControlPlane,
    metrics_target: str,
    binaries: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    """Scrapes every ready pod at `metrics_target`, once a second."""
    with Prometheus(
        tmp_path_factory.mktemp("prometheus"),
        control_plane.viewer_kubeconfig("prometheus"),
        metrics_target,
        scrape_interval_seconds=1.0,
        binary=binaries["prometheus"],
    ) as server:
        yield server


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own."""
    with own_namespace(control_plane) as name:
        yield name


@pytest.fixture
def cluster(control_plane: ControlPlane, pod_metrics: PodMetrics, namespace: str) -> Iterator[Cluster]:
    """The test's own namespace under traffic, in a cluster in which the operator may start."""
    install(control_plane, namespace)
    with Traffic(control_plane, pod_metrics) as traffic:
        yield Cluster(control_plane, traffic, namespace)


@contextlib.contextmanager
def own_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace. When it ends, the GPUs of its pods are free again."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_until(lambda: _exists(control_plane, account), 60, account)
    yield name
    control_plane.client.delete(f"/api/v1/namespaces/{name}")
    wait_until(lambda: not _kill_pods(control_plane, name), 30, f"{name} without pods")


def _exists(control_plane: ControlPlane, path: str) -> bool:
    try:
        control_plane.client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def _kill_pods(control_plane: ControlPlane, namespace: str) -> list[str]:
    """Delete all pods without grace; returns those there were."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [pod["metadata"]["name"] for pod in control_plane.client.items(path)]
    for name in names:
        with contextlib.suppress(ApiError):  # gone meanwhile
            control_plane.client.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
    return names
