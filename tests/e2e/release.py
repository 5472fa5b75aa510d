"""The operator, installed with its own chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from servingpool.adapters.cluster.objects import unix

from . import prometheus
from .cluster import Cluster, image_id
from .helm import Helm
from .waiting import eventually

CHART = Path(__file__).parents[2] / "charts" / "servingpool-operator"
RELEASE = "servingpool"
NAMESPACE = "servingpool-system"
TWINS = "twins"
"""Release and namespace of two operators without election, see test_operator_loss."""
FULL_NAME = f"{RELEASE}-servingpool-operator"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{FULL_NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{FULL_NAME}"
PODS = "app.kubernetes.io/name=servingpool-operator"


class OperatorRelease:
    """Two replicas with a Lease, as by default; only the interval is shorter, so that scenarios are."""

    def __init__(self, cluster: Cluster, helm: Helm, image: str) -> None:
        self._cluster, self._helm = cluster, helm
        self._gone: list[str] = []
        repository, _, tag = image.rpartition(":")
        self._values: dict[str, Any] = {
            "image": {"repository": repository, "tag": tag},
            # On a cluster that was kept, a new image comes under the tag of the old one.
            "podAnnotations": {"image-id": image_id(image)},
            "interval": "5s",
            "backends": [{"name": "default", "url": prometheus.URL, "namespaces": ["*"]}],
            "prices": {"hosted": {"input": 0.5, "output": 1.5, "noted": "2026-11-01"}},
        }

    def install(self, *, chart: Path = CHART, wait: bool = True, **values: Any) -> None:
        """Install it, or upgrade it, with `values` beside the usual ones."""
        self._helm.install(RELEASE, chart, NAMESPACE, {**self._values, **values}, wait=wait)

    def rollback(self) -> None:
        """To the release before."""
        self._helm("rollback", RELEASE, f"--namespace={NAMESPACE}", "--wait", "--timeout=300s")

    def uninstall(self) -> None:
        """What its pods have said so far is kept."""
        self._gone.append(self.logs())
        self._helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait", "--timeout=300s")

    def pods(self) -> list[str]:
        """Names of the operator's pods that are not being deleted."""
        found = self._cluster.pods(NAMESPACE, PODS)
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def holder(self) -> str:
        """Who holds the Lease: a process, by a name that begins with its pod's; empty where none does."""
        return str(self._cluster.client.get(LEASE)["spec"].get("holderIdentity") or "")

    def leader(self) -> str:
        """The pod of the process that holds the Lease, once there is one."""
        return eventually(
            lambda: next((pod for pod in self.pods() if self.holder().startswith(pod)), ""), 60, "a leader"
        )

    def wait_other_holder(self, before: str, seconds: float) -> str:
        """The process that holds the Lease after another one."""

        def found() -> str:
            holder = self.holder()
            return "" if holder == before else holder

        return eventually(found, seconds, f"a leader after {before}", every=0.1)

    def crash(self, pod: str) -> None:
        """SIGKILL to its container: nothing is given back."""
        self._cluster.crash(NAMESPACE, pod)

    def delete(self, pod: str) -> None:
        """As a drain of its node would."""
        self._cluster.client.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")

    def start_up(self) -> tuple[float, float | None]:
        """Seconds from the start of a container until its pod was Ready, at the longest, and until it led.

        To a second, as Kubernetes notes them. None where the leader took the Lease over from another one.
        """
        found = {pod["metadata"]["name"]: pod for pod in self._cluster.pods(NAMESPACE, PODS)}
        started = {name: unix(_running(pod)["startedAt"]) for name, pod in found.items()}
        ready = [unix(_ready(pod)["lastTransitionTime"]) - started[name] for name, pod in found.items()]
        lease = self._cluster.client.get(LEASE)["spec"]
        led = None if lease["leaseTransitions"] else unix(lease["acquireTime"]) - started[self.leader()]
        return max(ready), led

    def scale(self, replicas: int) -> None:
        """How many operators run, none included; waits until they do."""
        where = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{FULL_NAME}/scale"
        self._cluster.client.patch(where, {"spec": {"replicas": replicas}})
        eventually(lambda: len(self._cluster.pods(NAMESPACE, PODS)) == replicas, 90, f"{replicas} operators")
        eventually(lambda: self._cluster.ready(NAMESPACE, FULL_NAME) == replicas, 90, f"{replicas} operators ready")

    def restarts(self) -> int:
        """Of all the operator's containers."""
        return sum(
            status["restartCount"]
            for pod in self._cluster.pods(NAMESPACE, PODS)
            for status in pod["status"].get("containerStatuses", [])
        )

    def wait_up(self, seconds: float = 120.0) -> None:
        """Until both replicas run and are ready, for the next scenario."""
        eventually(lambda: self._cluster.ready(NAMESPACE, FULL_NAME) == 2, seconds, "two operators ready")

    def says(self, text: str) -> bool:
        """One of its pods of now does, in its log."""
        return any(text in self._cluster.logs(NAMESPACE, pod) for pod in self.pods())

    def logs(self) -> str:
        """Of all its pods, for what failed."""
        there = [f"--- {pod}\n{self._cluster.logs(NAMESPACE, pod)}" for pod in self.pods()]
        return "\n".join([*self._gone, *there])


def _running(pod: dict[str, Any]) -> dict[str, Any]:
    [status] = pod["status"]["containerStatuses"]
    running: dict[str, Any] = status["state"]["running"]
    return running


def _ready(pod: dict[str, Any]) -> dict[str, Any]:
    [condition] = [one for one in pod["status"]["conditions"] if one["type"] == "Ready"]
    return dict(condition)
