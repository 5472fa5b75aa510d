"""The stage on which attacks are played: a real control plane, a real Prometheus, a victim under load, a tenant."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import ssl
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.operators import ACCOUNT, NAMESPACE, Service, Traffic, deployment, install, serving_pool

from servingpool.adapters.prometheus import page
from servingpool.api.group import API_VERSION, PLURAL
from servingpool_lab.api_client import ApiClient, ApiError
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, open_local, wait_until
from servingpool_lab.prometheus import Prometheus

INTERVAL = 15.0
"""Seconds, as the chart's default."""
SCRAPE = 5.0
VICTIM = "victim"
"""Namespace, Deployment, pool and model."""
RATE = 25.0
"""Requests a second of the victim: work for 2.2 replicas."""
AT_ONCE = 16
POOLS = f"/apis/{API_VERSION}/namespaces/{{}}/{PLURAL}"
WATCHER = Path(__file__).with_name("attacks_operator.py")


@dataclass
class Tenant:
    """One namespace, and a client with the rights of `edit` in it and no others."""

    namespace: str
    client: ApiClient
    traffic: Traffic

    def create(self, path: str, manifests: Iterable[dict[str, Any]], seconds: float = 60.0) -> None:
        """Create objects at a path, `{}` of which is the namespace."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            where = path.format(self.namespace)
            list(threads.map(lambda one: self.client.request("POST", where, one, timeout_seconds=seconds), manifests))

    def pool(self, name: str, **spec: Any) -> None:
        """A ServingPool."""
        self.create(POOLS, [serving_pool(self.namespace, name, **{"behavior": {}, **spec})])

    def serve(self, name: str) -> None:
        """A Deployment whose pods are scraped. Its model has its name."""
        self.create("/apis/apps/v1/namespaces/{}/deployments", [deployment(self.namespace, name, 1)])
        self.traffic.services[self.namespace, name] = Service(name, 0.5)


@dataclass
class Stage:
    """What attacks act on."""

    directory: Path
    plane: ControlPlane
    traffic: Traffic
    prometheus: Prometheus
    pages: dict[tuple[str, str], str]
    more: dict[str, str] = field(default_factory=dict)
    """What each page of a namespace has besides the engine's figures."""

    def tenant(self, name: str) -> Tenant:
        """A new namespace with an account of its own."""
        admin = self.plane.client
        self.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda: exists(admin, account), 60, account)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": name}
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": role}
        self.plane.apply({**binding, "metadata": {"name": "edit", "namespace": name}, "subjects": [subject]})
        token = admin.create(f"{account}/token", {"spec": {"expirationSeconds": 7200}})["status"]["token"]
        trusted = ssl.create_default_context(cafile=str(self.plane.directory / "ca.crt"))
        return Tenant(name, ApiClient(self.plane.url, trusted, token), self.traffic)

    def leave(self, tenant: Tenant) -> None:
        """Undo what an attack did, as far as others would notice."""
        admin, name = self.plane.client, tenant.namespace
        self.more.pop(name, None)
        for key in [key for key in self.traffic.services if key[0] == name]:
            del self.traffic.services[key]
        with contextlib.suppress(ApiError, OSError):  # thousands take longer than a request may; the namespace goes too
            admin.request("DELETE", POOLS.format(name), timeout_seconds=120.0)
        admin.delete(f"/api/v1/namespaces/{name}")

    def replicas(self) -> int:
        """Those that are ordered of the victim."""
        found = self.plane.client.get(f"/apis/apps/v1/namespaces/{VICTIM}/deployments/{VICTIM}")
        return int(found["spec"].get("replicas", 0))

    def conditions(self, namespace: str, name: str) -> dict[str, str]:
        """Status, reason and message of each, in one text."""
        found = self.plane.client.get(f"{POOLS.format(namespace)}/{name}").get("status", {}).get("conditions", [])
        return {one["type"]: f"{one['status']} {one['reason']}: {one['message']}" for one in found}

    @contextlib.contextmanager
    def operator(self, name: str) -> Iterator[Operator]:
        """`servingpool run` with its own service account, until the context ends."""
        made = Operator(self, name)
        made.process.start()
        try:
            yield made
        finally:
            made.process.stop()


class Operator:
    """The process, and what it says of itself."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.health, metrics = free_ports(2)
        self.page = f"http://127.0.0.1:{metrics}/metrics"
        self.steps, config = (stage.directory / f"{name}.{what}" for what in ("steps", "json"))
        self.steps.write_text("")
        backends = [
            {"name": "default", "url": stage.prometheus.url},
        ]
        settings = {"interval": f"{INTERVAL:g}s", "healthPort": self.health, "metricsPort": metrics}
        config.write_text(json.dumps({**settings, "backends": backends}))
        account = stage.plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        command = (sys.executable, WATCHER, self.steps, "run")
        self.process = SupervisedProcess(
            name,
            [*map(str, command), f"--config={config}", "--log-format=text", f"--kubeconfig={account}"],
            stage.directory / f"{name}.log",
            environment={**os.environ, "POD_NAMESPACE": NAMESPACE, "PYTHONUNBUFFERED": "1"},
        )

    def samples(self, namespace: str, pool: str) -> dict[str, float]:
        """The operator's figures of one pool, by name; conditions that it has by type and status."""
        with open_local(self.page, 30.0) as answer:
            text = answer.read().decode()
        # Of thousands of pools only these lines are parsed: the operator shares the processor with us.
        own = [line for line in text.splitlines() if f'namespace="{namespace}"' in line and f'pool="{pool}"' in line]
        samples = page.parse("\n".join([*own, ""])) if own else []
        return {
            " ".join((one.name, *(one.labels[each] for each in ("type", "status") if each in one.labels))): one.value
            for one in samples
        }

    def memory(self) -> float:
        """MiB: the most that it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def exists(client: ApiClient, path: str) -> bool:
    """Whether an object is there."""
    try:
        client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


@contextlib.contextmanager
def stage(directory: Path) -> Iterator[Stage]:
    """Everything, with a victim that has served for a while."""
    pages: dict[tuple[str, str], str] = {}
    flags = {"kube-apiserver": ["--max-requests-inflight=800", "--max-mutating-requests-inflight=400"]}
    with contextlib.ExitStack() as until:
        plane = until.enter_context(ControlPlane(directory, default_load_seconds=2.0, flags=flags))
        for number in range(2):
            plane.add_gpu_node(f"gpu-{number}", gpus=8)
        install(plane, VICTIM)
        server: dict[str, Any] = {}
        target = _serve(_Pages, of=server).removeprefix("http://")
        viewer = plane.viewer_kubeconfig("prometheus")
        prometheus = Prometheus(directory / "prometheus", viewer, target, scrape_interval_seconds=SCRAPE)
        traffic = until.enter_context(Traffic(plane, pages))
        made = Stage(directory, plane, traffic, until.enter_context(prometheus), pages)
        server["stage"] = made
        victim = deployment(VICTIM, VICTIM, 4)
        victim["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        plane.apply(victim)
        traffic.services[VICTIM, VICTIM] = Service(VICTIM, RATE)
        plane.apply(serving_pool(VICTIM, VICTIM, behavior={}, targets=[{"name": VICTIM, "min": 1, "max": 8}]))
        yield made


def _serve(handler: type[http.server.BaseHTTPRequestHandler], **given: Any) -> str:
    """Answer by this handler, in threads; its URL."""
    made = type(handler.__name__, (handler,), given)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), made)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


class _Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Requests are no news."""

    def send(self, body: bytes, kind: str, *, packed: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)


class _Pages(_Quiet):
    """The page of every pod."""

    of: dict[str, Any]

    def do_GET(self) -> None:
        _, _, namespace, pod, _ = self.path.split("/")
        found: Stage = self.of["stage"]
        text = found.pages.get((namespace, pod), "")
        self.send((text + found.more.get(namespace, "")).encode(), "text/plain; version=0.0.4")
