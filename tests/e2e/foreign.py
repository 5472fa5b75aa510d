"""An engine that nobody here wrote: `llm-d-inference-sim`, the public vLLM simulator, as a Deployment and a Service."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .engines import PORT, Manifest
from .scenes import Scene

BINARY = os.environ.get("E2E_FOREIGN_ENGINE", "")
"""Path of the simulator's static binary; empty skips what needs it."""
IMAGE = "servingpool-foreign:e2e"


@dataclass
class ForeignScene(Scene):
    """A scene whose pods run the simulator.

    `/health/ready` answers 200 `load_seconds` after the start of the process; `/health` does at once. Its TTFT histogram
    leaves the queue out. `arguments` are its flags besides these.
    """

    def manifests(self) -> list[Manifest]:
        """Deployment and Service, as a user would write them for an image without a shell."""
        labels = self.engine.labels
        metadata = {"name": self.name, "namespace": self.name, "labels": labels}
        container = {
            "name": "engine",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "args": [
                *self.arguments,
                f"--max-num-seqs={self.max_num_seqs}",
                f"--startup-duration={self.load_seconds:g}s",
                f"--model={self.name}",
                f"--port={PORT}",
                "--force-dummy-tokenizer",
            ],
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": {"httpGet": {"path": "/health/ready", "port": "http"}, "periodSeconds": 1},
            # It refuses requests from SIGTERM on, and gives those that it has 30 s.
            "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        }
        annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)}
        template = {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 45,
                "containers": [container],
            },
        }
        selector = {"matchLabels": labels}
        spec = {"replicas": self.found, "selector": selector, "template": template}
        ports = [{"name": "http", "port": PORT, "targetPort": "http"}]
        return [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": ports}},
        ]


def missing() -> str:
    """Why there is no simulator here, in words; empty where there is one."""
    if not BINARY:
        return "E2E_FOREIGN_ENGINE does not name the binary of llm-d-inference-sim"
    return "" if Path(BINARY).is_file() else f"E2E_FOREIGN_ENGINE: there is no file {BINARY}"
