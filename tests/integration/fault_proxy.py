"""A reverse proxy before an API server or a Prometheus: what it is told to do is what breaks."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from servingpool_lab.control_plane import free_ports

HOST = "localhost"
"""By name, so that it has to be resolved."""
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}

Rule = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse | None]]
"""Answers a request in the server's place; None lets the request through."""


class Proxy:
    """Listens on loopback while its context lasts. `rule` decides on each request."""

    def __init__(self, upstream: str, *, trust: ssl.SSLContext | None = None) -> None:
        self._upstream, self._trust = upstream, trust
        self._port = free_ports(1)[0]
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # of a connection that was cut there is nobody to tell
        self._connections: set[asyncio.Transport] = set()
        self.rule: Rule | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._run(self._open())
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.cut()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    @contextlib.contextmanager
    def breaking(self, rule: Rule, *, cut: bool = True) -> Iterator[None]:
        """The rule holds while the context lasts. `cut`: connections that stand end first, and watches with them."""
        self.rule = rule
        if cut:
            self.cut()
        try:
            yield
        finally:
            self.rule = None
            self.cut()

    def cut(self) -> None:
        """Reset each connection."""
        for transport in tuple(self._connections):
            self._loop.call_soon_threadsafe(transport.abort)

    async def ask(self, request: web.BaseRequest, body: bytes) -> tuple[int, bytes]:
        """Status and body of the server's answer, unpacked: of a request whose answer is changed or lost."""
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        headers["Accept-Encoding"] = "identity"
        url = self._upstream + request.raw_path
        async with self._session.request(request.method, url, headers=headers, data=body or None) as given:
            return given.status, await given.read()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._trust if self._trust is not None else True, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False)
        server = web.Server(self._handle)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self._port).start()

    async def _close(self) -> None:
        await self._session.close()
        await self._runner.cleanup()
        # A handler whose client was cut off may still wait for what the other end says.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            return web.Response(status=502)
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(transport)
        body = await request.read()
        if self.rule is not None:
            answer = await self.rule(request, body)
            if answer is not None:
                return answer
        return await self.forward(request, body)

    async def forward(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """The server's own answer, piece by piece."""
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        try:
            async with self._session.request(
                request.method,
                self._upstream + request.raw_path,
                headers=headers,
                data=body or None,
                timeout=aiohttp.ClientTimeout(total=None),
                skip_auto_headers=["Content-Type", "Accept-Encoding"],
            ) as given:
                kept = {name: value for name, value in given.headers.items() if name.lower() not in HOP_BY_HOP}
                answer = web.StreamResponse(status=given.status, reason=given.reason, headers=kept)
                await answer.prepare(request)
                async for chunk in given.content.iter_any():
                    await answer.write(chunk)
                await answer.write_eof()
                return answer
        except (aiohttp.ClientError, OSError):
            return reset(request)


def reset(request: web.BaseRequest) -> web.StreamResponse:
    """End the request's connection without an answer."""
    if request.transport is not None:
        assert isinstance(request.transport, asyncio.Transport)
        request.transport.abort()
    return web.Response(status=502)
