"""The engine model against figures measured on real GPUs, how fast it runs, and a published result reproduced with it.

`python benchmarks/control/validate_simulator.py` writes docs/benchmarks/simulator.md in some minutes, with 2 GiB.
The measured figures, with their origin, are those that the project collected before it wrote a line of the model.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tables import table

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.engine import Engine
from servingpool_simulation.hardware import EngineProfile, engine_profile, kernel_profile
from servingpool_simulation.policies import Static
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.traces import azure2024_conv_reconstructed

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "simulator.md"
TEXT = """\
# How far the simulator can be believed

Written by `python benchmarks/control/validate_simulator.py`. A vLLM of 2026 on an H200, measured for this project, has
[a page of its own](real-gpu.md).

## Step times

The largest deviation over decode steps with a batch of 1 to 256 and prefills of 512 to 8,192 tokens, against the
kernel times of [aiconfigurator](https://github.com/ai-dynamo/aiconfigurator). Serving pays {host:.2f} ms of host
overhead more; the H200 8B what was [fitted](../records/serving-fit.md) to a record of it.

{steps}

## Real servers

None of these figures went into the coefficients. No step times of Llama-2-7B and Qwen3-32B are shipped: they are
converted from the 8B and from the 70B on four GPUs. Clients measured, and client, network and tokenizer time are not in
the model: that is most of the TTFT that is missing on the 7B.

{servers}

24 hours of the reconstructed Azure 2024 rate on {replicas} replicas, {requests:,.0f} requests, take {seconds:.0f} s
of CPU and {memory:,.0f} MiB.
"""
CONTEXT = 1024
BATCHES = (1, 32, 64, 128, 256)
PROMPTS = (512, 2048, 8192)
STEP_TIMES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "h100-8b-tp1": ((6.6, 8.3, 10.2, 13.1, 19.6), (12, 45, 204)),
    "h200-8b-tp1": ((5.3, 6.2, 7.6, 9.8, 15.2), (12, 45, 200)),
    "a100-8b-tp1": ((12.2, 14.9, 17.5, 24.7, 41.0), (34, 123, 559)),
    "l40s-8b-tp1": ((24.1, 32.6, 38.5, 52.0, 79.4), (38, 151, 688)),
    "h100-70b-tp4": ((15.6, 18.4, 20.5, 24.7, 33.7), (43, 152, 638)),
    "h200-70b-tp4": ((12.4, 14.5, 16.5, 19.9, 30.9), (44, 151, 657)),
    "a100-70b-tp4": ((27.7, 34.1, 37.7, 47.7, 83.9), (115, 378, 1520)),
}
"""Milliseconds of a decode step at 1k context for each of BATCHES, and of a prefill of each of PROMPTS alone.

Kernel times, without the 0.5 to 0.8 ms that the host adds to each step; the model adds 0.65 ms where it serves, or what
was fitted to a record.
"""
REPLICAS = 64


@dataclass(frozen=True, slots=True)
class Check:
    """One figure."""

    what: str
    unit: str
    measured: float
    model: float

    @property
    def deviation(self) -> float:
        """Of the model, relative to what was measured."""
        return self.model / self.measured - 1.0


def decode_step(profile: EngineProfile, batch: int) -> float:
    """Seconds between two tokens of `batch` requests that have CONTEXT tokens each in the mean."""
    # Roomier than the real cache where it holds less than the batch: the table asks for the step, not for preemption.
    roomy = replace(profile, kv_tokens=max(profile.kv_tokens, 2 * batch * CONTEXT))
    engine = Engine(roomy, 0.0)
    output = 512
    prompt = CONTEXT - output // 2
    for _ in range(batch):
        engine.submit(0.0, prompt, output)
    engine.drain()
    outcomes = engine.take_outcomes()
    # The first ones decode while the others' prompts are computed; from the last first token on all only decode.
    last = max((outcome.ttft or 0.0) for outcome in outcomes)
    youngest = [outcome for outcome in outcomes if outcome.ttft == last]
    return float(np.mean([outcome.tpot for outcome in youngest if outcome.tpot is not None]))


def prefill(profile: EngineProfile, prompt: int) -> float:
    """Seconds to the first token of a request that is alone."""
    engine = Engine(profile, 0.0)
    engine.submit(0.0, prompt, 1)
    return engine.drain()


def steps(profile_of: Callable[[str], EngineProfile]) -> Iterator[Check]:
    """The step-time table, by the profile of each name."""
    for name, (decode, prompts) in STEP_TIMES.items():
        profile = profile_of(name)
        for batch, measured in zip(BATCHES, decode, strict=True):
            yield Check(f"{name}: decode, batch {batch}", "ms", measured, 1000 * decode_step(profile, batch))
        for prompt, measured in zip(PROMPTS, prompts, strict=True):
            yield Check(f"{name}: prefill {prompt} tokens", "ms", measured, 1000 * prefill(profile, prompt))


def short_requests(batch: int, profile: EngineProfile) -> float:
    """Seconds between two tokens of `batch` requests of 128 tokens in and out that begin together."""
    engine = Engine(profile, 0.0)
    for _ in range(batch):
        engine.submit(0.0, 128, 128)
    engine.drain()
    return float(np.mean([outcome.tpot for outcome in engine.take_outcomes()]))


def llama2_7b() -> EngineProfile:
    """Llama-2-7B on an H100, from the shipped Llama-3.1-8B.

    Its weights are 6.7B parameters to 8.0B, and so are its dense times. It has no grouped queries: a token of KV
    cache is 32 layers * 32 heads * 128 * 2 * 2 bytes = 524 kB to 131 kB, so reading it takes four times as long, and
    a fourth of the tokens fits.
    """
    shipped = engine_profile("h100-8b-tp1")
    return replace(
        shipped,
        name="Llama-2-7B, H100",
        dense=tuple((tokens, seconds * 6.74 / 8.03) for tokens, seconds in shipped.dense),
        decode_per_kv_token=4 * shipped.decode_per_kv_token,
        kv_tokens=shipped.kv_tokens // 4,
        max_model_len=4_096,
    )


@dataclass(frozen=True, slots=True)
class Served:
    """Latencies in seconds."""

    ttft_mean: float
    ttft_p99: float
    itl_p90: float


def steady_load(profile: EngineProfile, *, rate: float, prompt: int, output: int, seconds: float = 300.0) -> Served:
    """Poisson arrivals of equal requests at one replica."""
    engine = Engine(profile, 0.0)
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1.0 / rate, int(rate * seconds)))
    for at in arrivals:
        engine.submit(float(at), prompt, output)
    gaps: list[float] = []
    weights: list[float] = []
    total = count = 0.0
    # No step is shorter than the stride, so each look sees at most one more.
    for now in np.arange(0.0, arrivals[-1], 0.004):
        engine.advance(float(now))
        seen = engine.metrics().histograms["inter_token_latency_seconds"]
        if seen.count > count:
            gaps.append((seen.total - total) / (seen.count - count))
            weights.append(seen.count - count)
            total, count = seen.total, seen.count
    engine.drain()
    ttft = [outcome.ttft for outcome in engine.take_outcomes() if outcome.ttft is not None]
    order = np.argsort(gaps)
    share = np.cumsum(np.array(weights)[order]) / sum(weights)
    p90 = np.array(gaps)[order][int(np.searchsorted(share, 0.9))]
    return Served(float(np.mean(ttft)), float(np.quantile(ttft, 0.99)), float(p90))


def qwen3_32b_tp2() -> EngineProfile:
    """Qwen3-32B on two H100, from the shipped 70B on four: what can be told without having measured it.

    Weights per GPU are 32.8B / 2 = 16.4B to 70.6B / 4 = 17.6B, and so are the dense times, the all-reduce over two
    instead of four GPUs left aside. Attention has the same 64 heads of 128 in 64 / 2 = 32 layers per GPU instead of
    80 / 4 = 20: 1.6 times the time.
    """
    shipped = engine_profile("h100-70b-tp4")
    return replace(
        shipped,
        name="Qwen3-32B TP2, H100",
        dense=tuple((tokens, seconds * 16.4 / 17.6) for tokens, seconds in shipped.dense),
        prefill_per_token=1.6 * shipped.prefill_per_token,
        prefill_per_token_context=1.6 * shipped.prefill_per_token_context,
        gpus=2,
    )


def cross_checks() -> Iterator[Check]:
    """Figures from real servers, none of which went into the coefficients."""
    for batch, measured in ((1, 7.0), (64, 8.7)):
        what = f"Llama-3.1-8B, H100, 128 in 128 out: ITL at batch {batch}"
        yield Check(what, "ms", measured, 1000 * short_requests(batch, engine_profile("h100-8b-tp1")))
    # No step times of the next two models are shipped: these rows judge the conversion as much as the engine, and
    # TTFT was measured by a client, whose network and tokenizer the model leaves out.
    for profile, note in ((llama2_7b(), "converted"), (engine_profile("h100-8b-tp1"), "as Llama-3.1-8B")):
        served = steady_load(profile, rate=20.0, prompt=575, output=209)
        load = f"Llama-2-7B ({note}), H100, 20 requests/s, 575 in 209 out"
        yield Check(f"{load}: TTFT mean", "ms", 52.0, 1000 * served.ttft_mean)
        yield Check(f"{load}: TTFT p99", "ms", 72.0, 1000 * served.ttft_p99)
        yield Check(f"{load}: ITL p90", "ms", 18.0, 1000 * served.itl_p90)
    for prompt in (4_096, 16_384):
        rate = prompt / prefill(qwen3_32b_tp2(), prompt)
        yield Check(f"Qwen3-32B TP2 (converted), H100: prefill of {prompt} tokens", "tokens/s", 15_928.0, rate)


def speed() -> dict[str, float]:
    """24 hours of the 2024 conversation trace on 64 replicas. Keys: requests, seconds, peak_rss_mib."""
    pool = Pool(Slo(1.0, 0.04), min_replicas=1, max_replicas=REPLICAS)
    profile = engine_profile("h100-8b-tp1")
    warm_up = azure2024_conv_reconstructed(2, scale=0.001)
    simulate(warm_up, profile, pool, Static(1))  # compiles, or reads the compiled model from disk
    trace = azure2024_conv_reconstructed(2)
    began = time.process_time()
    simulate(trace, profile, pool, Static(REPLICAS), SimulationOptions(initial_replicas=REPLICAS))
    spent = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"requests": len(trace), "seconds": spent, "peak_rss_mib": peak}


def step_rows() -> Iterator[Sequence[str]]:
    """A row for each engine."""
    kernels, served = (_by_engine(steps(profile_of)) for profile_of in (kernel_profile, engine_profile))
    for name in STEP_TIMES:
        yield name, f"{_furthest(kernels[name]):+.1%}", f"{_furthest(served[name]):+.1%}"


def _host_overhead() -> float:
    """Seconds of a step, the same for all."""
    return engine_profile(next(iter(STEP_TIMES))).host_overhead


def _by_engine(checks: Iterator[Check]) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = {}
    for check in checks:
        found.setdefault(check.what.partition(":")[0], []).append(check.deviation)
    return found


def _furthest(deviations: Sequence[float]) -> float:
    return max(deviations, key=abs)


def page(servers: Sequence[Check], took: Mapping[str, float]) -> str:
    """Markdown."""
    rows = [
        (one.what, f"{one.measured:,g} {one.unit}", f"{one.model:,.1f}", f"{one.deviation:+.1%}") for one in servers
    ]
    return TEXT.format(
        host=1000 * _host_overhead(),
        steps=table(("engine", "kernels only", "as it serves"), step_rows()),
        servers=table(("what", "measured", "model", "deviation"), rows),
        replicas=REPLICAS,
        requests=took["requests"],
        seconds=took["seconds"],
        memory=took["peak_rss_mib"],
    )


def main() -> None:
    """Compute, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PAGE)
    asked = parser.parse_args()
    # In a process of its own: its peak memory is the simulator's alone.
    child = subprocess.run([sys.executable, __file__, "speed"], check=True, capture_output=True, text=True)
    asked.output.write_text(page(list(cross_checks()), json.loads(child.stdout)))


if __name__ == "__main__":
    if sys.argv[1:] == ["speed"]:
        print(json.dumps(speed()))
    else:
        main()
