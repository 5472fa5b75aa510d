"""What a replica exposes, as one row of numbers: gauges, counters, then histograms with vLLM's default bounds.

A row can be copied in one go, which is what a scrape does. Names are vLLM 0.32's without the prefix `vllm:`
and without `_total`; metrics that the model cannot move (multimodal cache, LoRA, sleep) are not here. Behind them is
what other engines count, see `conduct`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
COUNTERS = (
    "generation_tokens",
    "prompt_tokens",
    "prompt_tokens_local_compute",
    "prompt_tokens_local_cache_hit",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
    "request_success_stop",
    "request_success_length",
    "rejected",
)
"""`rejected` is no metric of vLLM: it answers 400 to a prompt that max_model_len does not hold, and counts nothing."""

TOKEN_TIME = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_TIME = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_ITERATION = tuple(float(n) for n in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384))
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_num_preemptions",
    "request_prefill_kv_computed_tokens",
)

OTHERS = (
    "time_to_first_token_at_end",
    "queue_time_at_start",
    "time_per_token_with_prefill",
    "time_per_output_token_of_many",
    "batch_prefill_seconds",
)
"""Histograms that vLLM does not have: TTFT counted when the request ends, queue time when it is scheduled, seconds in
the batch over output tokens, TPOT without the answers of one token, and a step's seconds for each batch of new
requests."""
FURTHER = ("arrived", "prompt_tokens_received", "first_tokens", "prefill_seconds", "shown_running", "shown_waiting")
"""Likewise: requests received and their prompt tokens, first tokens, seconds of steps with a prompt in them, and the
gauges of engines that refresh them now and then."""

NO_BOUNDS: Mapping[str, tuple[float, ...]] = MappingProxyType({})


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """The 1-2-5 series up to max_model_len that vLLM uses for tokens per request."""
    series = (float(digit * 10**power) for power in range(19) for digit in (1, 2, 5))
    return tuple(bound for bound in series if bound <= max_model_len)


def bounds(max_model_len: int, own: Mapping[str, tuple[float, ...]] = NO_BOUNDS) -> dict[str, tuple[float, ...]]:
    """Upper bounds of each histogram without `+Inf`, in the order of HISTOGRAMS: vLLM's, or the engine's `own`."""
    tokens = token_bounds(max_model_len)
    each = (
        *(FIRST_TOKEN, TOKEN_TIME, TOKEN_TIME),
        *(_REQUEST_TIME,) * 5,
        *(tokens, tokens, _ITERATION, _PREEMPTIONS, tokens),
    )
    return {name: own.get(name, usual) for name, usual in zip(HISTOGRAMS, each, strict=True)}


# Offsets in a row. The kernel is compiled with them as constants.
RUNNING, WAITING, KV_USAGE = range(3)
(
    GENERATION_TOKENS,
    PROMPT_TOKENS,
    PROMPT_COMPUTED,
    PROMPT_CACHED,
    PREFIX_QUERIES,
    PREFIX_HITS,
    PREEMPTIONS,
    STOPPED,
    LENGTH,
    REJECTED,
) = range(len(GAUGES), len(GAUGES) + len(COUNTERS))
FIRST_HISTOGRAM = len(GAUGES) + len(COUNTERS)
(TTFT, ITL, TPOT, E2E, QUEUE, INFERENCE, PREFILL, DECODE, PROMPT, GENERATION, ITERATION, EVICTED, COMPUTED) = range(
    len(HISTOGRAMS)
)
TTFT_AT_END, QUEUE_AT_START, WITH_PREFILL, TPOT_OF_MANY, PREFILL_BATCH = range(
    len(HISTOGRAMS), len(HISTOGRAMS) + len(OTHERS)
)
MAX_BOUNDS = 41
"""Room for bounds in a histogram; unused ones are +Inf, so that a value falls into the first that holds it."""
WIDTH = MAX_BOUNDS + 2
"""Places of one histogram: MAX_BOUNDS + 1 buckets, each counting its own values only, then their sum."""
SUM = MAX_BOUNDS + 1
FIRST_FURTHER = FIRST_HISTOGRAM + (len(HISTOGRAMS) + len(OTHERS)) * WIDTH
SIZE = FIRST_FURTHER + len(FURTHER)
ARRIVED, PROMPT_RECEIVED, FIRST_TOKENS, PREFILL_SECONDS, SHOWN_RUNNING, SHOWN_WAITING = range(FIRST_FURTHER, SIZE)


def sum_of(which: int) -> int:
    """Offset of a histogram's sum."""
    return FIRST_HISTOGRAM + which * WIDTH + SUM


def bounds_matrix(max_model_len: int, own: Mapping[str, tuple[float, ...]] = NO_BOUNDS) -> NDArray[np.float64]:
    """The bounds as the kernel reads them: one row a histogram, OTHERS too, padded with +Inf."""
    usual = dict(zip(OTHERS, (FIRST_TOKEN, _REQUEST_TIME, TOKEN_TIME, TOKEN_TIME, FIRST_TOKEN), strict=True))
    every = bounds(max_model_len, own) | usual | {name: own[name] for name in OTHERS if name in own}
    matrix = np.full((len(every), MAX_BOUNDS), np.inf)
    for row, each in zip(matrix, every.values(), strict=True):
        if len(each) >= MAX_BOUNDS:
            raise ValueError(f"max_model_len {max_model_len} needs {len(each)} buckets, a page has {MAX_BOUNDS - 1}")
        row[: len(each)] = each
    return matrix


def histogram(row: NDArray[np.float64], which: int) -> NDArray[np.float64]:
    """The places of one histogram in a row (a view): its own count of each bucket, then the sum."""
    start = FIRST_HISTOGRAM + which * WIDTH
    return row[start : start + WIDTH]
