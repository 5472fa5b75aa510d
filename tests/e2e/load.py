"""The load generator's pod, and how tests talk to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from .engines import IMAGE, Manifest
from .waiting import eventually

NAME = "load-generator"
PORT = 8080


class Kubectl(Protocol):
    """kubectl as cluster-admin; raises where it fails."""

    def __call__(self, *arguments: str, stdin: str | None = None) -> str: ...


def load_generator_manifests(namespace: str) -> list[Manifest]:
    """Pod and Service."""
    labels = {"app.kubernetes.io/name": NAME}
    metadata = {"name": NAME, "namespace": namespace, "labels": labels}
    container = {
        "name": NAME,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "servingpool_lab.load_generator", f"--port={PORT}"],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 2,
        # A second process would count its courses from 0 again, and answer for those of the first.
        "restartPolicy": "Never",
        "containers": [container],
    }
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
        },
    ]


@dataclass(frozen=True)
class Course:
    """Traffic under way or over."""

    number: int
    begun_at: float
    """Unix seconds, by the load generator's clock."""
    duration: float
    """Seconds."""
    planned: int
    """Requests."""


class LoadGenerator:
    """By the API server's proxy: no port need be open. Its traffic goes on whatever becomes of the API server."""

    def __init__(self, kubectl: Kubectl, namespace: str = "load") -> None:
        self._kubectl = kubectl
        self._root = f"/api/v1/namespaces/{namespace}/services/{NAME}:{PORT}/proxy"

    def start(
        self, url: str, model: str, rates: str | None = None, *, prompt: int = 1500, output: int = 40, **more: Any
    ) -> Course:
        """Begin a course, such as `rates="2x120,6x180"`: 2 requests/s for 120 s, then 6 for 180.

        It begins when the Service answers: a pod is Ready a little before kube-proxy has its address.
        `more` are fields of `servingpool_lab.load_generator.traffic.Traffic`.
        """
        traffic = {"url": url, "model": model, "prompt_tokens": prompt, "output_tokens": output, "patience": 60, **more}
        if rates is not None:
            traffic["rates"] = rates
        state = self._post("traffic", traffic)
        return Course(state["course"], state["begun_at"], state["duration"], state["planned"])

    def stop(self, course: Course) -> None:
        """It sends no more; what is in flight goes on."""
        self._post(f"stop?course={course.number}", {})

    def end(self, course: Course, **bounds: float) -> dict[str, Any]:
        """Stop it; its figures, judged by `bounds` as in `summary`, once the last answer is there."""
        self.stop(course)
        return eventually(
            lambda: found if (found := self.summary(course, **bounds))["finished"] else {},
            120,
            f"the last answers of course {course.number}",
        )

    def summary(
        self,
        course: Course,
        *,
        ttft: float | None = None,
        tpot: float | None = None,
        begin: float | None = None,
        end: float | None = None,
    ) -> dict[str, Any]:
        """Figures of the requests scheduled in [begin, end) seconds of the course, judged by these bounds.

        Keys as in `servingpool_lab.load_generator.summary.summarise`, with `finished`, `now` and `in_flight`.
        """
        asked = {"course": course.number, "ttft": ttft, "tpot": tpot, "begin": begin, "end": end}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        found: dict[str, Any] = json.loads(self._kubectl("get", "--raw", f"{self._root}/summary?{query}"))
        return found

    def requests(self, course: Course) -> list[dict[str, Any]]:
        """Every request sent so far, as its client saw it."""
        lines = self._kubectl("get", "--raw", f"{self._root}/requests?course={course.number}")
        return [json.loads(line) for line in lines.splitlines()]

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._kubectl("create", "--raw", f"{self._root}/{path}", "--filename=-", stdin=json.dumps(body))
        found: dict[str, Any] = json.loads(answer)
        return found
