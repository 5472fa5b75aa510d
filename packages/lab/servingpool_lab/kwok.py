"""The fake kubelet: which stages kwok plays, and nodes with GPUs that do not exist.

Annotations on a pod (so, in a Deployment's pod template):

- `servingpool.dev/load-seconds`: from container start to Ready, at least.
- `servingpool.dev/load-jitter-seconds`: added to it, uniform from zero.
- `servingpool.dev/drain-seconds`: from deletion to exit; the grace period bounds it and is the
  default.
- `servingpool.dev/never-ready: "true"`: keeps a pod unready, or makes a ready one unready.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOAD_SECONDS_ANNOTATION = "servingpool.dev/load-seconds"
LOAD_JITTER_SECONDS_ANNOTATION = "servingpool.dev/load-jitter-seconds"
DRAIN_SECONDS_ANNOTATION = "servingpool.dev/drain-seconds"
NEVER_READY_ANNOTATION = "servingpool.dev/never-ready"
GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Label of a node: its GPU model, as NVIDIA's device plugin sets it."""
APP_LABEL = "app.kubernetes.io/name"
"""Label of a pod: the name of its Deployment."""

_STAGES = Path(__file__).with_name("manifests") / "stages.yaml"


def app_of(pod: Mapping[str, Any]) -> str:
    """The name of a pod's Deployment; empty if it has none, or does not say."""
    app: str = (pod["metadata"].get("labels") or {}).get(APP_LABEL, "")
    return app


def write_stages(path: Path, default_load_seconds: float = 30.0, default_load_jitter_seconds: float = 5.0) -> Path:
    """Write kwok's configuration; the defaults hold for pods without the annotations.

    Raises:
        ValueError: a negative duration.
    """
    if min(default_load_seconds, default_load_jitter_seconds) < 0:
        raise ValueError("load times are not negative")
    stages = _STAGES.read_text()
    stages = stages.replace("LOAD_JITTER_SECONDS", f"{default_load_jitter_seconds:f}")
    stages = stages.replace("LOAD_SECONDS", f"{default_load_seconds:f}")
    path.write_text(stages)
    return path


def command(binary: Path, kubeconfig: Path, stages: Path, port: int) -> list[str]:
    """The command line of kwok; its health endpoint listens on loopback `port`."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--config={stages}",
        "--manage-all-nodes=true",
        "--cidr=10.244.0.0/16",
        "--node-ip=127.0.0.1",
        f"--server-address=127.0.0.1:{port}",
        # Without a lease the node goes NotReady after a minute, and every pod on it with it.
        "--node-lease-duration-seconds=40",
    ]


def gpu_node(
    name: str,
    gpus: int = 8,
    *,
    gpu_product: str = "NVIDIA-H200",
    cpu: str = "192",
    memory: str = "2Ti",
    pods: int = 250,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Node manifest with `gpus` GPUs to `ControlPlane.apply`.

    Raises:
        ValueError: `gpus` is negative.
    """
    if gpus < 0:
        raise ValueError(f"{gpus} GPUs")
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), GPU_RESOURCE: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                PRODUCT_LABEL: gpu_product,
                **(labels or {}),
            },
        },
        "status": {"capacity": dict(resources), "allocatable": dict(resources)},
    }
