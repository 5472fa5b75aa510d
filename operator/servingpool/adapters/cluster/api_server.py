"""Requests to the API server for commands on ServingPools, the dashboard and the lab: synchronous, safe for threads.

The twin of `client`, with the same `Login` (ADR 0012). Each request has a connection of its own.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Self
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from servingpool.adapters.cluster.errors import ClusterError, answer, unanswered, why
from servingpool.adapters.cluster.kinds import JSON
from servingpool.adapters.cluster.kubeconfig import Login, acting

TIMEOUT = 30.0
"""Seconds to connect and for each read: a person waits for it."""


class ApiServer:
    """An API server, and who we are to it."""

    def __init__(
        self,
        server: str,
        trusted: ssl.SSLContext | None,
        authorization: str | None,
        *,
        proxy: str | None = None,
        agent: str = "servingpool-cli",
    ) -> None:
        """`server` is a URL; `agent` is the field manager of a write that names none."""
        self._at, self._trust = urlsplit(server), trusted
        self._headers = {"User-Agent": agent, "Connection": "close"}
        self._headers |= acting() | ({} if authorization is None else {"Authorization": authorization})
        self._proxy = None if proxy is None else urlsplit(proxy)

    @classmethod
    def of(cls, login: Login) -> Self:
        """As this login. ClusterError where its token cannot be read."""
        return cls(login.server, login.trust, login.authorization(), proxy=login.proxy)

    def request(
        self, method: str, path: str, what: str, body: object = None, *, timeout: float = TIMEOUT, **given: Any
    ) -> dict[str, Any]:
        """The answer, decoded; `given` as `open` has it. A ClusterError says "Cannot" and `what`, such as "read x"."""
        with answering(what):
            return answered(what, self.open(method, path, body, timeout=timeout, **given))

    def open(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float = TIMEOUT,
    ) -> HTTPResponse:
        """The answer, its body unread. `timeout`: seconds to connect, and for each read. OSError or HTTPException."""
        connection = self._connection(timeout)
        headers = {**self._headers, "Accept": accept, **({} if body is None else {"Content-Type": content_type})}
        url = self._at.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        connection.request(method, url, body if isinstance(body, bytes | None) else json.dumps(body).encode(), headers)
        return connection.getresponse()

    def _connection(self, timeout: float) -> HTTPConnection:
        via = self._proxy or self._at
        host, port = str(via.hostname), via.port or (443 if via.scheme == "https" else 80)
        if self._trust is None and self._proxy is None:
            return HTTPConnection(host, port, timeout=timeout)
        connection = (
            HTTPConnection(host, port, timeout=timeout)
            if self._trust is None
            else HTTPSConnection(host, port, timeout=timeout, context=self._trust)
        )
        if self._proxy is not None:
            connection.set_tunnel(str(self._at.hostname), self._at.port or 443, _proxy_headers(self._proxy))
        return connection


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Send and read within it: Unanswered where that fails."""
    try:
        yield
    except (HTTPException, OSError, ValueError) as error:
        raise unanswered(what, why(error)) from error


def answered(what: str, response: HTTPResponse) -> dict[str, Any]:
    """An answer, read and decoded. ClusterError where it is a refusal."""
    content = response.read()
    # No request here has a `test` or a uid, so a bare 422 is a webhook's no.
    return answer(what, response.status, response.reason, content, bare=ClusterError)


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}
