"""Engine pods on loopback: in this process where only requests matter, in one of their own where signals do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from servingpool_lab.engine_pod.replica import Replica
from servingpool_lab.engine_pod.server import EngineServer
from servingpool_simulation.hardware import EngineProfile, engine_profile

MODEL = "tiny"
QUICK = engine_profile("l40s-8b-tp1", max_model_len=4096).scaled(0.4)
"""Steps of about 10 ms."""


@dataclass
class Pod:
    url: str
    replica: Replica
    server: EngineServer


@contextlib.asynccontextmanager
async def listening(app: web.Application, **runner: Any) -> AsyncIterator[str]:
    """The URL of an application on a port of its own."""
    made = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, **runner)
    await made.setup()
    try:
        await web.TCPSite(made, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{made.addresses[0][1]}"
    finally:
        await made.cleanup()


@contextlib.asynccontextmanager
async def engine_pod(profile: EngineProfile = QUICK) -> AsyncIterator[Pod]:
    """One that has loaded."""
    replica = Replica(profile, clock=asyncio.get_running_loop().time)
    time_passes = asyncio.create_task(replica.run())
    server = EngineServer(replica, (MODEL, "alias"))
    try:
        async with listening(server.application(), handler_cancellation=True) as url:
            yield Pod(url, replica, server)
    finally:
        time_passes.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await time_passes


@dataclass
class PodProcess:
    url: str
    process: asyncio.subprocess.Process

    async def loaded(self) -> None:
        """Waits until it listens."""
        async with aiohttp.ClientSession() as http, asyncio.timeout(30):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"{self.url}/health") as answer:
                        assert answer.status == 200
                        return
                await asyncio.sleep(0.02)

    async def says(self, word: str) -> None:
        """Waits until its log has it."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while word not in (line := (await self.process.stderr.readline()).decode()):
                assert line, f"it ended without {word!r}"

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 30)


@contextlib.asynccontextmanager
async def engine_process(*arguments: str) -> AsyncIterator[PodProcess]:
    """`python -m servingpool_lab.engine_pod`, as in a container without numba."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "servingpool_lab.engine_pod", "serve", MODEL, "--host=127.0.0.1"]
    process = await asyncio.create_subprocess_exec(
        *(*command, f"--port={port}", *arguments),
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield PodProcess(f"http://127.0.0.1:{port}", process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def samples(url: str) -> dict[str, float]:
    """The metrics page by name of sample, summed over labels."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as answer:
        text = await answer.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def eventually(check: Callable[[], bool]) -> None:
    """Until `check()` holds."""
    async with asyncio.timeout(30):
        while not check():  # noqa: ASYNC110, what is checked has no event
            await asyncio.sleep(0.005)
