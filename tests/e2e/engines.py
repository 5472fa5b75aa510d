"""The workload: the sample's vLLM Deployment and Service, with an emulated engine in its container."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SAMPLE = Path(__file__).parents[2] / "deploy" / "samples" / "vllm-deployment.yaml"
IMAGE = "servingpool-lab:e2e"
PORT = 8000
APP = "app.kubernetes.io/name"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
"""What keeps pods without a GPU off the nodes that have one."""
TOLERATIONS = [{"key": TAINT["key"], "operator": "Exists"}]
"""The engines tolerate it, as real ones have to."""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """A Deployment of emulated replicas and the Service before them. Seconds."""

    name: str
    namespace: str
    model: str
    replicas: int | None = 1
    """None leaves it to whoever scales."""
    drain: bool = True
    """As in the sample: preStop sleep, --shutdown-timeout, grace. Otherwise none of them, as in vLLM's own defaults."""
    shutdown_timeout: bool = True
    """Otherwise --shutdown-timeout alone is missing."""
    load_seconds: float = 10.0
    load_jitter: float = 0.2
    slower: float = 2.0
    """Every step takes so many times as long as on an L40S."""
    max_num_seqs: int = 256
    arguments: tuple[str, ...] = ()
    """Further ones of the engine."""
    annotations: tuple[tuple[str, str], ...] = ()
    """Further ones of the pods; another value makes a rolling update."""
    pre_stop: float | None = None
    """Other than the sample's, for tests that scale down by the hundred."""

    @property
    def url(self) -> str:
        """Of its Service."""
        return f"http://{self.name}.{self.namespace}:{PORT}"

    @property
    def labels(self) -> dict[str, str]:
        """Of its pods."""
        return {APP: self.name}


def engine_manifests(engine: Engine) -> list[Manifest]:
    """Deployment and Service."""
    deployment, service = yaml.safe_load_all(SAMPLE.read_text())
    metadata = {"name": engine.name, "namespace": engine.namespace, "labels": engine.labels}
    deployment["metadata"], service["metadata"] = metadata, metadata
    service["spec"]["selector"] = engine.labels
    spec = deployment["spec"]
    spec["selector"]["matchLabels"] = engine.labels
    if engine.replicas is not None:
        spec["replicas"] = engine.replicas
    template = spec["template"]
    template["metadata"] = {
        "labels": engine.labels,
        "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT), **dict(engine.annotations)},
    }
    template["spec"]["tolerations"] = TOLERATIONS
    _emulate(engine, template["spec"]["containers"][0])
    if engine.pre_stop is not None:
        template["spec"]["containers"][0]["lifecycle"]["preStop"] = {"sleep": {"seconds": int(engine.pre_stop)}}
    if not (engine.drain and engine.shutdown_timeout):
        _forget_shutdown_timeout(template["spec"])
    if not engine.drain:
        _forget_to_wait(template["spec"])
    return [deployment, service]


def _emulate(engine: Engine, container: Manifest) -> None:
    container["image"] = IMAGE
    container["imagePullPolicy"] = "IfNotPresent"
    container["args"] = [
        *(each for each in container["args"] if not each.startswith("--served-model-name")),
        f"--served-model-name={engine.model}",
        f"--max-num-seqs={engine.max_num_seqs}",
        f"--slower={engine.slower:g}",
        f"--load-seconds={engine.load_seconds:g}",
        f"--load-jitter={engine.load_jitter:g}",
        *engine.arguments,
    ]
    # No GPU on this node, and an emulated step costs next to no CPU. A node of two cores must hold seventy of them: that
    # many are ordered where a slow machine makes every pool of a whole run grow at once.
    container["resources"] = {"requests": {"cpu": "15m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    # Loading takes seconds here, not minutes.
    container["startupProbe"]["periodSeconds"] = 1


def _forget_shutdown_timeout(pod: Manifest) -> None:
    container = pod["containers"][0]
    container["args"] = [each for each in container["args"] if not each.startswith("--shutdown-timeout")]


def _forget_to_wait(pod: Manifest) -> None:
    del pod["containers"][0]["lifecycle"], pod["terminationGracePeriodSeconds"]
