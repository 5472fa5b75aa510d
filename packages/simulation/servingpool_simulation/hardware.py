"""What one replica is: a GPU, a model and vLLM's limits on the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from servingpool_simulation.conduct import VLLM, Conduct

BLOCK_TOKENS = 16
"""Tokens in a KV cache block, vLLM's default on CUDA."""

HOST_OVERHEAD = 0.00065
"""Seconds: see EngineProfile.host_overhead."""

LARGE_GPUS = ("h100", "h200", "a100")
"""GPUs for which vLLM's API server lets a step hold 8192 tokens; on others 2048."""


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One vLLM replica: step-time coefficients and scheduler limits. Times are seconds."""

    name: str
    dense: tuple[tuple[int, float], ...]
    """(tokens in the step, seconds) of everything but attention, ascending, two points or more."""
    decode_base: float
    """Decode attention: seconds in every step with a decoding request."""
    decode_per_request: float
    decode_per_kv_token: float
    """Seconds for each token in the KV cache of the decoding requests."""
    prefill_base: float
    """Prefill attention: seconds in every step with a prompt chunk."""
    prefill_per_token: float
    prefill_per_token_context: float
    """Seconds for each pair of a chunk's token and a token before it."""
    kv_tokens: int
    """Tokens that the KV cache holds."""
    gpus: int = 1
    host_overhead: float = HOST_OVERHEAD
    """Seconds of scheduling and sampling on the CPU in every step (0.5 to 0.8 ms measured)."""
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_model_len: int = 131_072
    prefix_cache_hit_rate: float = 0.0
    """Share of every prompt that the prefix cache supplies, 0 to below 1."""
    ttft_from_admission: bool = False
    """The TTFT histogram counts from admission to the batch, not from arrival: it leaves out the engine's queue."""
    async_scheduling: bool = False
    """The batch of a step is put together when the step before it begins, as vLLM 0.25.1 does.

    A request that comes amid a step then waits for all of the next one too.
    """
    bend: float = 1.0
    """How many times as much each decoding request beyond half of max_num_seqs adds to the step time; 1 or more."""
    tokens_per_step: int = 1
    """Tokens of each decoding request in a step, 1 or more: above 1 with speculative decoding.

    Every draft token is accepted. A step computes that many tokens for each request; the KV cache is taken to grow by
    one token a step, which leaves out (1 - 1/tokens_per_step) of the answer.
    """
    pause_every: float = 0.0
    """Mean seconds between two pauses of the engine (garbage collection, a compilation, a slow collective); 0 for none.

    Half to one and a half times the mean, drawn anew each time. The step under way lasts so much longer; an idle engine
    pauses unnoticed.
    """
    pause_shortest: float = 1.0
    pause_longest: float = 3.0
    """Seconds of a pause: evenly distributed between the two."""
    conduct: Conduct = VLLM
    """What its page tells, and when."""

    def __post_init__(self) -> None:
        if len(self.dense) < 2 or any(b[0] <= a[0] for a, b in pairwise(self.dense)):
            raise ValueError("dense needs two points or more, ascending in tokens")
        if not 1 <= self.max_num_seqs <= self.max_num_batched_tokens:
            raise ValueError(
                f"max_num_seqs must be 1 to max_num_batched_tokens ({self.max_num_batched_tokens}), "
                f"got {self.max_num_seqs}"
            )
        if not 1 < self.max_model_len <= self.kv_blocks * BLOCK_TOKENS:
            raise ValueError(
                f"max_model_len must be 2 to the KV cache's {self.kv_blocks * BLOCK_TOKENS} tokens, "
                f"got {self.max_model_len}; vLLM refuses to start otherwise"
            )
        if not 0 <= self.prefix_cache_hit_rate < 1:
            raise ValueError(f"prefix_cache_hit_rate must be 0 to below 1, got {self.prefix_cache_hit_rate}")
        if self.bend < 1:
            raise ValueError(f"bend must be 1 or more, got {self.bend}")
        if not 1 <= self.tokens_per_step <= self.max_num_batched_tokens // self.max_num_seqs:
            raise ValueError(
                f"tokens_per_step must be 1 to max_num_batched_tokens / max_num_seqs, got {self.tokens_per_step}"
            )
        if self.pause_every < 0 or not 0 <= self.pause_shortest <= self.pause_longest:
            raise ValueError(
                "need pause_every >= 0 s and pauses of 0 s or more, shortest first, "
                f"got {self.pause_every}, {self.pause_shortest} and {self.pause_longest}"
            )

    @property
    def kv_blocks(self) -> int:
        """Blocks in the KV cache."""
        return self.kv_tokens // BLOCK_TOKENS

    def dense_table(self) -> NDArray[np.float64]:
        """Seconds for 0 to max_num_batched_tokens tokens: linear between the points and beyond them."""
        tokens = np.arange(self.max_num_batched_tokens + 1, dtype=np.float64)
        at, seconds = (np.array(column, dtype=np.float64) for column in zip(*self.dense, strict=True))
        table = np.interp(tokens, at, seconds)
        slope = (seconds[-1] - seconds[-2]) / (at[-1] - at[-2])
        beyond = tokens > at[-1]
        table[beyond] = seconds[-1] + slope * (tokens[beyond] - at[-1])
        return table

    def scaled(self, factor: float) -> Self:
        """The same replica with every step `factor` times as long: the model's own error is about 10%."""
        return replace(
            self,
            dense=tuple((tokens, seconds * factor) for tokens, seconds in self.dense),
            decode_base=self.decode_base * factor,
            decode_per_request=self.decode_per_request * factor,
            decode_per_kv_token=self.decode_per_kv_token * factor,
            prefill_base=self.prefill_base * factor,
            prefill_per_token=self.prefill_per_token * factor,
            prefill_per_token_context=self.prefill_per_token_context * factor,
            host_overhead=self.host_overhead * factor,
        )


def flat_profile(step: float, *, prefill: float | None = None, **other: Any) -> EngineProfile:
    """An engine whose latency does not depend on its batch: only max_num_seqs limits what it serves.

    Args:
        step: seconds of every step without a prompt, over 0.
        prefill: seconds of a step with prompts, however many and however long; `step` or more, None for `step`.
        other: fields of EngineProfile. By default the KV cache never binds, and the token budget holds four of the
            longest prompts.
    """
    length, seqs = other.get("max_model_len", _FLAT_LENGTH), other.setdefault("max_num_seqs", 8)
    usual: dict[str, Any] = {
        "name": f"flat-{step * 1e3:g}ms",
        "dense": ((0, step), (1, step)),
        "decode_base": 0.0,
        "decode_per_request": 0.0,
        "decode_per_kv_token": 0.0,
        "prefill_base": 0.0 if prefill is None else prefill - step,
        "prefill_per_token": 0.0,
        "prefill_per_token_context": 0.0,
        "kv_tokens": seqs * (length + BLOCK_TOKENS),
        "host_overhead": 0.0,
        "max_num_batched_tokens": max(length, _FLAT_BUDGET),
        "max_model_len": length,
    }
    if step <= 0 or usual["prefill_base"] < 0:
        raise ValueError(f"need step > 0 s and prefill >= step, got {step} and {prefill}")
    return EngineProfile(**(usual | other))


_FLAT_LENGTH, _FLAT_BUDGET = 16_384, 65_536
"""Tokens: the longest request of the recorded traces fits."""


@cache
def _data(file: str) -> dict[str, Any]:
    return dict(orjson.loads(resources.files("servingpool_simulation").joinpath("data", file).read_bytes()))


def _coefficients() -> dict[str, Any]:
    return _data("step_coeffs_bf16.json")


def profile_names() -> tuple[str, ...]:
    """The GPU and model pairs that are shipped, such as `h100-8b-tp1` or `a100-70b-tp4`."""
    return tuple(key.replace("_sxm", "").replace("/", "-") for key in _coefficients())


def kernel_profile(name: str, **other: Any) -> EngineProfile:
    """As `engine_profile`, with the times that others measured of the kernels and nothing that serving adds."""
    found = dict(zip(profile_names(), _coefficients().values(), strict=True)).get(name)
    if found is None:
        raise ValueError(f"hardware must be one of {', '.join(profile_names())}, got {name!r}")
    ms = 1e-3
    decode, prefill = found["decode_attn_ms"], found["prefill_attn_ms"]
    shipped: dict[str, Any] = {
        "name": name,
        "dense": tuple((int(tokens), value * ms) for tokens, value in found["dense_ms"].items()),
        "decode_base": decode["c0"] * ms,
        "decode_per_request": decode["per_seq"] * ms,
        "decode_per_kv_token": decode["per_kv_token"] * ms,
        "prefill_base": prefill["c0"] * ms,
        "prefill_per_token": prefill["per_token"] * ms,
        "prefill_per_token_context": prefill["per_token_ctx"] * ms,
        "kv_tokens": int(found["kv_tokens_est"]),
        "host_overhead": 0.0,
        "gpus": int(name.rpartition("tp")[2]),
        "max_num_batched_tokens": 8192 if name.startswith(LARGE_GPUS) else 2048,
    }
    return EngineProfile(**(shipped | other))


def engine_profile(name: str, **other: Any) -> EngineProfile:
    """A shipped GPU and model pair, for example `engine_profile("a100-70b-tp4", max_num_seqs=1024)`.

    Serving adds HOST_OVERHEAD to each step's kernels. To a pair that was measured while it served it adds what was
    fitted to that record (docs/records/serving-fit.md), of a vLLM that schedules ahead.

    `other` are fields of EngineProfile to set otherwise. Raises ValueError for a name that is not shipped.
    """
    added = _data("serving_ms.json").get(name)
    if added is None:
        return kernel_profile(name, **({"host_overhead": HOST_OVERHEAD} | other))
    return serving_profile(kernel_profile(name), added, **other)


def serving_profile(kernels: EngineProfile, added: Mapping[str, float], **other: Any) -> EngineProfile:
    """An engine that schedules ahead, with so many milliseconds `added` to the fields of its kernels' profile."""
    fitted = {field: getattr(kernels, field) + value * 1e-3 for field, value in added.items()}
    return replace(kernels, **({"async_scheduling": True} | fitted | other))
