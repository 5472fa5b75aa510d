"""Real `llama-server` pods: the sample's, with a small model of random weights in their image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .engines import PORT, Manifest
from .real_scene import ROUTER, RealScene

IMAGE = "servingpool-real-llamacpp:e2e"
CPU = "350m"
"""What one replica may use of the machine's two cores: its GPU. It serves about one request of 80 tokens a second."""
SLOTS, SLOT_TOKENS = 4, 512
PRE_STOP = 20
"""Seconds. On SIGTERM llama-server cuts what it serves, so it gets SIGTERM after the longest answer."""


@dataclass
class LlamaScene(RealScene):
    """Its pods run llama-server, whose requests the router counts."""

    image: str = IMAGE
    spec: Mapping[str, Any] = field(
        default_factory=lambda: {
            "engine": "llamacpp",
            "metrics": {"gateway": {"name": "vllm-router", "workload": ROUTER}},
        }
    )

    def put_engine(self, pod: Manifest) -> None:
        """In place of the sample's container's program."""
        pod["terminationGracePeriodSeconds"] = PRE_STOP + 15
        pod["containers"][0] |= {
            "command": ["/opt/llama-server", "--model", "/model.gguf", "--metrics", "--no-webui"],
            "args": [
                # It takes no option with a `=`.
                *("--alias", self.name, "--host", "0.0.0.0", "--port", f"{PORT}"),
                # Its cache of prompts grows to 8 GiB by default.
                *("--threads", "1", "--threads-batch", "1", "--cache-ram", "0"),
                *("--parallel", f"{SLOTS}", "--ctx-size", f"{SLOTS * SLOT_TOKENS}"),
            ],
            "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP}}},
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": CPU, "memory": "1Gi"}},
        }
