"""SGLang's page: the collectors of its schedulers, tokenizer manager and HTTP server, each process on its own.

The calls and their order are those of `managers/scheduler.py`, `managers/tokenizer_manager.py` and their helpers in the
wheel. SGLang prints in prometheus_client's multiprocess mode, so this does too.
"""

import importlib
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

from engine_pages import stand_ins, story
from engine_pages.sglang_imports import Unset, call, given, module
from engine_pages.story import Kind, Request

DECODE_LOG_INTERVAL = 40
"""Decode steps between two updates of the gauges: the default of `--decode-log-interval`."""
FORCE_STREAM_INTERVAL = 50
"""Tokens between two outputs of a request that does not stream, from the scheduler to the tokenizer manager."""
WARM_UP = [Request(arrives=5.0, prefill=1.9, prompt=3, output=8, streaming=False, rank=rank) for rank in (0, 1)]
"""The server's own requests, one HTTP request with a prompt for each DP rank, before it is ready."""


class _Scheduler:
    """One scheduler process: gauges of its batch, tokens as they are computed, waiting times.

    `dp_rank` is None for tensor parallelism, where every rank serves every request and only rank 0 `logs`.
    """

    def __init__(self, root: Path, *, tp_rank: int, dp_rank: int | None) -> None:
        self._collectors = module(root, "metrics_collector")
        self._dp_rank, self._logs = dp_rank, tp_rank == 0
        labels: dict[str, Any] = {
            "model_name": story.MODEL,
            "engine_type": "unified",
            "tp_rank": tp_rank,
            "pp_rank": 0,
            **({"moe_ep_rank": 0} if hasattr(self._collectors, "QueueCount") else {}),
            **({} if dp_rank is None else {"dp_rank": dp_rank}),
        }
        self._collector = call(self._collectors.SchedulerMetricsCollector, labels=labels, server_args=Unset())
        self._stats = self._collectors.SchedulerStats()
        self._requests = [*(WARM_UP[:1] if dp_rank is None else WARM_UP), *story.REQUESTS]
        self._steps = self._since_log = 0
        self._logged_at = 0.0
        self._cached_tokens = 0
        self._set(max_total_num_tokens=story.KV_TOKENS, engine_startup_time=21.5, engine_load_weights_time=6.2)
        if hasattr(self._collector, "emit_constants"):
            self._collector.emit_constants(
                max_total_num_tokens=story.KV_TOKENS,
                max_total_num_tokens_swa=None,
                weight_memory_usage_gb=14.9,
                kv_cache_memory_usage_gb=2.6,
                graph_memory_usage_gb={"decode": 0.4},
                max_running_requests_under_SLO=None,
                page_size=1,
                num_pages=story.KV_TOKENS,
                context_len=story.MAX_MODEL_LEN,
                startup_available_gpu_memory_gb=3.1,
            )

    def _serves(self, request: Request) -> bool:
        return self._dp_rank is None or request.rank == self._dp_rank

    def _count(self, requests: list[Request]) -> Any:
        """Their number, in this version's type."""
        total = len(requests)
        return self._collectors.QueueCount(total=total) if hasattr(self._collectors, "QueueCount") else total

    def _set(self, **stats: Any) -> None:
        for name, value in stats.items():
            if hasattr(self._stats, name):
                setattr(self._stats, name, value)

    def _log(self, now: float, running: list[Request]) -> None:
        waiting = [request for request in story.waiting(now) if self._serves(request)]
        used = sum(request.prompt + request.generated(now) for request in running)
        if now > self._logged_at:
            self._set(gen_throughput=round(self._since_log / (now - self._logged_at), 3) if running else 0)
        self._set(
            num_running_reqs=self._count(running),
            num_queue_reqs=self._count(waiting),
            num_used_tokens=used,
            kv_used_tokens=used,
            kv_evictable_tokens=self._cached_tokens,
            kv_available_tokens=story.KV_TOKENS - used - self._cached_tokens,
            token_usage=round(used / story.KV_TOKENS, 4),
            full_token_usage=round(used / story.KV_TOKENS, 4),
            decode_sum_seq_lens=used,
            is_cuda_graph=float(bool(running)),
        )
        self._since_log, self._logged_at = 0, now
        self._collector.log_stats(self._stats)

    def _prefill(self, request: Request, now: float) -> None:
        self._collector.observe_per_stage_req_latency("prefill_forward", request.prefill)
        if not self._logs:
            return
        computed = request.prompt - request.cached
        self._set(cache_hit_rate=request.cached / request.prompt)
        if hasattr(self._collector, "increment_realtime_tokens"):
            self._collector.increment_realtime_tokens(
                dp_cooperation_info=None, prefill_compute_tokens=computed, prefill_cache_tokens=request.cached
            )
        if hasattr(self._collector, "increment_effective_prefill_tokens"):
            self._collector.increment_effective_prefill_tokens(computed, request.cached, 0, 0)
        self._log(now, [other for other in self._running(now) if other is not request])

    def _running(self, now: float) -> list[Request]:
        return [request for request in self._requests if self._serves(request) and request.starts <= now < request.ends]

    def _decode(self, now: float) -> None:
        """One more token of one request; a step is taken to make one token, whichever the batch."""
        self._steps += 1
        self._since_log += 1
        if not self._logs:
            return
        if hasattr(self._collector, "increment_realtime_tokens"):
            self._collector.increment_realtime_tokens(dp_cooperation_info=None, decode_tokens=1)
        if self._steps % DECODE_LOG_INTERVAL == 0:
            self._log(now, self._running(now))

    def play(self, until: float) -> None:
        """The engine's life until then."""
        for event in story.events(until, self._requests):
            request = event.request
            if not self._serves(request):
                continue
            if event.kind is Kind.STARTS:
                self._collector.observe_per_stage_req_latency("request_process", 0.001)
                self._collector.observe_queue_time(request.waits)
            elif event.kind is Kind.TOKEN and event.number == 1:
                self._prefill(request, event.time)
            elif event.kind is Kind.TOKEN:
                self._decode(event.time)
            elif event.kind is Kind.ENDS:
                self._cached_tokens += request.prompt + request.output - request.cached
                if self._logs and not self._running(event.time):
                    self._log(event.time, [])


class _Server:
    """The process of HTTP server and tokenizer manager: HTTP counters, TTFT, ITL and what is counted at the end."""

    def __init__(self, root: Path, warm_up: list[Request]) -> None:
        labels: dict[str, Any] = {"model_name": story.MODEL}
        collectors = module(root, "metrics_collector")
        if hasattr(collectors, "tokenizer_metric_labels"):
            labels["engine_type"] = "unified"
        self._collector = call(
            collectors.TokenizerMetricsCollector, labels=labels, server_args=Unset(), collect_tokens_histogram=False
        )
        self._labels, self._warm_up = labels, warm_up
        self._last: dict[Request, tuple[float, int]] = {}
        self._http = self._http_metrics()
        if hasattr(self._collector, "emit_startup_time"):
            self._collector.emit_startup_time(
                {
                    "load_weight": 6.2,
                    "kv_cache_allocation": 0.3,
                    "scheduler_e2e": 18.4,
                    "tokenizer_e2e": 21.5,
                    "cuda_graph": {"decode": 4.1},
                }
            )

    @staticmethod
    def _http_metrics() -> Any:
        """The HTTP server's collectors; None where they are no class that can be run alone."""
        try:
            return importlib.import_module("sglang.srt.observability.http_request_metrics")._HttpRequestMetrics()  # noqa: SLF001
        except (ImportError, AttributeError, NotImplementedError):
            return None

    def _request(self, endpoint: str, method: str) -> None:
        if self._http:
            self._http.requests_total.labels(endpoint=endpoint, method=method).inc()
            self._http.requests_active.labels(endpoint=endpoint, method=method).inc()

    def _response(self, endpoint: str, method: str) -> None:
        if self._http:
            self._http.responses_total.labels(endpoint=endpoint, method=method, status_code="200").inc()
            self._http.requests_active.labels(endpoint=endpoint, method=method).dec()

    def _output(self, request: Request, now: float, tokens: int, *, over: bool) -> None:
        """`collect_metrics` of the tokenizer manager, at one output of one request."""
        stream = request.streaming
        if request not in self._last:
            call(
                self._collector.observe_time_to_first_token,
                self._labels,
                round(now - request.arrives, 6),
                stream=stream,
            )
        else:
            then, before = self._last[request]
            self._collector.observe_inter_token_latency(self._labels, round(now - then, 6), tokens - before)
        self._last[request] = now, tokens
        if not over:
            return
        decode = (now - request.token_time(1)) / (tokens - 1) if tokens > 1 else None
        call(
            self._collector.observe_one_finished_request,
            self._labels,
            prompt_tokens=request.prompt,
            generation_tokens=tokens,
            cached_tokens=request.cached,
            e2e_latency=round(now - request.arrives, 6),
            has_grammar=False,
            retraction_count=0,
            cached_tokens_details={"device": request.cached, "host": 0},
            is_streaming=stream,
            time_per_output_token=None if request.aborted or decode is None else round(decode, 6),
        )

    def play(self, until: float) -> None:
        """The server's life until then, which ends with the scrape that prints the page; one scrape in 15 s."""
        self._request("/model_info", "GET")
        self._response("/model_info", "GET")
        for _ in range(int(until // 15)):
            self._request("/metrics", "GET")
            self._response("/metrics", "GET")
        for event in story.events(until, (*self._warm_up, *story.REQUESTS)):
            request = event.request
            endpoint = "/generate" if request in WARM_UP else "/v1/chat/completions"
            if event.kind is Kind.ARRIVES and request is not WARM_UP[1]:
                self._request(endpoint, "POST")
            elif event.kind is Kind.TOKEN:
                over = event.number == request.output
                if over or request.streaming or event.number % FORCE_STREAM_INTERVAL == 0:
                    self._output(request, event.time, event.number, over=over)
            elif event.kind is Kind.ENDS:
                if request.aborted:
                    self._collector.observe_one_aborted_request(self._labels)
                if request is not WARM_UP[1]:
                    self._response(endpoint, "POST")
        self._request("/metrics", "GET")


def _process(number: int, root: Path, until: float, ranks: dict[str, int | None] | list[Request]) -> None:
    """One process of the engine: a scheduler of these ranks, or the server that sends these requests first."""
    os.getpid = lambda: number  # prometheus_client prints it as a label
    stand_ins.install(root, ("sglang", "msgspec", "torch"), given())
    if isinstance(ranks, list):
        _Server(root, ranks).play(until)
    else:
        _Scheduler(root, **ranks).play(until)  # type: ignore[arg-type]


DATA_PARALLEL: list[dict[str, int | None]] = [{"tp_rank": 0, "dp_rank": 0}, {"tp_rank": 0, "dp_rank": 1}]
TENSOR_PARALLEL: list[dict[str, int | None]] = [{"tp_rank": 0, "dp_rank": None}, {"tp_rank": 1, "dp_rank": None}]


def page(root: Path, until: float, variant: str) -> str:
    """The page at a time of the story, with two DP ranks, or two TP ranks if `variant` is "tp2".

    `root` holds the unpacked modules.
    """
    with tempfile.TemporaryDirectory() as shared:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = shared
        fork = multiprocessing.get_context("fork")
        processes = [*TENSOR_PARALLEL, WARM_UP[:1]] if variant == "tp2" else [*DATA_PARALLEL, WARM_UP]
        for number, ranks in enumerate(processes, start=101):
            process = fork.Process(target=_process, args=(number, root, until, ranks))
            process.start()
            process.join()
            if process.exitcode:
                raise RuntimeError("a collector did not run: its error is above")
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415
        from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

        class InOrder(MultiProcessCollector):
            """Its processes in the order of their numbers, whatever the folder's order."""

            def collect(self) -> Any:
                return self.merge(sorted(str(file) for file in Path(shared).glob("*.db")), accumulate=True)  # type: ignore[no-untyped-call]

        registry = CollectorRegistry()
        InOrder(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry).decode()
