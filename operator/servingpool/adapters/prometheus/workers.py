"""Few threads, a client each: `PrometheusConnect` blocks, and its session is not to be shared."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.errors import MetricsUnavailable, Unsent
from servingpool.adapters.prometheus.http_client import PrometheusClient

GRACE = 1.0
"""Seconds between a client's own deadline and cutting its connection."""

LEAST_LEFT = 0.1
"""Of the timeout: a query that others kept waiting for longer is not sent if less is left, for it would be in vain."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _Job:
    """What is known of a job on its thread."""

    began: bool = False
    """False where no thread was free for it."""
    client: PrometheusClient | None = None
    """While it uses it."""


class Workers:
    """Runs blocking jobs of one backend within deadlines."""

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix=f"prometheus-{config.name}")
        self._local = threading.local()
        self._clients: list[PrometheusClient] = []

    def deadline(self) -> float:
        """The monotonic time until which a job started now may take."""
        return time.monotonic() + self._config.timeout

    def run(
        self,
        deadline: float,
        job: Callable[Concatenate[PrometheusClient, float, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[T]:
        """`job(client, seconds left, *args)` on a thread, in the order of the calls, whatever is awaited first.

        The answer raises MetricsUnavailable if it is not there by the deadline, Unsent if no thread was free in time.
        """
        asked, state = time.monotonic(), _Job()

        def work() -> T:
            state.began = True
            now, least = time.monotonic(), LEAST_LEFT * self._config.timeout
            left = deadline - now
            if left < least < now - asked:
                raise self._unsent()
            if left <= 0:
                raise self._late()
            state.client = self._client()
            try:
                return job(state.client, left, *args, **kwargs)
            finally:
                state.client = None

        return self._in_time(deadline, asyncio.get_running_loop().run_in_executor(self._threads, work), state)

    async def _in_time(self, deadline: float, answer: Awaitable[T], state: _Job) -> T:
        try:
            # A client keeps its deadline by itself, except while a server drips headers, or stalls behind them.
            async with asyncio.timeout(deadline - time.monotonic() + GRACE):
                return await answer
        except TimeoutError:
            if (client := state.client) is not None:
                client.cut()  # else its thread waits for as long as the server drips, and is missing
            raise (self._late() if state.began else self._unsent()) from None

    def close(self) -> None:
        """Let go of threads and connections, those of queries under way too."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            client.cut()
            client.close()

    def _client(self) -> PrometheusClient:
        client: PrometheusClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = PrometheusClient(self._config)
            self._clients.append(client)
        return client

    def _unsent(self) -> Unsent:
        return Unsent(self._config.name, f"had other queries to answer for {self._config.timeout:g} s")

    def _late(self) -> MetricsUnavailable:
        return MetricsUnavailable(self._config.name, f"did not answer within {self._config.timeout:g} s")
