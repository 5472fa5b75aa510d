"""A kind cluster of our own, and how tests look into it."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from servingpool_lab.api_client import ApiClient, ApiError, Manifests

from .shell import run, succeeds
from .waiting import eventually

FOLDER = Path(__file__).parent / "kind"
LOCAL_NODE_IMAGE = "kindest/node:local"
LOADED = "/var/lib/e2e-images"
"""On the node: the ids of the images that were brought."""
AUDIT_LOG = "/var/log/kubernetes/audit.log"


class Cluster:
    """One node. Made with `create`, gone with `delete`."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name, self.kubeconfig = name, kubeconfig
        self.container = f"{name}-control-plane"
        self._admin: ApiClient | None = None

    @property
    def client(self) -> ApiClient:
        """Requests as cluster-admin."""
        if self._admin is None:
            self._admin = ApiClient.of(self.kubeconfig)
        return self._admin

    def exists(self) -> bool:
        """Whether kind knows it."""
        return self.name in run("kind", "get", "clusters").split()

    def create(self) -> None:
        """Create it and wait until its node is ready and its DNS answers."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        config, image = _configuration(), _node_image()
        command = ["kind", "create", "cluster", f"--name={self.name}", f"--kubeconfig={self.kubeconfig}", "--wait=300s"]
        run(*command, *image, "--config=-", stdin=yaml.safe_dump(config, sort_keys=False))
        self._admin = None
        # Its image is not in a local node image, and no test needs a volume.
        self.client.delete("/api/v1/namespaces/local-path-storage")
        # One is enough for one node, and its request is room for six engines.
        self.client.patch("/apis/apps/v1/namespaces/kube-system/deployments/coredns/scale", {"spec": {"replicas": 1}})
        eventually(lambda: self._available("kube-system", "coredns"), 240, "cluster DNS")

    def delete(self) -> None:
        """Delete it. Safe to call where there is none."""
        run("kind", "delete", "cluster", f"--name={self.name}", f"--kubeconfig={self.kubeconfig}")

    def connect(self) -> None:
        """Get the credentials of a cluster that exists."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        run("kind", "export", "kubeconfig", f"--name={self.name}", f"--kubeconfig={self.kubeconfig}")

    def load(self, images: Iterable[str]) -> None:
        """Bring local images onto the node, except those that a run before this one brought."""
        loaded = self.node("sh", "-c", f"touch {LOADED}; cat {LOADED}").split()
        missing = {image: id_ for image in images if (id_ := image_id(image)) not in loaded}
        if missing:
            # Seconds; that of real engines has 6 GB.
            run("kind", "load", "docker-image", f"--name={self.name}", *missing, seconds=1200)
            self.node("sh", "-c", f"echo {' '.join(missing.values())} >> {LOADED}")

    def node(self, *command: str, seconds: float = 60.0) -> str:
        """Standard output of a command on the node."""
        return run("docker", "exec", self.container, *command, seconds=seconds)

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 120.0) -> str:
        """Standard output of the node's own kubectl, as cluster-admin: nobody needs one on their machine."""
        interactive = ["--interactive"] if stdin is not None else []
        command = ["docker", "exec", *interactive, self.container, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"]
        return run(*command, *arguments, stdin=stdin, seconds=seconds)

    def apply(self, manifests: Manifests) -> list[dict[str, Any]]:
        """Server-side apply, see `ApiClient.apply`."""
        return self.client.apply(manifests)

    def namespace(self, name: str) -> str:
        """A namespace, ready for pods; made if there is none."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(lambda: self.found(account) is not None, 60, account)
        return name

    def found(self, path: str) -> dict[str, Any] | None:
        """The object at `path`; None where there is none."""
        try:
            return self.client.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def gone(self, path: str, seconds: float = 120.0) -> None:
        """Delete what is at `path`, if anything, and wait until it is gone."""
        if self.found(path) is not None:
            self.client.delete(path)
            eventually(lambda: self.found(path) is None, seconds, f"{path} gone")

    def deployment(self, namespace: str, name: str) -> dict[str, Any]:
        """A Deployment as the API server has it."""
        return self.client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")

    def replicas(self, namespace: str, name: str) -> int:
        """What a Deployment's spec asks for."""
        return int(self.deployment(namespace, name)["spec"]["replicas"])

    def ready(self, namespace: str, name: str) -> int:
        """Ready replicas of a Deployment."""
        return int(self.deployment(namespace, name)["status"].get("readyReplicas", 0))

    def wait_serving(self, namespace: str, name: str, replicas: int = 1, seconds: float = 180.0) -> None:
        """Until so many replicas are ready, and connections to the Service of the same name reach them."""
        eventually(lambda: self.ready(namespace, name) >= replicas, seconds, f"{namespace}/{name} serves")
        address = self.client.get(f"/api/v1/namespaces/{namespace}/services/{name}")["spec"]["clusterIP"]
        # kube-proxy's rules come a moment later; until then a connection is refused, or lost for two minutes.
        eventually(lambda: self._open(address), 60, f"the Service of {namespace}/{name}")

    def _open(self, address: str) -> bool:
        return succeeds(
            "docker", "exec", self.container, "curl", "--silent", "--max-time", "2", f"http://{address}:8000/health"
        )

    def taint(self, *taints: Mapping[str, str]) -> None:
        """What its node has from now on; none takes them all away. What runs there stays."""
        self.client.patch(f"/api/v1/nodes/{self.container}", {"spec": {"taints": list(taints)}})

    def pods(self, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """Pods, those that are being deleted included."""
        query = f"?labelSelector={urllib.parse.quote(selector)}" if selector else ""
        return self.client.items(f"/api/v1/namespaces/{namespace}/pods{query}")

    def crash(self, namespace: str, pod: str) -> None:
        """SIGKILL to a pod's one container, as the kernel does it when memory is out."""
        [status] = self.client.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["status"]["containerStatuses"]
        container = status["containerID"].removeprefix("containerd://")
        self.node("ctr", "--namespace=k8s.io", "task", "kill", "--signal=SIGKILL", container)

    def events(self, namespace: str, name: str, reason: str) -> list[dict[str, Any]]:
        """Events of that reason on the object of that name."""
        found = self.client.items(f"/api/v1/namespaces/{namespace}/events")
        return [one for one in found if (one["involvedObject"]["name"], one["reason"]) == (name, reason)]

    def logs(self, namespace: str, pod: str, *, previous: bool = False) -> str:
        """A pod's log; of the container before the last restart with `previous`."""
        return self.client.text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log?previous={str(previous).lower()}")

    def _available(self, namespace: str, name: str) -> bool:
        conditions = self.deployment(namespace, name).get("status", {}).get("conditions", [])
        return any(one["type"] == "Available" and one["status"] == "True" for one in conditions)


class FrozenApiServer:
    """Within it the API server hangs: it takes connections and answers none."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pid = ""

    def __enter__(self) -> Self:
        self._pid = self._cluster.node("pidof", "-s", "kube-apiserver").strip()
        self._cluster.node("kill", "-STOP", self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.node("kill", "-CONT", self._pid)


def seconds_since(started: float) -> float:
    """Of a monotonic clock, to a tenth."""
    return round(time.monotonic() - started, 1)


def _configuration() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((FOLDER / "cluster.yaml").read_text())
    mount = {"hostPath": str(FOLDER), "containerPath": "/e2e", "readOnly": True}
    config["nodes"][0]["extraMounts"] = [mount]
    if _has_local_node_image():
        config |= yaml.safe_load((FOLDER / "local-node.yaml").read_text())
    return config


def _node_image() -> list[str]:
    return [f"--image={LOCAL_NODE_IMAGE}"] if _has_local_node_image() else []


def _has_local_node_image() -> bool:
    return succeeds("docker", "image", "inspect", LOCAL_NODE_IMAGE)


def image_id(image: str) -> str:
    """By its content."""
    return run("docker", "image", "inspect", "--format={{.Id}}", image).strip()
