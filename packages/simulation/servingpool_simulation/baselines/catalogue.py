"""Every baseline with its published default, and the one parameter that its user would tune."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from servingpool.decision.pool import Pool
from servingpool_simulation.baselines import aibrix, dynamo, hpa, keda, knative, llmd, wva
from servingpool_simulation.baselines.measured import StepModel, generation_rate, prefill_rate
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Policy

RUNNING = (2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0)
WAITING = (0.1, 0.25, 0.35, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
KV_USAGE = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class Baseline:
    """One algorithm."""

    name: str
    slug: str
    """Its name on the command line."""
    parameter: str
    """What is tuned, with its unit."""
    default: float
    """As published."""
    grid: tuple[float, ...]
    """Values worth trying, ascending; the default is one of them."""
    tuned: Callable[[EngineProfile, Pool, float], Policy]
    """A fresh policy with the parameter at this value. Profile: what its user reads or measures of the hardware."""

    def make(self, profile: EngineProfile, pool: Pool) -> Policy:
        """A fresh policy with its defaults."""
        return self.tuned(profile, pool, self.default)


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="HPA on running",
        slug="hpa-running",
        parameter="running requests a replica",
        default=hpa.RUNNING,
        grid=RUNNING,
        tuned=lambda _profile, _pool, value: hpa.on_running(value),
    ),
    Baseline(
        name="HPA on waiting, in all",
        slug="hpa-waiting",
        parameter="waiting requests in all",
        default=hpa.WAITING,
        grid=WAITING,
        tuned=lambda _profile, _pool, value: hpa.on_waiting(value),
    ),
    Baseline(
        name="HPA on waiting, each",
        slug="hpa-waiting-each",
        parameter="waiting requests a replica",
        default=hpa.WAITING_EACH,
        grid=WAITING,
        tuned=lambda _profile, _pool, value: hpa.on_waiting_each(value),
    ),
    Baseline(
        name="HPA on tokens",
        slug="hpa-tokens",
        parameter="share of the benchmark's output tokens/s",
        default=hpa.TOKENS,
        grid=(0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.5, 5.0),
        tuned=lambda profile, pool, value: hpa.on_tokens(value * generation_rate(profile, pool.slo)),
    ),
    Baseline(
        name="KEDA production-stack",
        slug="keda",
        parameter="waiting requests a pod",
        default=keda.WAITING,
        grid=WAITING,
        tuned=lambda _profile, _pool, value: keda.ProductionStack(value),
    ),
    Baseline(
        name="llm-d slo-aware",
        slug="llmd-slo-aware",
        parameter="share of the SLO's bound above which it grows",
        default=llmd.UP_ABOVE,
        grid=(0.25, 0.40, 0.48, 0.55, 0.62, 0.70, 0.85, 1.0, 1.15, 1.3, 1.6, 1.9),
        tuned=lambda _profile, _pool, value: llmd.slo_aware(value),
    ),
    Baseline(
        name="llm-d token-aware",
        slug="llmd-token-aware",
        parameter="seconds of prefill backlog a replica",
        default=llmd.BACKLOG,
        grid=(0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.5, 5.0, 7.5),
        tuned=lambda profile, _pool, value: llmd.token_aware(prefill_rate(profile), value),
    ),
    Baseline(
        name="llm-d queue",
        slug="llmd-queue",
        parameter="running requests a replica",
        default=hpa.RUNNING,
        grid=RUNNING,
        tuned=lambda _profile, _pool, value: llmd.queue(value),
    ),
    Baseline(
        name="llm-d WVA 0.9",
        slug="llmd-wva",
        parameter="share of the supply above which it grows",
        default=wva.SCALE_UP,
        grid=(0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.05),
        tuned=lambda profile, _pool, value: wva.Saturation(profile.kv_tokens, value),
    ),
    Baseline(
        name="Knative KPA",
        slug="knative-kpa",
        parameter="requests in flight a pod",
        default=knative.CONCURRENCY,
        grid=(2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 70.0, 100.0, 140.0, 200.0, 256.0),
        tuned=lambda _profile, _pool, value: knative.Kpa(value),
    ),
    Baseline(
        name="AIBrix APA",
        slug="aibrix-apa",
        parameter="KV cache usage",
        default=aibrix.KV_USAGE,
        grid=KV_USAGE,
        tuned=lambda _profile, _pool, value: aibrix.Apa(value),
    ),
    Baseline(
        name="AIBrix KPA",
        slug="aibrix-kpa",
        parameter="KV cache usage",
        default=aibrix.KV_USAGE,
        grid=KV_USAGE,
        tuned=lambda _profile, _pool, value: aibrix.Kpa(value),
    ),
    Baseline(
        name="Dynamo load planner",
        slug="dynamo-load",
        parameter="share of a worker's KV cache above which it grows",
        default=dynamo.UP_ABOVE,
        grid=(0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.55, 0.7, 1.0, 1.2),
        tuned=lambda profile, _pool, value: dynamo.LoadPlanner(profile.kv_tokens, value),
    ),
    Baseline(
        name="Dynamo sla planner",
        slug="dynamo-sla",
        parameter="times the replicas that its profile asks for",
        default=1.0,
        grid=(0.8, 0.9, 1.0, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 8.0),
        tuned=lambda profile, _pool, value: dynamo.SlaPlanner(StepModel(profile), value),
    ),
)
"""In the order of the tables."""

BY_SLUG: Mapping[str, Baseline] = MappingProxyType({baseline.slug: baseline for baseline in BASELINES})
