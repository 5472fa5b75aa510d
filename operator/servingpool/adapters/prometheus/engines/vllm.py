"""vLLM V1, 0.9 to 0.32. The recorded page of 0.32 is `tests/fixtures/vllm-0.32.0-metrics.txt`."""

from __future__ import annotations

from servingpool.adapters.prometheus.engines.profile import EngineProfile

VLLM = EngineProfile(
    engine="vllm",
    model_label="model_name",
    sums={
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "generation_tokens": ("vllm:generation_tokens_total",),
        "prompt_tokens": ("vllm:prompt_tokens_total",),
        # By source (0.16) is counted with prompt_tokens, at the first token. The hits are counted at scheduling,
        # and again when a preempted request comes back, so they can run ahead.
        "cached_prompt_tokens": ("vllm:prompt_tokens_by_source_total", "vllm:prefix_cache_hits_total"),
        "admission_rejections": ("vllm:admission_rejections_total",),  # 0.32, and without the label engine
    },
    histograms={
        "time_to_first_token": ("vllm:time_to_first_token_seconds",),
        "inter_token_latency": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        # Before 0.11.1 only the per-token histogram exists, under a name that promises the other: the share of
        # late tokens then stands for that of late requests. One is near the other unless requests stall rarely.
        "time_per_output_token": (
            "vllm:request_time_per_output_token_seconds",
            "vllm:time_per_output_token_seconds",
        ),
        "queue_time": ("vllm:request_queue_time_seconds",),
    },
    # Not pid: several API servers each publish the gauges of the same engines.
    page_labels=("engine", "reason", "source"),
    # Of prompt_tokens_by_source all but what was computed: local hits and KV transfers cost no prefill.
    excluded={"source": "local_compute"},
)
