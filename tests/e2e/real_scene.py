"""Real engines behind a real `vllm-router`, as Deployments: those of the sample, with another program in them."""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import Cluster
from .engines import APP, PORT, TOLERATIONS, Manifest
from .scenes import Scene
from .shell import run
from .waiting import eventually

ROUTER = "router"
ROUTER_METRICS = 29000
NODE_PORT = 30800
"""Of the router: the load generator runs outside the cluster, as clients do."""


@dataclass
class RealScene(Scene):
    """A scene whose pods run a real engine, and whose clients ask a router that finds these pods by the API server."""

    image: str = ""
    """Has the engine, its model and the router."""
    policy: str = "power_of_two"
    """How the router chooses an engine."""
    router_options: tuple[str, ...] = ()
    """Further ones of the router."""

    def manifests(self) -> list[Manifest]:
        """The sample's Deployment with probes and drain as they are there; its Service; the router."""
        deployment, service = super().manifests()
        pod = deployment["spec"]["template"]["spec"]
        pod["containers"][0]["image"] = self.image
        pod["containers"][0]["startupProbe"]["periodSeconds"] = 5
        self.put_engine(pod)
        return [deployment, service, *self._router()]

    def put_engine(self, pod: Manifest) -> None:
        """Put the engine's program into the sample's pod."""
        raise NotImplementedError

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
            "image": self.image,
            "command": ["python3", "-m", "vllm_router.launch_router", "--host=0.0.0.0", f"--port={PORT}"],
            "args": [
                *(f"--policy={self.policy}", "--service-discovery", "--selector", f"{APP}={self.name}"),
                *(f"--service-discovery-port={PORT}", f"--service-discovery-namespace={self.name}"),
                *("--prometheus-host=0.0.0.0", f"--prometheus-port={ROUTER_METRICS}", *self.router_options),
            ],
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        }
        pod = {
            "serviceAccountName": ROUTER,
            "terminationGracePeriodSeconds": 2,
            "tolerations": TOLERATIONS,
            "containers": [container],
        }
        scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": f"{ROUTER_METRICS}"}
        template = {"metadata": {"labels": labels, "annotations": scraped}, "spec": pod}
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
