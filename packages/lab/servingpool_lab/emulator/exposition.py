"""A replica's `/metrics` page, as vLLM 0.32.0 prints it: names, help texts, types, labels, buckets and order.

Checked line by line against a page recorded from a real vLLM 0.32.0. What the engine model does not move
(multimodal cache, KV transfer, FLOPs, the HTTP layer) is printed as an idle server prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from servingpool_lab.emulator import engine_pages
from servingpool_lab.emulator.quirks import AS_VLLM, PageQuirks
from servingpool_simulation.engine import Buckets, EngineMetrics
from servingpool_simulation.hardware import BLOCK_TOKENS, EngineProfile

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]

# The bounds of this one histogram are not in `simulation.page`: nothing in the model depends on `n`.
_COMPLETIONS = (1.0, 2.0, 5.0, 10.0, 20.0)
_HTTP_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5),
    *(10.0, 30.0, 60.0),
)


@dataclass(frozen=True, slots=True)
class Server:
    """One vLLM server process, as far as its page tells."""

    model: str
    """The first `--served-model-name`."""
    profile: EngineProfile
    started_at: float
    """Unix time in seconds: the value of every `_created` series."""
    quirks: PageQuirks = AS_VLLM


def render(server: Server, metrics: EngineMetrics) -> bytes:
    """The page in Prometheus' text format: vLLM's, or that of the profile's other engine."""
    conduct = server.profile.conduct
    if conduct.name in engine_pages.PAGES:
        return engine_pages.render(conduct, server.model, metrics.row, metrics.edges)
    engine = server.quirks.applied(_engine(server, metrics))
    return generate_latest(_Page([*_process(server), *engine, *_http(server)]))


@dataclass(frozen=True, slots=True)
class _Page(Collector):
    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


@dataclass(frozen=True, slots=True)
class _Writer:
    """Makes families whose samples share labels and time of creation."""

    created_at: float | None
    """None for families of client libraries that print no `_created`."""
    labels: Labels = field(default_factory=dict)

    def gauge(self, name: str, text: str, values: float | Mapping[tuple[str, str], float]) -> Metric:
        return self._family(name, text, "gauge", "", values)

    def counter(self, name: str, text: str, values: float | Mapping[tuple[str, str], float]) -> Metric:
        return self._family(name, text, "counter", "_total", values)

    def histogram(self, name: str, text: str, buckets: Buckets) -> Metric:
        family = Metric(name, text, "histogram")
        counts = zip((*buckets.bounds, float("inf")), (*buckets.counts, buckets.count), strict=True)
        for bound, count in counts:
            le: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
            family.add_sample(f"{name}_bucket", {**self.labels, "le": le}, count)
        family.add_sample(f"{name}_count", dict(self.labels), buckets.count)
        family.add_sample(f"{name}_sum", dict(self.labels), buckets.total)
        if self.created_at is not None:
            family.add_sample(f"{name}_created", dict(self.labels), self.created_at)
        return family

    def _family(
        self, name: str, text: str, kind: str, suffix: str, values: float | Mapping[tuple[str, str], float]
    ) -> Metric:
        family = Metric(name, text, kind)
        samples = (
            [({label: value}, at) for (label, value), at in values.items()]
            if isinstance(values, Mapping)
            else [({}, values)]
        )
        for labels, value in samples:
            family.add_sample(name + suffix, {**self.labels, **labels}, value)
        if kind == "counter" and self.created_at is not None:
            for labels, _ in samples:
                family.add_sample(f"{name}_created", {**self.labels, **labels}, self.created_at)
        return family


def _by(label: str, values: Mapping[str, float]) -> dict[tuple[str, str], float]:
    return {(label, value): number for value, number in values.items()}


def _engine(server: Server, metrics: EngineMetrics) -> list[Metric]:
    write = _Writer(server.started_at, {"engine": "0", "model_name": server.model})
    return [*_load(write, metrics), *_tokens(write, metrics), *_requests(server, write, metrics), _cache_config(server)]


def _load(write: _Writer, metrics: EngineMetrics) -> list[Metric]:
    gauges = metrics.gauges
    waiting = gauges["num_requests_waiting"]
    return [
        write.counter(
            "vllm:estimated_flops_per_gpu",
            "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
            0.0,
        ),
        write.counter(
            "vllm:estimated_read_bytes_per_gpu",
            "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
            0.0,
        ),
        write.counter(
            "vllm:estimated_write_bytes_per_gpu",
            "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
            0.0,
        ),
        write.gauge(
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            gauges["num_requests_running"],
        ),
        write.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting),
        write.gauge(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
            "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
            "Sum of all reasons equals vllm:num_requests_waiting.",
            _by("reason", {"capacity": waiting, "deferred": 0.0}),
        ),
        write.gauge(
            "vllm:engine_sleep_state",
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
            "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
            _by("sleep_state", {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}),
        ),
        write.gauge(
            "vllm:kv_cache_usage_perc",
            "KV-cache usage. 1 means 100 percent usage.",
            gauges["kv_cache_usage_perc"],
        ),
    ]


def _tokens(write: _Writer, metrics: EngineMetrics) -> list[Metric]:
    counters = metrics.counters
    hits = counters["prompt_tokens_local_cache_hit"]
    return [
        write.counter(
            "vllm:prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            counters["prefix_cache_queries"],
        ),
        write.counter(
            "vllm:prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            counters["prefix_cache_hits"],
        ),
        write.counter(
            "vllm:external_prefix_cache_queries",
            "External prefix cache queries from KV connector cross-instance cache sharing, "
            "in terms of number of queried tokens.",
            0.0,
        ),
        write.counter(
            "vllm:external_prefix_cache_hits",
            "External prefix cache hits from KV connector cross-instance cache sharing, "
            "in terms of number of cached tokens.",
            0.0,
        ),
        write.counter("vllm:mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", 0.0),
        write.counter("vllm:mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", 0.0),
        write.counter(
            "vllm:num_preemptions",
            "Cumulative number of preemption from the engine.",
            counters["num_preemptions"],
        ),
        write.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", counters["prompt_tokens"]),
        write.counter(
            "vllm:prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            _by(
                "source",
                {
                    "local_compute": counters["prompt_tokens_local_compute"],
                    "local_cache_hit": hits,
                    "external_kv_transfer": 0.0,
                },
            ),
        ),
        write.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", hits),
        write.counter(
            "vllm:prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), "
            "host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. "
            "Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
            _by(
                "source",
                {
                    "device": counters["prefix_cache_hits"],
                    "host": 0.0,
                    "p2p": 0.0,
                    "disk": 0.0,
                    "external_unspecified": 0.0,
                },
            ),
        ),
        write.counter(
            "vllm:generation_tokens", "Number of generation tokens processed.", counters["generation_tokens"]
        ),
    ]


def _requests(server: Server, write: _Writer, metrics: EngineMetrics) -> list[Metric]:
    counters, histograms = metrics.counters, metrics.histograms
    # A client that replays a trace asks for exactly the tokens that the trace recorded.
    asked = histograms["request_generation_tokens"]
    finished = asked.count
    completions = Buckets(_COMPLETIONS, (finished,) * len(_COMPLETIONS), total=finished, count=finished)
    ended = {
        "stop": counters["request_success_stop"],
        "length": counters["request_success_length"],
        "abort": 0.0,
        "error": 0.0,
        "repetition": 0.0,
    }
    # The one family without the label `engine`: requests are refused before one is chosen.
    refusals = _Writer(server.started_at, {"model_name": server.model})
    families = [
        write.counter(
            "vllm:request_success", "Count of successfully processed requests.", _by("finished_reason", ended)
        ),
        refusals.counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            _by("reason", {"max_num_queued_reqs": 0.0, "max_num_queued_tokens": 0.0}),
        ),
    ]
    for name, text in _HISTOGRAMS.items():
        buckets = {"request_params_n": completions}.get(name) or histograms.get(name, asked)
        families.append(write.histogram(f"vllm:{name}", text, buckets))
    return families


_HISTOGRAMS = {
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "iteration_tokens_total": "Histogram of number of tokens per engine_step.",
    "request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
    "request_params_n": "Histogram of the n request parameter.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "request_time_per_output_token_seconds": "Histogram of time_per_output_token_seconds per request.",
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "request_num_preemptions": "Histogram of the number of times a request was preempted.",
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
    ),
}
"""Help texts, in the order of the page."""


def _cache_config(server: Server) -> Metric:
    profile = server.profile
    settings = {
        "_block_size_resolved": "True",
        "block_size": str(BLOCK_TOKENS),
        "cache_dtype": "auto",
        "cache_hit_alignment_tokens": "None",
        "effective_attention_block_size": str(BLOCK_TOKENS),
        "enable_mamba_shared_prefix_checkpoint": "False",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.92",
        "hash_block_size": "None",
        "is_attention_free": "False",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_layout": "None",
        "kv_cache_max_concurrency": str(profile.kv_tokens / profile.max_model_len),
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(profile.kv_blocks * BLOCK_TOKENS),
        "kv_offloading_backend": "native",
        "kv_offloading_size": "None",
        "kv_sharing_fast_prefill": "False",
        "mamba_block_size": "None",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": "None",
        "mamba_ssm_cache_dtype": "float32",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(profile.kv_blocks),
        "num_gpu_blocks_override": "None",
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": "None",
        "replayssm_buffer_len": "16",
        "skip_page_size_padded": "None",
        "sliding_window": "None",
        "swa_bounded_replay": "True",
        "use_kda_recoverssm": "False",
        "use_replayssm": "False",
        "user_specified_block_size": "False",
    }
    # It has no model_name: consumers join it on the pod.
    return _Writer(None, {"engine": "0", **settings}).gauge(
        "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", 1.0
    )


def _process(server: Server) -> list[Metric]:
    """What prometheus_client says of the Python process; the figures of the recorded one, but its start."""
    write = _Writer(None)
    python = {
        "implementation": "CPython",
        "major": "3",
        "minor": "11",
        "patchlevel": "7",
        "version": "3.11.7",
    }
    collections = {
        "python_gc_objects_collected": ("Objects collected during gc", (16062.0, 1917.0, 664.0)),
        "python_gc_objects_uncollectable": ("Uncollectable objects found during GC", (0.0, 0.0, 0.0)),
        "python_gc_collections": ("Number of times this generation was collected", (1572.0, 143.0, 10.0)),
    }
    return [
        *(
            write.counter(name, text, _by("generation", {str(k): value for k, value in enumerate(values)}))
            for name, (text, values) in collections.items()
        ),
        _Writer(None, python).gauge("python_info", "Python platform information", 1.0),
        write.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", 2.13989376e9),
        write.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", 6.5660928e8),
        write.gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            server.started_at,
        ),
        write.counter("process_cpu_seconds", "Total user and system CPU time spent in seconds.", 6.4),
        write.gauge("process_open_fds", "Number of open file descriptors.", 34.0),
        write.gauge("process_max_fds", "Maximum number of open file descriptors.", 20000.0),
    ]


def _http(server: Server) -> list[Metric]:
    """The HTTP server's own families, as before the first request: the model has no HTTP layer."""
    idle = Buckets(_HTTP_SECONDS, (0.0,) * len(_HTTP_SECONDS), total=0.0, count=0.0)
    return [
        Metric("http_requests", "Total number of requests by method, status and handler.", "counter"),
        Metric(
            "http_request_size_bytes",
            "Content length of incoming requests by handler. Only value of header is respected. "
            "Otherwise ignored. No percentile calculated. ",
            "summary",
        ),
        Metric(
            "http_response_size_bytes",
            "Content length of outgoing responses by handler. Only value of header is respected. "
            "Otherwise ignored. No percentile calculated. ",
            "summary",
        ),
        _Writer(server.started_at).histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            idle,
        ),
        Metric(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            "histogram",
        ),
    ]
