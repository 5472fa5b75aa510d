"""What a comparison rests on: what is simulated, what was measured by whom, and under which licence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from servingpool.api.duration import brief
from servingpool_simulation.demo import Comparison
from servingpool_simulation.policies import TICK
from servingpool_simulation.traces import Trace

_AZURE_2023 = (
    "every request of an hour of a service, recorded by Microsoft: "
    "Azure/AzurePublicDataset, AzureLLMInferenceTrace 2023, CC-BY-4.0 (Patel et al., Splitwise, ISCA 2024)"
)
_TRACES: Mapping[str, str] = MappingProxyType(
    {
        "Azure 2023 conv": _AZURE_2023,
        "Azure 2023 code": _AZURE_2023,
        "llm-d ramp": "generated: Poisson arrivals at the rates and lengths of llm-d's published slo-aware benchmark",
        "Azure 2024 conv": "reconstructed from plots of the data set, not recorded arrivals: Azure/AzurePublicDataset, "
        "AzureLLMInferenceDataset 2024, CC-BY-4.0 (Stojkovic et al., DynamoLLM, HPCA 2025)",
    }
)


def ground(comparison: Comparison) -> list[tuple[str, str]]:
    """(what, a sentence's end) in the order of importance."""
    setup = comparison.setup
    trace, profile, options = setup.trace, setup.profile, setup.options
    source = next((said for name, said in _TRACES.items() if trace.name.startswith(name)), "your file")
    pace = TICK if options.decide_every is None else options.decide_every
    low, high = (options.cold_start.mean * (1 + sign * options.cold_start.jitter) for sign in (-1, 1))
    simulated = (
        "no GPU ran for this page. A step-level model of vLLM (continuous batching, chunked prefill, KV cache blocks, "
        "preemption) serves the trace on virtual time. Real engines differ: models of this kind come within 10% of "
        "real latencies on one GPU, less close with tensor parallelism."
    )
    step_times = (
        f"of {profile.name}, fitted to kernel times measured on the real GPU: ai-dynamo/aiconfigurator, Apache-2.0. "
        f"A replica is {_gpus(profile.gpus)}, {profile.kv_tokens:,} tokens of KV cache, {profile.max_num_seqs} "
        f"requests a batch."
    )
    traffic = (
        f"{trace.name}, {len(trace):,} requests in {brief(trace.duration)}, mean prompt {trace.prompt.mean():.0f} and "
        f"answer {trace.output.mean():.0f} tokens: {source}. {_past(setup.past)}"
    )
    world = (
        f"a replica is ready {low:.0f} to {high:.0f} s after its order; it is paid for from order to release, so "
        f"loading and draining count. Routing is {options.routing.value}. Every policy that scales starts with "
        f"{comparison.initial} replicas, may use {setup.pool.min_replicas} to {setup.pool.max_replicas}, and decides "
        f"every {pace:g} s from scrapes {options.scrape.interval:g} s apart. No policy knows the future, the "
        f"latency of a single request or the model's coefficients."
    )
    attainment = (
        "the share of all arrivals that met every bound, with TPOT = (E2E - TTFT) / (output tokens - 1). Rejected and "
        "unfinished requests are misses. Compare the cost of policies that hold the SLO: one that misses it is not "
        "cheap."
    )
    baselines = (
        "HPA and llm-d slo-aware are written from their public sources and documents as of 2026, not run; static "
        "fleets are the same engines without a scaler."
    )
    return [
        ("Simulated", simulated),
        ("Step times", step_times),
        ("Traffic", traffic),
        ("World", world),
        ("Attainment", attainment),
        ("Baselines", baselines),
    ]


def _past(past: Trace | None) -> str:
    if past is None:
        return "No policy has seen traffic before the start."
    return (
        f"Every policy first sees {brief(past.duration)} of similar traffic, which is not scored: the history that "
        f"Prometheus holds or Recommend mode has watched. It consists of blocks of the first hour in random order. "
        f"So it shows how large bursts are, and not when they come."
    )


def _gpus(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"
