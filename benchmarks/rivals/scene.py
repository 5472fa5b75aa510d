"""The scene: one course of traffic, and a fleet of its own for each rival."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servingpool.api import duration
from servingpool.api.group import API_VERSION, KIND
from servingpool.decision.pool import Pool, Slo
from servingpool_lab import kwok
from servingpool_lab.workload import Engines, Manifest, engines, page_server
from servingpool_simulation.baselines.catalogue import BY_SLUG
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Ours, Policy, Static
from servingpool_simulation.prices import price
from servingpool_simulation.run import SimulationOptions
from servingpool_simulation.traces import Trace, azure2023_conv

PROFILE = engine_profile("a100-70b-tp4")
HARDWARE = "Llama 70B on 4 A100"
SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.15, attainment=0.95)
LEAST, MOST, INITIAL = 1, 8, 3
POOL = Pool(SLO, min_replicas=LEAST, max_replicas=MOST)
LOAD, JITTER = 60.0, 6.0
"""Seconds from a container's start to Ready, and how many more there may be."""
MINUTES = 180.0
TAIL = 180.0
"""Seconds after the last arrival in which answers may end. What ends later has missed its TPOT or its TTFT."""
STATE = "kube-state-metrics"
"""Pod whose page has two series of the real one: llm-d's queries read them."""
OURS = "servingpool"
NODE_GPUS = 64
"""Far more than a node has: the scheduler never lacks room, so no rival waits for another."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A sixth of the run."""

    title: str
    rates: tuple[float, ...]
    """Requests/s in equal parts of the stage, or at both ends of it for a ramp."""
    ramp: bool = False
    prompt: int | None = None
    """Tokens, the same for all; None for those of the Azure 2023 conversation trace, as are the answer's then."""
    output: int = 0

    def rate(self, at: float) -> float:
        """Requests/s at 0 to below 1 of the stage."""
        if self.ramp:
            return self.rates[0] + (self.rates[1] - self.rates[0]) * at
        return self.rates[int(at * len(self.rates))]

    def __str__(self) -> str:
        rates = f"{self.rates[0]:g} to {self.rates[1]:g}" if self.ramp else ", ".join(f"{one:g}" for one in self.rates)
        lengths = "Azure 2023 conv" if self.prompt is None else f"{self.prompt} tokens in, {self.output} out"
        return f"{self.title}: {rates} requests/s, {lengths}"


STAGES = (
    Stage("plateau", (6.0,)),
    Stage("ramp", (6.0, 18.0), ramp=True),
    Stage("bursts", (6.0, 18.0, 6.0, 6.0, 18.0, 6.0)),
    Stage("quiet", (2.0,)),
    Stage("long prompts", (2.2,), prompt=6000, output=100),
    Stage("long answers", (5.0,), prompt=200, output=800),
)


def traffic(minutes: float) -> Trace:
    """Poisson arrivals at the stages' rates: the same for every fleet."""
    random, conv = np.random.default_rng(40), azure2023_conv()
    span = 60.0 * minutes / len(STAGES)
    arrivals, prompts, outputs = [], [], []
    for number, stage in enumerate(STAGES):
        seconds = np.arange(int(span))
        counts = random.poisson([stage.rate(second / span) for second in seconds])
        at = np.sort(np.repeat(seconds, counts) + random.random(counts.sum()))
        drawn = random.integers(0, len(conv), len(at))
        arrivals.append(number * span + at)
        prompts.append(conv.prompt[drawn] if stage.prompt is None else np.full(len(at), stage.prompt))
        outputs.append(conv.output[drawn] if stage.prompt is None else np.full(len(at), stage.output))
    arrival, prompt, output = (np.concatenate(one) for one in (arrivals, prompts, outputs))
    return Trace("rivals", arrival, prompt, output, 60.0 * minutes)


@dataclass(frozen=True, slots=True)
class Fleet:
    """One rival with its Deployment. Requests of the fleet name its slug as the model."""

    slug: str
    title: str
    policy: Callable[[], Policy]
    """The simulator's counterpart."""
    initial: int = INITIAL
    by_keda: bool = False
    scraped: bool = True


def _baseline(slug: str, title: str, *, by_keda: bool = False) -> Fleet:
    return Fleet(slug, title, lambda: BY_SLUG[slug].make(PROFILE, POOL), by_keda=by_keda)


def _fixed(replicas: int) -> Fleet:
    return Fleet(f"fixed-{replicas}", f"{replicas} replicas, fixed", lambda: Static(replicas), replicas, scraped=False)


FLEETS: Mapping[str, Fleet] = {
    fleet.slug: fleet
    for fleet in (
        Fleet(OURS, "this operator", Ours),
        _baseline("hpa-waiting", "HPA on waiting requests, 1 in all"),
        _baseline("hpa-running", "HPA on running requests, 16 a replica"),
        _baseline("hpa-tokens", "HPA on output tokens, 80% of a benchmark's"),
        _baseline("keda", "KEDA, production-stack's ScaledObject", by_keda=True),
        _baseline("llmd-slo-aware", "KEDA, llm-d's slo-aware ScaledObject", by_keda=True),
        *(_fixed(replicas) for replicas in (4, 6, MOST)),
    )
}


def options(fleet: Fleet) -> SimulationOptions:
    """The simulator's world, as near to the lab's as it can be."""
    mean = LOAD + JITTER / 2.0
    return SimulationOptions(cold_start=ColdStart(mean, JITTER / 2.0 / mean), initial_replicas=fleet.initial, tail=TAIL)


def nodes() -> list[Manifest]:
    """Room for every fleet at its largest, twice: draining pods hold GPUs too."""
    gpus = 2 * MOST * PROFILE.gpus * len(FLEETS)
    return [kwok.gpu_node(f"gpu-{number}", NODE_GPUS) for number in range(-(-gpus // NODE_GPUS))]


def deployments(fleets: Iterable[Fleet]) -> list[Manifest]:
    """One for each fleet, and the pod that shows their replicas."""
    return [*map(_engines, fleets), page_server(STATE, STATE)]


def _engines(fleet: Fleet) -> Manifest:
    made = engines(Engines(fleet.slug, fleet.slug, PROFILE.gpus, fleet.initial, LOAD, JITTER))
    if not fleet.scraped:
        del made["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scrape"]
    return made


def serving_pool() -> Manifest:
    """Ours: all else is as by default."""
    bounds = {"timeToFirstToken": SLO.time_to_first_token, "timePerOutputToken": SLO.time_per_output_token}
    slo: dict[str, Any] = {name: duration.write(seconds) for name, seconds in bounds.items() if seconds is not None}
    target = {"name": OURS, "min": LEAST, "max": MOST, "costPerReplicaHour": price(PROFILE.name)}
    spec = {"model": OURS, "slo": {**slo, "attainment": 100 * SLO.attainment}, "targets": [target]}
    metadata = {"name": OURS, "namespace": "default"}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {**spec, "mode": "Auto"}}
