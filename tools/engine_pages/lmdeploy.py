"""LMDeploy's page: its metrics processor and logger, fed as `serve/core/async_engine.py` of the wheel feeds them."""

import asyncio
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine_pages import stand_ins, story
from engine_pages.story import Event, Kind, Request

SCHEDULE_INTERVAL, STARTED = 10.0, 1.5
"""Seconds between two updates of the gauges, whatever happens in between; time of the start that they count from."""
HANDLES = 3
"""Request handles, as many as `--max-batch-size`; who gets none waits in the API server, not in the engine."""


def _logger(_: str) -> Any:
    import logging  # noqa: PLC0415

    return logging.getLogger("lmdeploy")


class _Server:
    """The API server's process, which holds all of LMDeploy's collectors."""

    def __init__(self, root: Path) -> None:
        given: dict[str, dict[str, Any]] = {
            "lmdeploy.utils": {"get_logger": _logger},
            "lmdeploy.pytorch.utils": {"singleton": lambda cls: cls},
        }
        stand_ins.install(root, ("lmdeploy", "torch"), given)
        self.now = 0.0
        self._messages: Any = importlib.import_module("lmdeploy.messages")
        self._stats: Any = importlib.import_module("lmdeploy.metrics.stats")
        vars(self._stats)["time"] = SimpleNamespace(time=lambda: self.now)
        loggers: Any = importlib.import_module("lmdeploy.metrics.loggers")
        self._processor: Any = importlib.import_module("lmdeploy.metrics.metrics_processor").metrics_processor
        self._processor.stat_loggers = [loggers.PrometheusStatLogger(story.MODEL, story.MAX_MODEL_LEN, dp_rank=0)]
        self._requests: dict[Request, Any] = {}
        self._queries = self._hits = 0

    def _take_handle(self, request: Request) -> None:
        self._processor.increase_api_routed_requests()
        self._requests[request] = self._stats.RequestStats(prompt_tokens=request.prompt)

    async def _token(self, request: Request, number: int) -> None:
        of, over = self._messages, number == request.output and not request.aborted
        stats = self._requests[request]
        first = [
            of.EngineEvent(of.EventType.QUEUED, stats.arrival_time),
            of.EngineEvent(of.EventType.SCHEDULED, request.starts),
        ]
        output = of.EngineOutput(
            status=of.ResponseType.FINISH if over else of.ResponseType.SUCCESS,
            token_ids=[1],
            req_metrics=of.RequestMetrics(
                token_timestamp=self.now, engine_events=first if number == 1 else [], cached_tokens=request.cached
            ),
        )
        self._processor.queue_update((output, stats, self._stats.IterationStats(), None))
        await self._processor.metrics_queue.join()

    async def _event(self, event: Event) -> None:
        request = event.request
        if event.kind is Kind.ARRIVES:
            self._processor.increase_total_requests()
            if self._processor.scheduler_stats.num_api_routed_reqs < HANDLES:
                self._take_handle(request)
        elif event.kind is Kind.STARTS:
            if request not in self._requests:
                self._take_handle(request)
            self._queries += request.prompt
            self._hits += request.cached
        elif event.kind is Kind.TOKEN:
            await self._token(request, event.number)
        elif event.kind is Kind.ENDS:
            if request.aborted:
                self._processor.increase_failed_requests("cancel")
            else:
                self._processor.increase_succeeded_requests()
            self._processor.decrease_api_routed_requests()

    async def _schedule(self) -> None:
        running = story.running(self.now)
        used = sum(request.prompt + request.generated(self.now) for request in running)
        routed = sum(request in self._requests for request in story.waiting(self.now))
        await self._processor.update_schedule_stats(
            self._messages.ScheduleMetrics(
                active_seqs=len(running),
                waiting_seqs=routed,
                cache_usage=used / story.KV_TOKENS,
                prefix_cache_hit_rate=self._hits / self._queries if self._queries else 0.0,
            )
        )

    async def play(self, until: float) -> None:
        """The server's life until then."""
        self._processor.start_metrics_handler(enable_metrics=True)
        tick = STARTED + SCHEDULE_INTERVAL
        for event in [*story.events(until), None]:
            while tick < (event.time if event else until):
                self.now = tick
                await self._schedule()
                tick += SCHEDULE_INTERVAL
            if event:
                self.now = event.time
                await self._event(event)
        await self._processor.stop_metrics_handler()


def page(root: Path, until: float, _: str) -> str:
    """The page at a time of the story; `root` holds the unpacked modules.

    LMDeploy prints the process's own registry: its series on Python and the process are left out here.
    """
    from prometheus_client import (  # noqa: PLC0415
        GC_COLLECTOR,
        PLATFORM_COLLECTOR,
        PROCESS_COLLECTOR,
        REGISTRY,
        generate_latest,
    )

    for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR):
        REGISTRY.unregister(collector)
    server = _Server(root)
    asyncio.run(server.play(until))
    return generate_latest(REGISTRY).decode()
