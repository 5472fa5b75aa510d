"""What the user of a baseline has to measure or to profile before it works: figures of one replica of this hardware."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

from servingpool.decision.pool import Slo
from servingpool_simulation.engine import Engine
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.tables import Floats

BENCH_PROMPT, BENCH_OUTPUT = 1024, 128
"""Tokens: the random workload of `vllm bench serve` when nothing else is said."""


@cache
def prefill_rate(profile: EngineProfile) -> float:
    """Prompt tokens/s, as llm-d's calibration has it: a prompt of one full step on an idle replica over its TTFT."""
    engine = Engine(profile, 0.0)
    prompt = min(profile.max_num_batched_tokens, profile.max_model_len - 1)
    engine.submit(0.0, prompt, 1)
    engine.drain()
    (outcome,) = engine.take_outcomes()
    assert outcome.ttft is not None
    return prompt / outcome.ttft


@cache
def generation_rate(profile: EngineProfile, slo: Slo) -> float:
    """Output tokens/s of one replica at the highest steady load of the benchmark's workload that meets the SLO."""
    return BENCH_OUTPUT * StepModel(profile).capacity(slo, BENCH_PROMPT, BENCH_OUTPUT)


@dataclass(slots=True)
class StepModel:
    """Steady state of one replica without any queue: what an offline profile of its steps tells. Times are seconds."""

    profile: EngineProfile
    _dense: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._dense = self.profile.dense_table()

    def step(self, decoding: float, context: float, prefill: float, prompt: float) -> float:
        """A step with `decoding` requests of `context` tokens each and `prefill` tokens of prompts of `prompt` each."""
        p = self.profile
        tokens = min(math.ceil(decoding + prefill), p.max_num_batched_tokens)
        seconds = float(self._dense[tokens]) + p.host_overhead
        if decoding > 0:
            seconds += p.decode_base + decoding * (p.decode_per_request + p.decode_per_kv_token * context)
        if prefill > 0:
            seconds += p.prefill_base + prefill * (p.prefill_per_token + p.prefill_per_token_context * prompt / 2)
        return seconds

    def capacity(self, slo: Slo, prompt: float, output: float) -> float:
        """Requests/s at the largest batch whose modelled TTFT and ITL meet the SLO; that of a batch of 1 if none does.

        In a batch of x each step ends x / output requests and computes as many prompts. The prompt tokens that such a
        step holds are also what a new prompt finds before it: queues do not occur.
        """
        p = self.profile
        context, fresh = prompt + output / 2, prompt * (1 - p.prefix_cache_hit_rate)
        budget = p.max_num_batched_tokens
        balanced = output * budget / (fresh + output)
        largest = int(max(1.0, min(p.kv_tokens / context, p.max_num_seqs, balanced)))
        best = 0.0
        for batch in range(1, largest + 1):
            prefill = min(batch * fresh / output, budget)
            between = self.step(batch, context, prefill, prompt)
            if batch > 1 and not self._meets(slo, between, self._first(batch, context, prefill + fresh, prompt)):
                break
            best = batch / (output * between)
        return best

    def _first(self, batch: int, context: float, tokens: float, prompt: float) -> float:
        """TTFT of a prompt with which `tokens` are to be computed, in steps that decode too."""
        room = self.profile.max_num_batched_tokens - batch
        full, rest = divmod(tokens, room)
        seconds = full * self.step(batch, context, room, prompt)
        return seconds + (self.step(batch, context, rest, prompt) if rest > 0 else 0.0)

    @staticmethod
    def _meets(slo: Slo, between: float, first: float) -> bool:
        bounds = ((slo.time_per_output_token, between), (slo.time_to_first_token, first))
        return all(bound is None or seconds <= bound for bound, seconds in bounds)
