"""Prefill and decode on engines of their own, each fleet with a policy of its own.

A request is prefilled as one of a single token, its KV cache moves, and a decode engine generates all its tokens: to
that one the prompt is a cached one, as vLLM counts it. Neither fleet sees the other, so they are simulated one after
the other. The client's first token is the decode engine's first, as vLLM's own proxy has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Policy
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.traces import Trace

Floats = NDArray[np.float64]

TRANSFERRED = 0.999
"""Share of a prompt that the decode engine does not compute: its last block is."""
TAIL = 600.0
"""Seconds after the trace's end in which requests may finish."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a KV cache moves once it is computed."""

    bytes_per_token: float = 131_072.0
    """Of an 8B model with 32 layers, 8 KV heads of 128, two bytes each, keys and values."""
    bytes_per_second: float = 25e9
    """200 Gbit/s."""
    fixed: float = 0.008
    """Seconds that each takes whatever its size: Splitwise (ISCA 2024) measured 8 ms on A100 and 5 ms on H100, where
    layers moved as they were computed, so that nothing was left that grew with the prompt."""

    def seconds(self, prompt: NDArray[np.int64]) -> Floats:
        """Of each prompt, all of it after its prefill: more than where layers move meanwhile."""
        return self.fixed + prompt.astype(np.float64) * (self.bytes_per_token / self.bytes_per_second)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two fleets."""

    profile: EngineProfile
    policy: Policy
    initial: int
    """Replicas that are found."""
    most: int
    slo: Slo
    """What its own pool is asked for."""

    def run(self, trace: Trace, seed: int) -> Result:
        """This fleet on its part of each request."""
        options = SimulationOptions(initial_replicas=self.initial, seed=seed, tail=TAIL)
        return simulate(trace, self.profile, Pool(self.slo, 1, self.most), self.policy, options)


def decode_profile(profile: EngineProfile) -> EngineProfile:
    """The engine that gets prompts with their KV cache."""
    return replace(profile, prefix_cache_hit_rate=TRANSFERRED)


def prefills(trace: Trace) -> Trace:
    """What the prefill engines serve."""
    return replace(trace, name=f"{trace.name}, prefill", output=np.ones_like(trace.output))


@dataclass(frozen=True, slots=True)
class Handed:
    """What the decode engines are handed."""

    trace: Trace
    places: NDArray[np.int64]
    """Of each of its requests in the whole trace."""
    moved_at: Floats
    """When each request of the whole trace has been moved, in seconds; NaN where its prefill never ended."""


def handed(trace: Trace, prefilled: Result, transfer: Transfer) -> Handed:
    """The decode engines' trace: every request, once its KV cache is there. The prefill engine's token is dropped."""
    truth = prefilled.outcomes
    moved_at = truth.arrival + truth.ttft + transfer.seconds(trace.prompt)
    more = np.flatnonzero(moved_at < trace.duration)
    places = more[np.argsort(moved_at[more], kind="stable")]
    decode = Trace(
        f"{trace.name}, decode", moved_at[places], trace.prompt[places], trace.output[places], trace.duration
    )
    return Handed(decode, places, moved_at)


@dataclass(frozen=True, slots=True, eq=False)
class PairResult:
    """What became of both fleets and their clients."""

    prefill: Result
    decode: Result
    attained: float
    """Share of the requests that met both bounds. Those that are still moved at the trace's end are not counted."""
    first_tokens: float
    """Share that met TTFT."""
    output_tokens: float
    """Share that met TPOT."""
    ttft: Floats = field(repr=False)
    """Seconds from arrival to the client's first token, of each counted request; NaN without one."""
    tpot: Floats = field(repr=False)
    """Seconds between the decode engine's tokens, of the same requests; NaN for one that never ended."""

    @property
    def gpu_hours(self) -> float:
        """Of both."""
        return self.prefill.score.gpu_hours + self.decode.score.gpu_hours


def simulate_pair(
    trace: Trace,
    prefill: Side,
    decode: Side,
    slo: Slo,
    *,
    transfer: Transfer = Transfer(),
    seed: int = 0,
    prefilled: Result | None = None,
) -> PairResult:
    """Both fleets on a trace, judged by the client's `slo`. `prefilled`: the first one's result, if it is known."""
    first = prefill.run(prefills(trace), seed) if prefilled is None else prefilled
    given = handed(trace, first, transfer)
    second = decode.run(given.trace, seed)
    ttft, tpot = given.moved_at - trace.arrival, np.zeros(len(trace.arrival))
    ttft[given.places] += second.outcomes.ttft
    tpot[given.places] = second.outcomes.tpot
    counted = ~(given.moved_at >= trace.duration)
    ttft, tpot = ttft[counted], tpot[counted]
    on_time = ttft <= (slo.time_to_first_token or np.inf)
    steady = tpot <= (slo.time_per_output_token or np.inf)
    attained = float((on_time & steady).mean())
    return PairResult(first, second, attained, float(on_time.mean()), float(steady.mean()), ttft, tpot)
