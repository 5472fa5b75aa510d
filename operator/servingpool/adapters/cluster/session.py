"""HTTP sessions to the API server, for the operator's requests and for kopf's watches.

kopf ends the operator, and with it the scaling of all pools, on an answer that it cannot decode, on an error in a
watch, on a second 401 and on credentials that cannot be read. Nobody's object, and no fault of a moment, may do that:
kopf takes a session of ours, and this one turns each of them into an outage, which kopf bears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any

import aiohttp
import orjson
from yarl import URL

from servingpool.adapters.cluster.errors import NOT_FOUND, OK, REFUSED, UNAUTHORIZED, ClusterError, listed, loads
from servingpool.adapters.cluster.kubeconfig import Login, acting

log = logging.getLogger(__name__)

FRESH = 10.0
"""Seconds for which a token counts as it was read, and between two tries with credentials read anew."""
TIMEOUT = 10.0
"""Seconds for one request of ours, and within which an answer to kopf begins. aiohttp would wait for five minutes, kopf
for one."""
PAUSE = 5.0
"""Seconds before a watch begins anew after an error: it lists all objects then."""
_origin = attrgetter("scheme", "host", "port")
"""yarl's own origins differ where one of two names the usual port, as a pod's server does."""
ANEW = orjson.dumps({"type": "ERROR", "object": {"code": 410}})
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
    """The answer, of which kopf can read what it reads. Anything else is an outage: kopf asks again, with pauses."""
    try:
        async with asyncio.timeout(TIMEOUT):
            found = await send(request)
    except ClusterError as error:  # a token's file is being replaced, or the program that gives the token failed
        raise aiohttp.ClientConnectionError(str(error)) from error
    asked, why = request.url.query, f"{found.status} {found.reason}"
    absent = found.status == NOT_FOUND and "limit" not in asked and request.url.path.count("/") > 1  # of an API
    if "watch" in asked:
        log.log(logging.WARNING if found.status >= REFUSED else logging.DEBUG, "Watch of %s: %s", request.url.path, why)
        found.content = _Changes(found.content, refused=found.status >= REFUSED)  # type: ignore[assignment]
        found.status = OK
    elif not absent and (found.status >= REFUSED or await found.json() is None):
        found.release()
        if "continue" not in asked:
            raise aiohttp.ClientConnectionError(f"{why}, and no list")
        await asyncio.sleep(PAUSE)
        raise aiohttp.ClientPayloadError(why)  # the rest of a list may be gone for good: kopf lists anew
    return found


class _Tolerant(aiohttp.ClientResponse):
    """An answer that can always be read."""

    _list: Any = None

    async def json(self, **_: Any) -> Any:
        """A list of objects, or a part of discovery; None where it is neither. Decoded once: a page has megabytes."""
        if self._list is None:
            with contextlib.suppress(ValueError):
                self._list = listed(loads(await self.read()))
        return self._list


class _Changes:
    """The body of a watch. An error in it, or a line that is no change, makes the watch begin anew."""

    def __init__(self, content: aiohttp.StreamReader, *, refused: bool = False) -> None:
        self._content, self._refused = content, refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest = b""  # what a watch is cut off in is dropped: it goes on after the last change
        began = (loop := asyncio.get_running_loop()).time()
        if not self._refused:
            async for chunk in self._content.iter_chunked(size):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    if (change := _change(line)) == ANEW:
                        await asyncio.sleep(PAUSE)
                    yield change + b"\n"
        if loop.time() - began < PAUSE:  # else what ends at once would be asked for without a pause
            await asyncio.sleep(PAUSE)
        if self._refused:
            yield ANEW + b"\n"


def _change(line: bytes) -> bytes:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        found = loads(line)
        if found["type"] != "ERROR" and isinstance(found["object"]["metadata"], dict):
            return orjson.dumps(found)
    return ANEW
