"""The metrics pages of engines other than vLLM: each engine's names, filled by the simulation's description of it.

`servingpool_simulation.conduct` says what an engine counts and when; here stand only the names and labels under which
it prints that, as on the engines' own pages in tests/fixtures/engines. What the model does not move is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from prometheus_client.utils import floatToGoString

from servingpool_simulation import page
from servingpool_simulation.conduct import Conduct, Sum
from servingpool_simulation.page import sum_of
from servingpool_simulation.tables import Floats

ANSWERED = Sum((page.STOPPED, page.LENGTH))


@dataclass(frozen=True, slots=True)
class Line:
    """One family of a page, or the part of one with some labels."""

    name: str
    kind: str
    """`gauge`, `counter`, `histogram`, or `summary`, which has a sum and a count alone."""
    value: str | Sum | int | tuple[Sum, Sum]
    """A figure of the engine's conduct by its name; or places of the row; or a histogram; or sum and count."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Layout:
    """One engine's page."""

    labels: Mapping[str, str]
    """Of all its series. The model's name stands for `{model}`."""
    lines: tuple[Line, ...]


_STREAMING = {"is_streaming": "true"}
_RANK = {"dp_rank": "0", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
"""Labels of the series that SGLang's scheduler prints. Its tokenizer prints the others."""
_REALTIME = "sglang:realtime_tokens_total"
_ZERO = Sum(())
PAGES: Mapping[str, Layout] = {
    "sglang": Layout(
        {"model_name": "{model}", "engine_type": "unified"},
        (
            Line("sglang:num_running_reqs", "gauge", "running", _RANK),
            Line("sglang:num_queue_reqs", "gauge", "waiting", _RANK),
            Line("sglang:token_usage", "gauge", Sum((page.KV_USAGE,)), _RANK),
            Line(_REALTIME, "counter", "generation_tokens", {**_RANK, "mode": "decode"}),
            Line(_REALTIME, "counter", Sum((page.PROMPT_COMPUTED,)), {**_RANK, "mode": "prefill_compute"}),
            Line(_REALTIME, "counter", "cached_prompt_tokens", {**_RANK, "mode": "prefill_cache"}),
            Line("sglang:num_requests_total", "counter", ANSWERED, _STREAMING),
            Line("sglang:time_to_first_token_seconds", "histogram", "time_to_first_token", _STREAMING),
            Line("sglang:inter_token_latency_seconds", "histogram", "inter_token_latency"),
            Line("sglang:request_time_per_output_token_seconds", "histogram", "time_per_output_token", _STREAMING),
            Line("sglang:queue_time_seconds", "histogram", "queue_time", _RANK),
        ),
    ),
    "lmdeploy": Layout(
        {"model_name": "{model}", "engine": "0"},
        (
            Line("lmdeploy:num_requests_running", "gauge", "running"),
            Line("lmdeploy:num_requests_waiting", "gauge", "waiting"),
            Line("lmdeploy:num_api_requests_waiting", "gauge", _ZERO),
            Line("lmdeploy:gpu_cache_usage_perc", "gauge", Sum((page.KV_USAGE,))),
            Line("lmdeploy:generation_tokens_total", "counter", "generation_tokens"),
            Line("lmdeploy:prompt_tokens_total", "counter", "prompt_tokens"),
            Line("lmdeploy:cached_tokens_total", "counter", "cached_prompt_tokens"),
            Line("lmdeploy:time_to_first_token_seconds", "histogram", "time_to_first_token"),
            Line("lmdeploy:iter_token_latency", "histogram", "inter_token_latency"),
            Line("lmdeploy:time_per_output_token_seconds", "histogram", "time_per_output_token"),
            Line("lmdeploy:e2e_request_latency_seconds", "histogram", page.E2E),
            Line("lmdeploy:request_queue_time_seconds", "histogram", "queue_time"),
        ),
    ),
    "nim": Layout(
        {"model_name": "{model}"},
        (
            Line("num_requests_running", "gauge", "running"),
            Line("num_requests_waiting", "gauge", "waiting"),
            Line("gpu_cache_usage_perc", "gauge", Sum((page.KV_USAGE,))),
            Line("generation_tokens_total", "counter", "generation_tokens"),
            Line("prompt_tokens_total", "counter", "prompt_tokens"),
            Line("request_success_total", "counter", ANSWERED),
            Line("time_to_first_token_seconds", "histogram", "time_to_first_token"),
            Line("time_per_output_token_seconds", "histogram", "time_per_output_token"),
            Line("e2e_request_latency_seconds", "histogram", page.E2E),
        ),
    ),
    "tensorrt-llm": Layout(
        {"model_name": "undefined", "engine_type": "undefined"},
        (
            Line("trtllm_num_requests_running", "gauge", "running"),
            Line("trtllm_num_requests_waiting", "gauge", "waiting"),
            Line("trtllm_kv_cache_utilization", "gauge", Sum((page.KV_USAGE,))),
            Line("trtllm_generation_tokens_total", "counter", "generation_tokens"),
            Line("trtllm_prompt_tokens_total", "counter", "prompt_tokens"),
            Line("trtllm_prompt_cached_tokens_total", "counter", "cached_prompt_tokens"),
            Line("trtllm_num_requests_completed_total", "counter", ANSWERED),
            Line("trtllm_time_to_first_token_seconds", "histogram", "time_to_first_token"),
            Line("trtllm_time_per_output_token_seconds", "histogram", "time_per_output_token"),
            Line("trtllm_e2e_request_latency_seconds", "histogram", page.E2E),
            Line("trtllm_request_queue_time_seconds", "histogram", "queue_time"),
        ),
    ),
    "tgi": Layout(
        {},
        (
            Line("tgi_batch_current_size", "gauge", "running"),
            Line("tgi_queue_size", "gauge", "waiting"),
            Line("tgi_request_count", "counter", Sum((page.ARRIVED,))),
            Line("tgi_request_success", "counter", ANSWERED),
            # A token each, none skipped: the sum is of the tokens beyond the first of each step.
            Line("tgi_request_skipped_tokens", "summary", (_ZERO, Sum((page.GENERATION_TOKENS,)))),
            Line("tgi_request_input_length", "summary", (Sum((page.PROMPT_RECEIVED,)), Sum((page.ARRIVED,)))),
            Line("tgi_request_generated_tokens", "summary", (Sum((sum_of(page.GENERATION),)), ANSWERED)),
            Line("tgi_request_inference_duration", "summary", (Sum((sum_of(page.INFERENCE),)), ANSWERED)),
            Line("tgi_batch_inference_duration", "histogram", "time_to_first_token", {"method": "prefill"}),
            Line("tgi_request_mean_time_per_token_duration", "histogram", "time_per_output_token"),
            Line("tgi_request_queue_duration", "histogram", "queue_time"),
        ),
    ),
    "llamacpp": Layout(
        {},
        (
            Line("llamacpp:requests_processing", "gauge", "running"),
            Line("llamacpp:requests_deferred", "gauge", "waiting"),
            Line("llamacpp:prompt_tokens_total", "counter", Sum((page.PROMPT_COMPUTED,))),
            Line("llamacpp:prompt_tokens_cached_total", "counter", "cached_prompt_tokens"),
            Line("llamacpp:prompt_seconds_total", "counter", "prefill_seconds"),
            Line("llamacpp:tokens_predicted_total", "counter", "generation_tokens"),
            Line("llamacpp:tokens_predicted_seconds_total", "counter", Sum((sum_of(page.DECODE),))),
        ),
    ),
}
"""By the name for `spec.engine`."""


def render(conduct: Conduct, model: str, row: Floats, edges: Floats) -> bytes:
    """The page of an engine that is not vLLM, in Prometheus' text format. `edges`: the bounds of each histogram."""
    layout = PAGES[conduct.name]
    common = {label: value.format(model=model) for label, value in layout.labels.items()}
    lines: list[str] = []
    told: set[str] = set()
    for line in layout.lines:
        if line.name not in told:
            told.add(line.name)
            lines.append(f"# TYPE {line.name} {line.kind}")
        lines += [
            f"{line.name}{suffix}{_labels({**common, **line.labels, **more})} {floatToGoString(value)}"  # type: ignore[no-untyped-call]
            for suffix, more, value in _samples(conduct, line, row, edges)
        ]
    return ("\n".join(lines) + "\n").encode()


def _samples(conduct: Conduct, line: Line, row: Floats, edges: Floats) -> Iterator[tuple[str, dict[str, str], float]]:
    value = getattr(conduct, line.value) if isinstance(line.value, str) else line.value
    if isinstance(value, Sum):
        yield "", {}, _total(row, value)
    elif isinstance(value, tuple):
        yield "_sum", {}, _total(row, value[0])
        yield "_count", {}, _total(row, value[1])
    else:
        places = page.histogram(row, value)
        bounds = edges[value][np.isfinite(edges[value])]
        counts = np.cumsum(places[: page.SUM])
        for bound, count in zip(bounds.tolist(), counts.tolist(), strict=False):
            yield "_bucket", {"le": floatToGoString(bound)}, count  # type: ignore[no-untyped-call]
        yield "_bucket", {"le": "+Inf"}, float(counts[-1])
        yield "_sum", {}, float(places[page.SUM])
        yield "_count", {}, float(counts[-1])


def _total(row: Floats, figure: Sum) -> float:
    return float(row[list(figure.plus)].sum() - row[list(figure.minus)].sum())


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""
