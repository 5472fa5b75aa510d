"""The scene: two types of GPUs, one budget, three pools with their traffic and objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servingpool.api import duration
from servingpool.api.group import API_VERSION, KIND
from servingpool.api.spec import Behavior
from servingpool.decision.pool import Slo
from servingpool_lab import kwok
from servingpool_lab.workload import Engines, Manifest, engines, page_server
from servingpool_simulation.prices import price
from servingpool_simulation.traces import Trace, azure2023_code, azure2023_conv

GPUS, BUDGET = 16, "inference"
HOUR = 60.0
"""Minutes of a run at its own pace."""
ROUTER = "batch-router"
TIER = {"tier": BUDGET}
NODES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "h100": ("NVIDIA-H100-80GB-HBM3", (4,)),
    "a100": ("NVIDIA-A100-SXM4-80GB", (8, 8)),
}
"""Product, and the GPUs of each node, by GPU type. The H100 are too few for the peak of chat; all together exceed the
budget."""
SPREAD = 60.0
"""Seconds by which a copied request may come later than the one of the trace: copies must not come as one burst."""


@dataclass(frozen=True, slots=True)
class Target:
    """One Deployment: replicas of one GPU each."""

    name: str
    gpu: str
    initial: int
    least: int
    most: int

    @property
    def profile(self) -> str:
        """Step times of an 8B model on one such GPU, by their name in `servingpool_simulation.hardware`."""
        return f"{self.gpu}-8b-tp1"


@dataclass(frozen=True, slots=True)
class Traffic:
    """A recorded trace, several times over."""

    trace: Callable[[], Trace]
    times: int
    """Copies of each request, each up to `SPREAD` later."""
    offset: float = 0.0
    """Seconds into the trace at which the run begins; after its end the trace begins again."""
    windows: tuple[tuple[float, float], ...] = ((0.0, HOUR),)
    """Minutes of the hour in which requests come."""

    def drawn(self, pace: float = 1.0, seed: int = 0) -> Trace:
        """The requests of a run. At a pace of 4 the hour lasts 15 minutes and has a quarter of the requests."""
        trace, random = self.trace(), np.random.default_rng(seed)
        late = random.uniform(0.0, SPREAD, (self.times, len(trace)))
        once = ((trace.arrival - self.offset + late) % trace.duration).ravel()
        # The traces are up to three minutes shorter than an hour.
        at = np.concatenate((once, once + trace.duration))
        kept = random.random(at.size) < 1.0 / pace
        minute = at / 60.0
        kept &= np.logical_or.reduce([(begin <= minute) & (minute < end) for begin, end in self.windows])
        order = np.flatnonzero(kept)[np.argsort(at[kept], kind="stable")]
        prompt, output = (np.tile(column, 2 * self.times)[order] for column in (trace.prompt, trace.output))
        return Trace(trace.name, at[order] / pace, prompt, output, 60.0 * HOUR / pace)


@dataclass(frozen=True, slots=True)
class Pool:
    """A ServingPool with what it serves."""

    name: str
    priority: int
    slo: Slo
    targets: tuple[Target, ...]
    traffic: Traffic
    idle_after: float | None = None
    """Seconds without a request after which it goes to zero; None where it never does."""

    @property
    def initial(self) -> int:
        """Replicas at the start."""
        return sum(target.initial for target in self.targets)


POOLS = (
    Pool(
        "chat",
        9,
        Slo(1.0, 0.05, 0.95),
        (Target("chat-h100", "h100", 4, 1, 8), Target("chat-a100", "a100", 0, 0, 8)),
        Traffic(azure2023_conv, 12),
    ),
    # Ten minutes before its recording began, so that its busiest quarter meets that of chat.
    Pool(
        "code",
        5,
        Slo(5.0, 0.2, 0.95),
        (Target("code-a100", "a100", 3, 1, 10),),
        Traffic(azure2023_code, 3, 2835.0),
    ),
    Pool(
        "batch",
        1,
        Slo(5.0, 0.2, 0.9),
        (Target("batch-a100", "a100", 2, 0, 6),),
        Traffic(azure2023_conv, 3, windows=((0.0, 12.0), (24.0, 42.0))),
        idle_after=300.0,
    ),
)
TARGETS = {target.name: (pool, target) for pool in POOLS for target in pool.targets}


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a run goes by. At 1 the hour is an hour; a trial is faster, and its times are shorter."""

    minutes: float = HOUR

    @property
    def factor(self) -> float:
        """Seconds of the hour in a second."""
        return HOUR / self.minutes

    def seconds(self, hour: float, least: float = 0.0) -> float:
        """Seconds of the run for those of the hour; `least` is what the operator allows."""
        return max(least, hour / self.factor)

    @property
    def load(self) -> tuple[float, float]:
        """Seconds from a container's start to Ready, and how many more there may be."""
        return self.seconds(60.0), self.seconds(6.0)


def nodes() -> list[Manifest]:
    """Nodes of both types."""
    return [
        kwok.gpu_node(f"{gpu}-{number}", gpus, gpu_product=product)
        for gpu, (product, sizes) in NODES.items()
        for number, gpus in enumerate(sizes)
    ]


def deployments(pace: Pace) -> list[Manifest]:
    """What the pools scale, and the gateway's."""
    scaled = [
        engines(Engines(one.name, pool.name, 1, one.initial, *pace.load, gpu_product=NODES[one.gpu][0]))
        for pool, one in TARGETS.values()
    ]
    return [*scaled, page_server(ROUTER, "vllm-router")]


def budget() -> Manifest:
    """The GPUBudget of all three."""
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUBudget",
        "metadata": {"name": BUDGET},
        "spec": {"gpus": GPUS, "poolSelector": {"matchLabels": TIER}},
    }


def idle_after(pool: Pool, pace: Pace) -> dict[str, str]:
    """The field of `behavior` that lets a pool go to zero, where it does."""
    if pool.idle_after is None:
        return {}
    return {"idleAfter": duration.write(pace.seconds(pool.idle_after, least=60.0))}


def shorter(pace: Pace) -> dict[str, str]:
    """Fields of `behavior` of all pools that a trial shortens as it does the hour."""
    if pace.factor <= 1.0:
        return {}
    usual = Behavior()
    times = {
        "calibration": usual.calibration,
        "scaleDownWindow": usual.scale_down_window,
        "coldStart": usual.cold_start,
    }
    return {name: duration.write(round(pace.seconds(seconds, least=1.0))) for name, seconds in times.items()}


def serving_pool(pool: Pool, pace: Pace) -> Manifest:
    """The ServingPool: all else is as by default where the run has its own pace."""
    slo = pool.slo
    bounds = {"timeToFirstToken": slo.time_to_first_token, "timePerOutputToken": slo.time_per_output_token}
    spec: dict[str, Any] = {
        "model": pool.name,
        "priority": pool.priority,
        "slo": {
            **{name: duration.write(seconds) for name, seconds in bounds.items() if seconds is not None},
            "attainment": round(slo.attainment * 100, 3),
        },
        "targets": [
            {
                "name": one.name,
                "min": one.least,
                "max": one.most,
                "costPerReplicaHour": price(one.profile),
            }
            for one in pool.targets
        ],
    }
    if pool.idle_after is not None:
        spec["metrics"] = {"gateway": {"name": "vllm-router", "workload": ROUTER, "holdsFor": "10m"}}
    if tuning := idle_after(pool, pace) | shorter(pace):
        spec["behavior"] = tuning
    metadata = {"name": pool.name, "namespace": "default", "labels": TIER}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
