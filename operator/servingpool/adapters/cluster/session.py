"""HTTP sessions to the API server, for the operator's requests and for kopf's watches.

kopf ends the operator, and with it the scaling of all pools, on an answer that it cannot decode, on an error in a
watch, on a second 401 and on credentials that cannot be read. Nobody's object, and no fault of a moment, may do that:
kopf takes a session of ours, and this one turns each of them into an outage, which kopf bears.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any

import aiohttp
import orjson
from yarl import URL

from servingpool.adapters.cluster.errors import ClusterError, loads
from servingpool.adapters.cluster.kubeconfig import Login, acting

OK, UNAUTHORIZED, GONE = 200, 401, 410
FRESH = 10.0
"""Seconds for which a token counts as it was read, and between two tries with credentials read anew."""
PAUSE = 5.0
"""Seconds before a watch begins anew after an error: it lists all objects then."""
_origin = attrgetter("scheme", "host", "port")
"""yarl's own origins differ where one of two names the usual port, as a pod's server does."""
ANEW = orjson.dumps({"type": "ERROR", "object": {"code": GONE}})
"""Change upon which kopf begins a watch anew, with a list."""


def session_of(login: Login, *, connections: int = 0, tolerant: bool = False) -> aiohttp.ClientSession:
    """A session to this server, in the running event loop. Close it.

    `connections`: at a time at most, 0 for any number; `tolerant`: for kopf.
    """
    authorized = _Authorized(login)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=login.trust or True),
        headers=acting(),
        proxy=login.proxy,
        middlewares=(_as_outage, authorized) if tolerant else (authorized,),
        response_class=_Tolerant if tolerant else aiohttp.ClientResponse,
    )


class _Authorized:
    """Says who we are, to this server alone. After a 401 it asks again with credentials that are read anew."""

    def __init__(self, login: Login) -> None:
        self._login, self._lock = login, asyncio.Lock()
        self._at = _origin(URL(login.server))
        self._value: str | None = None
        self._read = self._renewed = float("-inf")

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if _origin(request.url) != self._at:  # aiohttp follows it, and would take the token there
            raise aiohttp.ClientConnectionError("the answer is a redirect to another server")
        said = await self._say(request)
        found = await send(request)
        if found.status == UNAUTHORIZED and await self._say(request, refused=said) != said:
            found.release()
            found = await send(request)
        return found

    async def _say(self, request: aiohttp.ClientRequest, refused: str | None = None) -> str | None:
        async with self._lock:
            now = time.monotonic()
            anew = refused is not None and refused == self._value and now >= self._renewed + FRESH
            if anew or now >= self._read + FRESH:
                self._read, self._renewed = now, now if anew else self._renewed
                self._value = await asyncio.to_thread(self._login.authorization, anew=anew)
            if self._value is not None:
                request.headers["Authorization"] = self._value
            return self._value


async def _as_outage(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    try:
        found = await send(request)
    except ClusterError as error:  # a token's file is being replaced, or the program that gives the token failed
        raise aiohttp.ClientConnectionError(str(error)) from error
    if found.status == UNAUTHORIZED:
        found.release()
        raise aiohttp.ClientConnectionError("401 Unauthorized")
    return found


class _Tolerant(aiohttp.ClientResponse):
    """An answer that can always be read."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        if self.status == OK and self.url.query.get("watch") == "true":
            self.content = _Changes(self.content)  # type: ignore[assignment]
        return self

    async def json(self, **_: Any) -> Any:
        try:
            return loads(await self.read())
        except ValueError as error:
            await asyncio.sleep(PAUSE)
            raise aiohttp.ClientConnectionError("the answer is no JSON, perhaps a login page") from error


class _Changes:
    """The body of a watch. An error in it, or a line that is no change, makes the watch begin anew."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest = b""  # what a watch is cut off in is dropped: it goes on after the last change
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                if (change := _change(line)) == ANEW:
                    await asyncio.sleep(PAUSE)
                yield change + b"\n"


def _change(line: bytes) -> bytes:
    try:
        found = loads(line)
        if found["type"] != "ERROR" and isinstance(found["object"]["metadata"], dict):
            return orjson.dumps(found)
    except (KeyError, TypeError, ValueError):
        pass
    return ANEW
