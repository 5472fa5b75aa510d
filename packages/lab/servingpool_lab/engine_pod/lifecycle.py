"""From the start of the process to its end: loading, serving, SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal

from aiohttp import web

from servingpool_lab.engine_pod.options import Options
from servingpool_lab.engine_pod.replica import Replica
from servingpool_lab.engine_pod.server import EngineServer

log = logging.getLogger(__name__)

_LAST_WORDS = 2.0
"""Seconds for handlers to write what their clients are still to be told."""
_BACKLOG = 1024


async def run(options: Options) -> None:
    """One replica, until SIGTERM or SIGINT.

    While it loads, nothing listens: connections are refused, as with vLLM. After SIGTERM it goes on for at most
    `shutdown_timeout` seconds, while something is in flight; then what is left breaks off.
    """
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    seconds = options.draw_load_seconds()
    log.info("loading %s for %.1f s", options.models[0], seconds)
    if await _happens(stopped, seconds):
        return
    replica = Replica(options.profile)
    server = EngineServer(replica, options.models, quirks=options.quirks)
    # Without handler_cancellation a client that hangs up would be noticed by the next write only.
    runner = web.AppRunner(
        server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=_LAST_WORDS
    )
    await runner.setup()
    await web.TCPSite(runner, options.host, options.port, backlog=_BACKLOG).start()
    time_passes = asyncio.create_task(replica.run())
    log.info("serving on port %d", options.port)
    await asyncio.wait({time_passes, asyncio.ensure_future(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if not time_passes.done():
        server.draining = True
        log.info("draining for at most %g s", options.shutdown_timeout)
        await _drain(replica, options.shutdown_timeout)
    log.info("stopping with %d requests in flight", replica.in_flight)
    replica.cut()
    await runner.cleanup()
    time_passes.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await time_passes


async def _happens(event: asyncio.Event, within: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), within)
    except TimeoutError:
        return False
    return True


async def _drain(replica: Replica, within: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(replica.idle.wait(), None if math.isinf(within) else within)
