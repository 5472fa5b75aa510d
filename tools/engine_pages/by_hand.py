"""Pages of engines whose collectors cannot be run here: names, labels, buckets, what counts when, from sources.

The figures are those of the same story. Facts: docs and sources named in `SOURCES`, which the header repeats.
"""

from math import ceil

from engine_pages import story
from engine_pages.story import Request
from engine_pages.writer import Writer

SOURCES = {
    "tensorrt-llm-050f80de": "by hand from tensorrt_llm/metrics/collector.py of TensorRT-LLM, main, commit 050f80de",
    "tgi-3.3.7": "by hand from router/src and backends/v3/src of text-generation-inference 3.3.7",
    "nim-1.0.0": "by hand from the observability page of NIM for LLMs and a page that users of 1.0.0 recorded",
}
"""Of a page's name: where its facts are from."""

TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
LATENCY_TAIL = (120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
TOKENS_PER_BLOCK = 32


def _over(now: float) -> list[Request]:
    """Requests that ended as they should."""
    return [request for request in story.REQUESTS if request.ends <= now and not request.aborted]


def _ttft(request: Request) -> float:
    return request.token_time(1) - request.arrives


def _later_tokens(now: float) -> list[float]:
    """Seconds before each token but the first ones, until now."""
    return [request.tpot for request in story.REQUESTS for _ in range(1, request.generated(now))]


def nim(now: float) -> str:
    """NIM for LLMs: vLLM's first names with no prefix; tokens and TTFT as they come, the rest at the end."""
    page = Writer({"model_name": story.MODEL})
    started = [request for request in story.REQUESTS if request.generated(now)]
    over = _over(now)
    used = sum(request.prompt + request.generated(now) for request in story.running(now))
    page.gauge("num_requests_running", "Number of requests currently running on GPU.", len(story.running(now)))
    page.gauge("num_requests_waiting", "Number of requests waiting to be processed.", len(story.waiting(now)))
    page.gauge("num_request_max", "Max number of concurrently running requests.", 64)
    page.gauge("gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage.", used / story.KV_TOKENS)
    prompts = sum(request.prompt for request in started)
    page.counter("prompt_tokens_total", "Number of prefill tokens processed.", (prompts, {}))
    generated = sum(request.generated(now) for request in started)
    page.counter("generation_tokens_total", "Number of generation tokens processed.", (generated, {}))
    ttft = [_ttft(request) for request in started]
    page.histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", TTFT, ttft)
    text = "Histogram of time per output token in seconds."
    page.histogram("time_per_output_token_seconds", text, TPOT, _later_tokens(now))
    latency = (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
    e2e = [request.ends - request.arrives for request in over]
    page.histogram("e2e_request_latency_seconds", "Histogram of end to end request latency in seconds.", latency, e2e)
    lengths = [float(m * 10**k) for k in range(4) for m in (1, 2, 5) if m * 10**k <= story.MAX_MODEL_LEN]
    inputs, outputs = [request.prompt for request in over], [request.output for request in over]
    page.histogram("request_prompt_tokens", "Number of prefill tokens processed.", lengths, inputs)
    page.histogram("request_generation_tokens", "Number of generation tokens processed.", lengths, outputs)
    text = "Count of finished requests, differentiated by finish reason as label."
    aborted = [request for request in story.REQUESTS if request.aborted and request.ends <= now]
    reasons = ((len(over), {"finished_reason": "stop"}), (len(aborted), {"finished_reason": "abort"}))
    page.counter("request_finish_total", text, *(reason for reason in reasons if reason[0]))
    page.counter("request_success_total", "Count of successful requests.", (len(over), {}))
    page.counter("request_failure_total", "Count of failed requests.", (len(aborted), {}))
    return page.page


def _rust(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(int(value)) if value == int(value) else repr(value)


def tgi(now: float) -> str:
    """Text Generation Inference: no labels of model or engine, counters with no `_total`, requests by their ends.

    `tgi_batch_next_size` is left out: a histogram of 1,024 buckets. All requests came by /v1/chat/completions, which
    `tgi_request_count` counts twice: at that endpoint and at the one that it calls.
    """
    page = Writer({}, _rust)
    over = _over(now)
    arrived = [request for request in story.REQUESTS if request.arrives <= now]
    started = [request for request in arrived if request.generated(now)]
    steps = {"decode": [0.02] * len({round(t, 2) for t in _step_times(now)}), "prefill": [r.prefill for r in started]}
    dropped = [request for request in arrived if request.aborted and request.ends <= now]
    page.counter("tgi_request_count", "Total number of requests", (2 * len(arrived), {}))
    page.counter("tgi_request_success", "Number of successful requests", (len(over), {}))
    if dropped:
        page.counter("tgi_request_failure", "", (len(dropped), {"err": "dropped"}))
    calls = [(len(seconds), {"method": method}) for method, seconds in steps.items()]
    page.counter("tgi_batch_inference_count", "Inference calls per method (prefill or decode)", *calls)
    text = "Number of successful inference calls per method (prefill or decode)"
    page.counter("tgi_batch_inference_success", text, *calls)
    page.gauge("tgi_queue_size", "Current queue size", len(story.waiting(now)))
    running = story.running(now)
    page.gauge("tgi_batch_current_size", "Current batch size", len(running))
    most = sum(request.prompt + request.output for request in running)
    page.gauge("tgi_batch_current_max_tokens", "Maximum tokens for the current batch", most)
    page.gauge("tgi_batch_max_total_tokens", "", story.KV_TOKENS)
    durations = [0.0001 * 1.5]
    while len(durations) < 35:
        durations.append(durations[-1] * 1.5)
    for name, text, values in (
        ("request_duration", "Total time spent processing the request", [r.ends - r.arrives for r in over]),
        ("request_validation_duration", "Time spent validating the request", [0.0005] * len(over)),
        ("request_queue_duration", "Time spent in the queue per request", [r.waits for r in over]),
        ("request_inference_duration", "Request inference duration", [r.ends - r.starts for r in over]),
        (
            "request_mean_time_per_token_duration",
            "Mean time per token per request",
            [(r.ends - r.starts) / r.output for r in over],
        ),
    ):
        page.histogram(f"tgi_{name}", text, durations, values)
    for name, text, share in (
        ("inference", "Batch inference duration", 1.0),
        ("forward", "Batch forward duration per method (prefill or decode)", 0.95),
    ):
        page.head("histogram", f"tgi_batch_{name}_duration", text)
        for method, seconds in steps.items():
            page.buckets(f"tgi_batch_{name}_duration", durations, [share * s for s in seconds], method=method)
    hundredths = [story.MAX_MODEL_LEN / 100 * (k + 1) for k in range(100)]
    lengths = [request.prompt for request in arrived]
    page.histogram("tgi_request_input_length", "Input token length per request", hundredths, lengths)
    outputs = [request.output for request in over]
    page.histogram("tgi_request_generated_tokens", "Generated tokens per request", hundredths, outputs)
    quantiles = (0, 0.5, 0.9, 0.95, 0.99, 0.999, 1)
    tokens = sum(request.generated(now) for request in arrived)
    page.summary("tgi_request_skipped_tokens", "Speculated tokens per request", quantiles, [0] * tokens)
    return page.page


def _step_times(now: float) -> list[float]:
    return [request.token_time(number) for request in story.REQUESTS for number in range(2, request.generated(now) + 1)]


def tensorrt_llm(now: float) -> str:
    """`trtllm-serve`'s page: all of a request at its end, and nothing that is 0; gauges have a label `pid`."""
    page = Writer({"model_name": "undefined", "engine_type": "undefined"})
    over, running = _over(now), story.running(now)
    blocks = sum(ceil((request.prompt + request.generated(now)) / TOKENS_PER_BLOCK) for request in running)
    most = story.KV_TOKENS // TOKENS_PER_BLOCK
    reused = sum(request.cached // TOKENS_PER_BLOCK for request in story.REQUESTS if request.generated(now))
    missed = sum(
        ceil((request.prompt - request.cached) / TOKENS_PER_BLOCK)
        for request in story.REQUESTS
        if request.generated(now)
    )
    for name, text, value in (
        ("num_requests_running", "Number of active requests", len(running)),
        ("num_requests_waiting", "Number of queued requests", len(story.waiting(now))),
        ("max_num_active_requests", "Maximum number of active requests", 64),
        ("iteration_latency_seconds", "Iteration latency in seconds", 0.02),
        ("gpu_memory_usage_bytes", "GPU memory usage in bytes", 40_000_000_000),
        ("max_batch_size_runtime", "Runtime maximum batch size", 64),
        ("max_num_tokens_runtime", "Runtime maximum number of tokens", story.MAX_MODEL_LEN),
        ("kv_cache_hit_rate", "KV cache hit rate", reused / (reused + missed)),
        ("kv_cache_utilization", "KV cache utilization", blocks / most),
        ("kv_cache_max_blocks", "Maximum number of KV cache blocks", most),
        ("kv_cache_free_blocks", "Number of free KV cache blocks", most - blocks),
        ("kv_cache_used_blocks", "Number of used KV cache blocks", blocks),
        ("kv_cache_tokens_per_block", "Number of tokens per KV cache block", TOKENS_PER_BLOCK),
        ("num_context_requests", "Number of context (prefill) requests", 0),
        ("num_generation_requests", "Number of generation (decode) requests", len(running)),
        ("num_paused_requests", "Number of paused requests", 0),
        ("num_scheduled_requests", "Number of scheduled requests", len(running)),
        ("total_context_tokens", "Total number of context tokens", 0),
    ):
        page.gauge(f"trtllm_{name}", text, value, pid="101")
    for name, text, value in (
        ("kv_cache_reused_blocks_total", "Cumulative number of KV cache blocks reused (cache hits)", reused),
        ("kv_cache_missed_blocks_total", "Cumulative number of KV cache blocks missed (cache misses)", missed),
        ("num_requests_completed_total", "Total number of completed requests across iterations", len(over)),
        (
            "prompt_tokens_total",
            "Cumulative number of prompt (input) tokens processed.",
            sum(request.prompt for request in over),
        ),
        (
            "generation_tokens_total",
            "Cumulative number of generation (output) tokens produced.",
            sum(request.output for request in over),
        ),
    ):
        page.counter(f"trtllm_{name}", text, (value, {}))
    text = "Count of successfully processed requests."
    page.counter("trtllm_request_success_total", text, (len(over), {"finished_reason": "stop"}))
    ttft, tpot = (*TTFT, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0), (*TPOT, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
    prefill = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0)
    latency = (*LATENCY, *LATENCY_TAIL)
    for name, text, bounds, values in (
        ("e2e_request_latency", "end to end request latency in seconds.", latency, [r.ends - r.arrives for r in over]),
        ("time_to_first_token", "time to first token in seconds.", ttft, [_ttft(r) for r in over]),
        ("time_per_output_token", "time per output token in seconds.", tpot, [r.tpot for r in over if r.output > 1]),
        ("request_queue_time", "time spent in WAITING phase for request.", latency, [r.waits for r in over]),
        (
            "request_prefill_time",
            "prefill (context) phase duration in seconds (first_token_time - first_scheduled_time).",
            (*prefill, 2560.0),
            [r.prefill for r in over],
        ),
    ):
        page.histogram(f"trtllm_{name}_seconds", f"Histogram of {text}", bounds, [round(v, 6) for v in values])
    return page.page


PAGES = {"tensorrt-llm-050f80de": tensorrt_llm, "tgi-3.3.7": tgi, "nim-1.0.0": nim}
