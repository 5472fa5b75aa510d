"""An engine of the stand-in fleet: its page under smooth load, whether it serves whole requests or a part of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

BASE, PER_REQUEST, PER_PREFILL_TOKEN = 0.016, 0.00008, 0.00007
PROMPT, OUTPUT = 1000, 200
FULLEST = 0.9
"""Load beyond which a pod lets requests wait: a step then takes 0.16 s."""
TTFT_BOUNDS = (0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
TPOT_BOUNDS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2)


@dataclass
class Latencies:
    """A cumulative histogram, as a page shows it."""

    bounds: tuple[float, ...]
    counts: list[float] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0.0] * (len(self.bounds) + 1)

    def observe(self, seconds: float, times: float) -> None:
        self.total += seconds * times
        for at, bound in enumerate((*self.bounds, math.inf)):
            self.counts[at] += times if seconds <= bound else 0.0

    def samples(self, name: str, labels: str) -> dict[str, float]:
        bounds = (*(f"{bound}" for bound in self.bounds), "+Inf")
        buckets = {
            f'{name}_bucket{{{labels},le="{bound}"}}': count for bound, count in zip(bounds, self.counts, strict=True)
        }
        return {**buckets, f"{name}_sum{{{labels}}}": self.total, f"{name}_count{{{labels}}}": self.counts[-1]}


@dataclass(frozen=True)
class Shape:
    """The requests that an engine serves."""

    prompt: int = PROMPT
    """Tokens."""
    output: int = OUTPUT
    """Tokens. Of a single one the prefill is all: nothing is decoded."""
    transferred: bool = False
    """The KV cache of the prompt comes from a prefill engine."""

    @property
    def work(self) -> float:
        """Replica-seconds of one request: 0.086 by default."""
        prefill = 0.0 if self.transferred else PER_PREFILL_TOKEN * self.prompt
        return prefill + (PER_REQUEST * self.output if self.decodes else 0.0)

    @property
    def decodes(self) -> bool:
        return self.output > 1

    def first_token(self, load: float) -> float:
        """Seconds to the first token of a request that does not wait, at this load."""
        return 0.2 if self.decodes else self.work / (1.0 - load)


USUAL = Shape()


@dataclass
class Engine:
    """One pod's cumulative figures under smooth load. What it cannot serve waits, and is late."""

    shape: Shape = USUAL
    requests: float = 0.0
    waiting: float = 0.0
    running: float = 0.0
    decode_steps: Latencies = field(default_factory=lambda: Latencies(TPOT_BOUNDS))
    ttft: Latencies = field(default_factory=lambda: Latencies(TTFT_BOUNDS))
    tpot: Latencies = field(default_factory=lambda: Latencies(TPOT_BOUNDS))

    def serve(self, rate: float, seconds: float) -> None:
        shape, work = self.shape, self.shape.work
        ended = min(self.waiting + rate * seconds, FULLEST / work * seconds)
        self.waiting += rate * seconds - ended
        self.requests += ended
        load = ended / seconds * work
        first_token = shape.first_token(load)
        step = BASE / (1.0 - load) if shape.decodes else 0.0
        self.running = min(ended / seconds * (shape.output * step if shape.decodes else first_token), 256.0)
        if shape.decodes:
            self.decode_steps.observe(step, ended * shape.output)
        self.tpot.observe(step, ended)  # vLLM counts 0 s where there is one token
        self.ttft.observe(first_token + self.waiting * work / FULLEST, ended)

    def page(self, model: str, running: float | None = None) -> str:
        name = f'model_name="{model}",engine="0"'
        by_source = f'vllm:prompt_tokens_by_source_total{{{name},source="external_kv_transfer"}}'
        samples = {
            f"vllm:num_requests_running{{{name}}}": self.running if running is None else running,
            f"vllm:num_requests_waiting{{{name}}}": self.waiting,
            f"vllm:kv_cache_usage_perc{{{name}}}": 0.2,
            f"vllm:generation_tokens_total{{{name}}}": self.requests * self.shape.output,
            f"vllm:prompt_tokens_total{{{name}}}": self.requests * self.shape.prompt,
            **({by_source: self.requests * self.shape.prompt} if self.shape.transferred else {}),
            f'vllm:request_success_total{{{name},finished_reason="stop"}}': self.requests,
            **self.ttft.samples("vllm:time_to_first_token_seconds", name),
            **self.decode_steps.samples("vllm:inter_token_latency_seconds", name),
            **self.tpot.samples("vllm:request_time_per_output_token_seconds", name),
        }
        return "".join(
            f"{sample} {value:g}\n" if value < 1e5 else f"{sample} {value:.3f}\n" for sample, value in samples.items()
        )
