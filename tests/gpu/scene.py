"""Real vLLM on this machine's GPU, or on its CPUs: the sample's Deployment with a small model of random weights."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from servingpool_lab.kwok import LOAD_JITTER_SECONDS_ANNOTATION, LOAD_SECONDS_ANNOTATION, NEVER_READY_ANNOTATION

from ..e2e.cluster import Cluster  # noqa: TID252, tests are no package of an installed name
from ..e2e.engines import APP, PORT, Manifest  # noqa: TID252
from ..e2e.real_scene import RealScene  # noqa: TID252
from ..e2e.real_vllm import FLAGS, ONE_PROCESS  # noqa: TID252
from ..vllm.engine import ENVIRONMENT, options_of  # noqa: TID252

SEQUENCES = 4
"""Requests that an engine runs at a time. It is what an engine can take: several of these leave the GPU idle most of the
time, so each one more adds as much as the first had."""


@dataclass(frozen=True)
class Machine:
    """What the engines run on, how many of them fit, and the load."""

    name: str
    needed: int
    """Replicas that its load needs."""
    most: int
    cores: float | None
    """How much of a core an engine may use."""
    output: int
    """Tokens of an answer."""
    steps: str
    """Load as multiples of what one engine takes x seconds. It grows slowly: after a surge of which most was late, the
    operator keeps a spare replica for longer than this lane lasts."""
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


CPUS = Machine(
    name="CPUs",
    needed=2,
    most=3,
    # It is the engine's GPU: without a limit two would share what one has alone. Router, clients and control plane need
    # more than a core for the load of engines of 0.4 each.
    cores=0.2,
    output=60,
    # Other work on these cores makes an engine half or twice as fast as when it was measured.
    steps="0.4x60,0.6x60,0.8x60,1x60,1.2x60,1.4x90,0.2x120",
    # Two of the model's eight layers: so the sequences, not the CPU, limit an engine here too.
    options=('--hf-overrides={"num_hidden_layers": 2}',),
    environment=tuple(ONE_PROCESS.items()),
)
GPU_OPTIONS = (
    "--dtype=bfloat16",
    # Several engines share the GPU's memory: a tenth for each. Another option sets the size of the KV cache.
    "--gpu-memory-utilization=0.1",
)
GPU_ENVIRONMENT = (("VLLM_USE_FLASHINFER_SAMPLER", "0"),)
"""It is compiled at its first use, which needs nvcc and a minute."""


def machine() -> Machine:
    """The GPU, where nvidia-smi knows one."""
    program = shutil.which("nvidia-smi")
    query = [program or "false", "--query-gpu=name", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    if answer.returncode != 0 or not answer.stdout.strip():
        return CPUS
    return Machine(
        name=answer.stdout.strip().splitlines()[0],
        needed=4,
        most=4,
        cores=None,
        output=400,
        steps="0.5x50,0.8x30,1.1x30,1.4x30,1.7x30,2x30,2.3x30,2.6x30,2.9x40,0.2x100",
        options=GPU_OPTIONS,
        environment=GPU_ENVIRONMENT,
    )


@dataclass
class ProcessScene(RealScene):
    """Its pods are processes of this machine."""

    machine: Machine = CPUS
    model: Path = Path()
    router: str = ""
    """URL of the router."""

    def manifests(self) -> list[Manifest]:
        """The Deployment: nothing asks a Service, and the router is a process."""
        [deployment, *_] = super().manifests()
        deployment["spec"]["template"]["metadata"]["annotations"] |= {
            LOAD_SECONDS_ANNOTATION: "0",
            LOAD_JITTER_SECONDS_ANNOTATION: "0",
            NEVER_READY_ANNOTATION: "true",  # until its engine answers
        }
        return [deployment]

    @property
    def container(self) -> Manifest:
        """The container of the engines' pods."""
        found: Manifest = self.manifests()[0]["spec"]["template"]["spec"]["containers"][0]
        return found

    @property
    def selector(self) -> str:
        """Label selector of the engines' pods."""
        return f"{APP}={self.name}"

    def put_engine(self, pod: Manifest) -> None:
        """vLLM, as an administrator of this machine would start it."""
        environment = ENVIRONMENT | dict(self.machine.environment)
        pod["containers"][0] |= {
            "image": "vllm/vllm-openai",
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server", f"--model={self.model}"],
            "args": [*options_of(self.name, self.max_num_seqs), f"--port={PORT}", *FLAGS, *self.machine.options],
            "env": [{"name": name, "value": value} for name, value in environment.items()],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }

    def url(self, cluster: Cluster) -> str:
        """URL of the router."""
        return self.router
