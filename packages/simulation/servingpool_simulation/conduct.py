"""What each engine's page tells, and when: as the operator's profile of that engine hands it to the core.

The engines' steps are vLLM's all the same; only the page differs. What is counted when was read from the engines' own
collectors, see `tests/fixtures/engines`. Not modelled: what a client's disconnect counts, and that SGLang counts a
prompt chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servingpool_simulation import page
from servingpool_simulation.page import sum_of

Bounds = tuple[tuple[str, tuple[float, ...]], ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """A figure from places of the page."""

    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Mean:
    """A histogram of which only sum (seconds) and count are known."""

    total: Sum
    count: Sum


@dataclass(frozen=True, slots=True)
class Conduct:
    """One engine's. Histograms are named by their place in the page; None is not exposed. The defaults are vLLM's."""

    name: str
    running: Sum = Sum((page.RUNNING,))
    waiting: Sum = Sum((page.WAITING,))
    generation_tokens: Sum = Sum((page.GENERATION_TOKENS,))
    prompt_tokens: Sum = Sum((page.PROMPT_TOKENS,))
    cached_prompt_tokens: Sum | None = Sum((page.PROMPT_CACHED,))
    admission_rejections: Sum | None = None
    begun: Sum | None = None
    prefill_seconds: Sum | None = None
    """Instead of TTFT; the gateway counts the requests."""
    time_to_first_token: int | Mean | None = page.TTFT
    inter_token_latency: int | Mean = page.ITL
    time_per_output_token: int | None = page.TPOT
    queue_time: int | None = page.QUEUE
    excludes_queue: bool = False
    """TTFT is known to exclude the queue."""
    own_bounds: Bounds = ()
    """Of histograms whose buckets are not vLLM's, by name."""
    gauges_every: float = 0.0
    """Seconds between two refreshes of the gauges; 0 for at once."""
    gauges_every_steps: int = 0
    """The gauges are refreshed at each prefill, every so many decode steps and when idle; 0 for at once."""
    ttft_from_handle: bool = False
    """TTFT and queue time count from when fewer than max_num_seqs requests are in flight before this one."""

    finishes_when_stopped: bool = False
    """On SIGTERM it finishes what it has, however long that takes, and `/health` is 503 meanwhile. Else it ends
    at once, unless told to wait."""

    @property
    def bounds(self) -> Mapping[str, tuple[float, ...]]:
        """By the histogram's name."""
        return dict(self.own_bounds)


_SHOWN_RUNNING, _SHOWN_WAITING = Sum((page.SHOWN_RUNNING,)), Sum((page.SHOWN_WAITING,))
_FINISHED = (page.STOPPED, page.LENGTH)
_LMDEPLOY_TOKEN = (0.005, *page.TOKEN_TIME)
_SGLANG_TOKEN = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04),
    *(0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0),
)
_SGLANG_FIRST = (
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0),
)
_SGLANG_QUEUE = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0),
    *(50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0),
    *(1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0, 3000.0),
)
_TGI_SECONDS = tuple(1e-4 * 1.5**power for power in range(1, 36))

VLLM = Conduct("vllm", admission_rejections=Sum(()))
SGLANG = Conduct(
    "sglang",
    running=_SHOWN_RUNNING,
    waiting=_SHOWN_WAITING,
    # A request's first token comes with its prefill, and is not counted as decoded.
    generation_tokens=Sum((page.GENERATION_TOKENS,), (page.FIRST_TOKENS,)),
    queue_time=page.QUEUE_AT_START,
    own_bounds=(
        ("time_to_first_token_seconds", _SGLANG_FIRST),
        ("inter_token_latency_seconds", _SGLANG_TOKEN),
        ("request_time_per_output_token_seconds", _SGLANG_TOKEN),
        ("queue_time_at_start", _SGLANG_QUEUE),
    ),
    gauges_every_steps=40,
    finishes_when_stopped=True,
)
"""0.5.23."""
LMDEPLOY = Conduct(
    "lmdeploy",
    running=_SHOWN_RUNNING,
    waiting=_SHOWN_WAITING,
    cached_prompt_tokens=Sum((sum_of(page.PROMPT),), (sum_of(page.COMPUTED),)),
    time_per_output_token=page.ITL,
    own_bounds=(("inter_token_latency_seconds", _LMDEPLOY_TOKEN),),
    gauges_every=10.0,
    ttft_from_handle=True,
)
"""0.18.0. Both queues, the API server's and the engine's, as one."""
NIM = Conduct(
    "nim",
    cached_prompt_tokens=None,
    time_per_output_token=page.ITL,
    queue_time=None,
    own_bounds=(
        ("time_to_first_token_seconds", page.FIRST_TOKEN[:16]),
        ("inter_token_latency_seconds", page.TOKEN_TIME[:13]),
    ),
)
"""1.0.0. TTFT to 10 s, TPOT to 2.5 s."""
TENSORRT_LLM = Conduct(
    "tensorrt-llm",
    generation_tokens=Sum((sum_of(page.GENERATION),)),
    prompt_tokens=Sum((sum_of(page.PROMPT),)),
    cached_prompt_tokens=Sum((sum_of(page.PROMPT),), (sum_of(page.COMPUTED),)),
    begun=Sum((*_FINISHED, page.RUNNING)),
    time_to_first_token=page.TTFT_AT_END,
    inter_token_latency=Mean(Sum((sum_of(page.DECODE),)), Sum((sum_of(page.GENERATION),), _FINISHED)),
    time_per_output_token=page.TPOT_OF_MANY,
)
"""Main, commit 050f80de. All that is told of a request is told at its end; the gauges are of now."""
TGI = Conduct(
    "tgi",
    prompt_tokens=Sum((page.PROMPT_RECEIVED,)),
    cached_prompt_tokens=None,
    begun=Sum((page.ARRIVED,), (page.WAITING,)),
    time_to_first_token=page.PREFILL_BATCH,
    inter_token_latency=Mean(Sum((sum_of(page.INFERENCE),)), Sum((sum_of(page.GENERATION),))),
    time_per_output_token=page.WITH_PREFILL,
    excludes_queue=True,
    own_bounds=(
        ("time_per_token_with_prefill", _TGI_SECONDS),
        ("request_queue_time_seconds", _TGI_SECONDS),
        ("batch_prefill_seconds", _TGI_SECONDS),
    ),
)
"""3.3.7. Seconds of inference are told at the end, prefill included. A prefill is told once for all requests that begin
together (backends/v3/src/backend.rs, `prefill`); a long prompt's further chunks are steps of its decoding."""
LLAMACPP = Conduct(
    "llamacpp",
    generation_tokens=Sum((sum_of(page.GENERATION),)),
    # Told here at the end of a request, there at its first token.
    prefill_seconds=Sum((sum_of(page.PREFILL),)),
    time_to_first_token=None,
    inter_token_latency=Mean(Sum((sum_of(page.DECODE),)), Sum((sum_of(page.GENERATION),))),
    time_per_output_token=None,
    queue_time=None,
    excludes_queue=True,
)
"""b0c1e570. It counts no requests: a gateway does."""
CONDUCTS = {conduct.name: conduct for conduct in (VLLM, SGLANG, LMDEPLOY, NIM, TENSORRT_LLM, TGI, LLAMACPP)}
