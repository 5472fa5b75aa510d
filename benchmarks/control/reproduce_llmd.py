"""llm-d's published figure for its slo-aware autoscaler, against what the simulator makes of its algorithm.

Published (Qwen3-32B, TP 2 on H100, TTFT 3 s, TPOT 0.1 s, 3 to 8 replicas, about 100 s to start): 95.8% of requests
within both bounds at 5.93 replicas on average; a static fleet of 8 holds 100%. Its signal came from a latency predictor
in its router, trained before the run (85.6% untrained); here the signal is the measured latency, its fallback.

    python benchmarks/control/reproduce_llmd.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.baselines import llmd
from servingpool_simulation.baselines.measured import prefill_rate
from servingpool_simulation.hardware import EngineProfile, engine_profile
from servingpool_simulation.policies import Policy, Static
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.traces import LLMD_RAMP_RATES, Trace, llmd_ramp

PUBLISHED = {"attainment": 0.958, "average_replicas": 5.93, "static_attainment": 1.0, "prefill_tokens_per_s": 15_928}
WITHIN = {"attainment": 0.02, "average_replicas": 0.5}
POOL = Pool(Slo(3.0, 0.1), min_replicas=3, max_replicas=8)
SEEDS = range(5)
DRAIN = 1200.0
"""Seconds after the load, in which the published episode ends once the fleet is back at its minimum."""


def qwen3_32b_tp2() -> EngineProfile:
    """A stand-in: no step times of Qwen3-32B are shipped.

    The pair with the nearest weights per GPU (70B / 4 = 17.6B against 32.8B / 2 = 16.4B), with every step scaled so
    that the prefill rate is the 15,928 tokens/s that llm-d measured. A token of KV cache is 64 layers * 8 heads * 128 *
    2 * 2 bytes = 262 kB, 131 kB for each of 2 GPUs, against 80 * 8 * 128 * 2 * 2 / 4 = 82 kB: reading it takes 1.6
    times as long. The cache holds what 2 * 80 GB * 0.9 leave beside 65.5 GB of weights and about 6 GB of activations:
    275k tokens.
    """
    near = scaled_to_prefill()
    per_token = engine_profile("h100-70b-tp4").decode_per_kv_token * (64 / 2) / (80 / 4)
    return replace(near, name="Qwen3-32B TP2 stand-in", decode_per_kv_token=per_token, kv_tokens=275_000, gpus=2)


def scaled_to_prefill() -> EngineProfile:
    """h100-70b-tp4 with every step scaled so that it prefills as fast as llm-d's Qwen3-32B."""
    shipped = engine_profile("h100-70b-tp4")
    factor = prefill_rate(shipped) / PUBLISHED["prefill_tokens_per_s"]
    return replace(shipped.scaled(factor), name=f"h100-70b-tp4, steps times {factor:.3f}")


def published_load(seed: int) -> Trace:
    """llm-d's own load profile: constant rates, prompts of 3500 to 4500 tokens, answers of 900 to 1100."""
    random = np.random.default_rng(seed)
    spans = (330.0, 360.0, 360.0, 360.0, 360.0, 360.0, 300.0)
    starts = np.concatenate(([0.0], np.cumsum(spans)))
    stages = zip(starts, spans, LLMD_RAMP_RATES, strict=False)
    arrival = np.concatenate([start + np.arange(round(span * rate)) / rate for start, span, rate in stages])

    def lengths(mean: float, deviation: float, low: int, high: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        drawn = np.clip(random.normal(mean, deviation, len(arrival)), low, high)
        return np.rint(drawn).astype(np.int64)

    prompt, output = lengths(4000, 300, 3500, 4500), lengths(1000, 80, 900, 1100)
    return Trace("llm-d's load profile", arrival, prompt, output, float(starts[-1]) + DRAIN)


@dataclass(frozen=True, slots=True)
class Load:
    """A load and how its average fleet is taken."""

    name: str
    make: Callable[[int], Trace]
    """By seed."""
    drain: float
    """Seconds at the end of the trace without load."""


LOADS = (
    Load("ramp of 600 s stages, Poisson", lambda seed: llmd_ramp(seed=seed), 0.0),
    Load("llm-d's load profile", published_load, DRAIN),
)


def average_replicas(result: Result, load_ends: float) -> float:
    """Of the Deployment, until the load is over and the fleet back at its minimum, as llm-d counts it."""
    time, replicas = result.series.time, result.series.requested
    drained = (at for at, n in zip(time, replicas, strict=True) if at >= load_ends and n <= POOL.min_replicas)
    end = next(drained, time[-1])
    return statistics.fmean(n for at, n in zip(time, replicas, strict=True) if at <= end)


def run(load: Load, profile: EngineProfile, policy: Policy, seed: int, initial: int) -> tuple[float, float]:
    """(attainment, average replicas)."""
    trace, options = load.make(seed), SimulationOptions(seed=seed, initial_replicas=initial)
    result = simulate(trace, profile, POOL, policy, options)
    return result.score.attainment, average_replicas(result, trace.duration - load.drain)


def reproduce() -> dict[str, Any]:
    """Every profile on both loads over the seeds, with llm-d slo-aware and with 8 static replicas."""
    rows = []
    for profile in (engine_profile("h100-70b-tp4"), scaled_to_prefill(), qwen3_32b_tp2()):
        for load in LOADS:
            runs = [run(load, profile, llmd.slo_aware(), seed, POOL.min_replicas) for seed in SEEDS]
            static = [run(load, profile, Static(8), seed, 8)[0] for seed in SEEDS]
            attainment, replicas = (statistics.fmean(column) for column in zip(*runs, strict=True))
            rows.append(
                {
                    "profile": profile.name,
                    "load": load.name,
                    "prefill_tokens_per_s": round(prefill_rate(profile)),
                    "kv_tokens": profile.kv_tokens,
                    "attainment": round(attainment, 4),
                    "attainment_by_seed": [round(each, 4) for each, _ in runs],
                    "average_replicas": round(replicas, 2),
                    "average_replicas_by_seed": [round(each, 2) for _, each in runs],
                    "static_attainment": round(statistics.fmean(static), 4),
                    "reproduced": abs(attainment - PUBLISHED["attainment"]) <= WITHIN["attainment"]
                    and abs(replicas - PUBLISHED["average_replicas"]) <= WITHIN["average_replicas"],
                }
            )
    return {"published": PUBLISHED, "within": WITHIN, "seeds": len(SEEDS), "rows": rows}


def table(found: dict[str, Any]) -> str:
    """In Markdown."""
    lines = [
        "| profile | load | attained (lowest to highest seed) | replicas | static 8 | reproduced |",
        "|---|---|---|---|---|---|",
        "| Qwen3-32B TP2 on H100, published | llm-d's load profile | 95.8% | 5.93 | 100% | |",
    ]
    for row in found["rows"]:
        low, high = min(row["attainment_by_seed"]), max(row["attainment_by_seed"])
        lines.append(
            f"| {row['profile']} | {row['load']} | {row['attainment']:.1%} ({low:.1%} to {high:.1%}) | "
            f"{row['average_replicas']:.2f} | {row['static_attainment']:.1%} | {'yes' if row['reproduced'] else 'no'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(reproduce()))
