"""The emulator's HTTP server and its two loops: time passes, and pods come and go."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from servingpool.adapters.cluster.client import Connection
from servingpool_lab.emulator.exposition import CONTENT_TYPE
from servingpool_lab.emulator.pods import Pod, Pods, PodSink

_STEP_SECONDS = 0.5


class Served(PodSink, Protocol):
    """What answers for the pods: a `World`, or several."""

    def leavers(self) -> list[Pod]:
        """Pods whose server has exited."""

    def page(self, key: str) -> bytes | None:
        """The metrics page of a pod; None while it does not listen."""

    def truth(self) -> dict[str, Any]:
        """Where the run stands."""

    def series(self) -> dict[str, Any]:
        """The run so far."""


def application(world: Served) -> web.Application:
    """Routes: each pod's `/pods/NAMESPACE/POD/metrics`, `/truth`, `/truth/series`, `/healthz`."""

    async def metrics(request: web.Request) -> web.Response:
        page = world.page(f"{request.match_info['namespace']}/{request.match_info['pod']}")
        if page is None:
            return web.Response(status=503, text="this pod does not listen: it loads, or there is none of this name\n")
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE})

    async def truth(_request: web.Request) -> web.Response:
        return web.json_response(world.truth())

    async def series(_request: web.Request) -> web.Response:
        return web.json_response(world.series())

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes(
        [
            web.get("/pods/{namespace}/{pod}/metrics", metrics),
            web.get("/truth", truth),
            web.get("/truth/series", series),
            web.get("/healthz", health),
        ]
    )
    return app


async def pass_time(world: Served, pods: Pods) -> None:
    """Keeps the fleet at the present and removes the pods whose servers have exited, for ever."""
    leaving: set[str] = set()
    while True:
        for pod in world.leavers():
            if pod.key not in leaving:
                leaving.add(pod.key)
                await pods.exit(pod.namespace, pod.name)
        await asyncio.sleep(_STEP_SECONDS)


async def serve(world: Served, *, kubeconfig: Path, namespace: str, selector: str, port: int) -> None:
    """Runs until SIGTERM or SIGINT, or until one of its loops fails."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(application(world), access_log=None)
    api = await Connection.connect(str(kubeconfig))
    try:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        pods = Pods(api, namespace, selector)
        loops = [asyncio.create_task(pods.follow(world)), asyncio.create_task(pass_time(world, pods))]
        stop = asyncio.create_task(stopped.wait())
        done, pending = await asyncio.wait([*loops, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for task in done:
            task.result()
    finally:
        await api.aclose()
        await runner.cleanup()
