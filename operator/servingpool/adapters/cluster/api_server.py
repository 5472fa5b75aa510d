"""Requests to the API server by the standard library alone, each on a connection of its own: safe for threads."""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from servingpool.adapters.cluster.kubeconfig import Credentials, trust


class ApiServer:
    """An API server, and who we are to it."""

    def __init__(self, found: Credentials) -> None:
        """Raises ClusterError where a certificate or key cannot be used."""
        self._at = urlsplit(found.server)
        self._trust = trust(found) if self._at.scheme == "https" else None
        if self._trust is not None and found.server_name is not None:
            self._trust = _named(self._trust, found.server_name)
        self._headers = {"User-Agent": "servingpool-cli", "Connection": "close"}
        self._headers |= {} if found.authorization is None else {"Authorization": found.authorization}
        proxy = found.proxy or _proxy(self._at)
        self._proxy = None if proxy is None else urlsplit(proxy)

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> HTTPResponse:
        """The answer, its body unread. `timeout`: seconds to connect, and for each read. OSError or HTTPException."""
        connection = self._connection(timeout)
        connection.request(method, self._at.path.rstrip("/") + path, body, {**self._headers, **headers})
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


def _proxy(server: SplitResult) -> str | None:
    """That of the environment, such as HTTPS_PROXY, less what NO_PROXY excepts."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415, rare and slow

    return None if proxy_bypass(server.netloc) else getproxies().get(server.scheme)


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def _named(made: ssl.SSLContext, name: str) -> ssl.SSLContext:
    """For a server whose certificate has another name than its URL."""
    wrap = made.wrap_socket

    def wrapped(*given: Any, **named: Any) -> ssl.SSLSocket:
        return wrap(*given, **{**named, "server_hostname": name})

    made.wrap_socket = wrapped  # type: ignore[method-assign]
    return made
