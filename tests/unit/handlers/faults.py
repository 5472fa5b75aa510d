"""Faults of an API server and of the way to it, each for one kind of request. By HTTPS and by name, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from servingpool.adapters.cluster import session
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool_lab import credentials
from servingpool_lab.credentials import CertificateAuthority, write_kubeconfig

from ..adapters.cluster import virtual_time  # noqa: TID252, tests are no package of an installed name
from ..fuzzing import EXAMPLES, counted, worst  # noqa: TID252

HOST = "api.example.com"
LATER = {"Retry-After": "3600"}
REFUSALS: dict[str, dict[str, Any]] = {
    **{str(each): {"status": each, "headers": LATER} for each in (400, 401, 403, 404, 409, 410, 422, 429, 500, 503)},
    "login page": {"text": "<html>", "content_type": "text/html"},
    **{
        text: {"text": text}
        for text in ("[]", "null", "{}", '{"items": 3}', '{"items": [null]}', '{"metadata": {}, "spec": 1}')
    },
}
NO_NAME = "no name"
CERTIFICATES = ("expired certificate", "another's certificate", "certificate of another name")
WAYS = (NO_NAME, *CERTIFICATES)
FAULTS = [*REFUSALS, "reset", "silence", "late", *WAYS]
DURATIONS = (0.0, 20.0) if EXAMPLES < 1_000 else (0.0, 20.0, 600.0)
"""Seconds of a fault; 0 for one request. `make soak` has those of ten minutes."""


@functools.cache
def shown() -> tuple[bytes, dict[str, ssl.SSLContext]]:
    """The authority that is trusted, and what a server shows, by fault; under no name what it should."""
    authority = CertificateAuthority()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credentials, "_LIFETIME", timedelta(seconds=-1))
        expired = authority.issue_server([HOST], [])
    others = CertificateAuthority().issue_server([HOST], []), authority.issue_server(["example.com"], [])
    found = {}
    for fault, identity in zip(
        ("", *CERTIFICATES), (authority.issue_server([HOST], []), expired, *others), strict=True
    ):
        found[fault] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(identity.certificate + identity.key)
            found[fault].load_cert_chain(file.name)
    return authority.certificate, found


class Faults:
    """What breaks. One of the way begins with a request of its kind, whose connection it ends, and is of all new ones."""

    fault: tuple[str, str] | None = None
    """Kind of request, and how it fails."""
    asked = 0
    """Times that it was met."""
    served = ""
    """How the request failed that is served now, before it waits for anything."""
    _once, _way = False, ""

    def begin(self, verb: str, how: str, seconds: float) -> None:
        self.fault, self.asked, self._once = (verb, how), 0, not seconds

    def end(self) -> None:
        self.fault, self._way = None, ""

    def met(self) -> None:
        self.asked += 1
        if self._once:
            self.fault = None

    async def answer(
        self, request: web.Request, verb: str, serve: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        how = ""
        if self.fault is not None and self.fault[0] == verb:
            how = self.fault[1]
            self.met()
        if how in REFUSALS:
            return web.Response(**{"text": '{"kind": "Status"}', "content_type": "application/json"} | REFUSALS[how])
        self._way = how if how in WAYS else self._way
        await asyncio.sleep({"silence": 3600.0, "late": 5.0}.get(how, 0.0))
        self.served = how
        given = web.Response() if how == "reset" or self._way == how != "" else await serve()
        if how in {"reset", "lost", *WAYS}:
            assert request.transport is not None
            request.transport.abort()
        return given

    def _new(self) -> str:
        """How a new connection fails."""
        way = self._way
        self.asked += bool(way)
        self._way = "" if self._once else way
        return way

    @contextlib.asynccontextmanager
    async def server(
        self, answer: Callable[[web.Request], Awaitable[web.StreamResponse]], file: Any
    ) -> AsyncIterator[Login]:
        """A login, whose kubeconfig is this file, to a server that answers so."""

        def greet(connection: ssl.SSLObject, *_: Any) -> None:
            connection.context = contexts[self._new() if self._way != NO_NAME else ""]

        async def resolve(_: str, port: int, **__: Any) -> list[Any]:
            if self._way == NO_NAME:
                self._new()
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

        authority, contexts = shown()
        front = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        front.sni_callback = greet
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=front)
        await site.start()
        sockets: Any = site._server
        asyncio.get_running_loop().getaddrinfo = resolve  # type: ignore[assignment, method-assign]
        url = f"https://{HOST}:{sockets.sockets[0].getsockname()[1]}"
        yield Login(str(write_kubeconfig(file, url, authority, token="secret")))
        await runner.cleanup()


def on_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for threads, and all have its clock."""

    async def at_once(do: Any, *args: Any, **named: Any) -> Any:
        return do(*args, **named)

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    monkeypatch.setattr(aiohttp.connector, "monotonic", virtual_time.now)
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=virtual_time.now))


async def well(request: str, holds: Callable[[], object], within: float = 15.0) -> None:
    """A cell of the matrix: it holds within seconds of now, the fault's end."""
    began = virtual_time.now()
    async with asyncio.timeout(within):
        await virtual_time.until(holds)
    counted[f"faults of the API server: {request}"] += 1
    worst(f"seconds until well, after faults of: {request}", virtual_time.now() - began)
