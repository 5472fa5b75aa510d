"""The operator's /metrics and /healthz, served so that no connection can hold a thread or a descriptor for ever."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

log = logging.getLogger(__name__)

SILENCE = 10.0
"""Seconds without a byte after which a connection is closed. Prometheus' own timeout for a scrape is 10 s."""
MOST_CONNECTIONS = 32
"""Open at once, each with a thread. Over it the oldest is closed, so that whoever holds them open keeps nobody out."""
PATIENCE = 4.0
"""Seconds in which the event loop answers /healthz. The chart's probes give up after 5, and so show why."""
DUAL = socket.has_dualstack_ipv6()
"""Whether one socket takes connections of IPv6 and IPv4."""


class _Handler(WSGIRequestHandler):
    timeout = SILENCE

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the library's name
        """Requests are not logged."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if DUAL else socket.AF_INET
    # A server that is reached from all pods takes connections fast; the queue is for those of one moment.
    request_queue_size = 64

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = threading.Lock()
        self._open: dict[int, socket.socket] = {}
        """Open connections by identity, the oldest first."""

    def server_bind(self) -> None:
        if DUAL:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                oldest = self._open.pop(next(iter(self._open)))
                _cut(oldest)
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off, or was cut, is nobody's defect."""


def serve(port: int, page: WSGIApplication) -> WSGIServer:
    """Serve it on all addresses from a thread, until the process ends. OSError where the port is taken."""
    server = make_server("" if DUAL else "0.0.0.0", port, page, _Server, handler_class=_Handler)  # noqa: S104, from pods
    threading.Thread(target=server.serve_forever, name=f"port {port}", daemon=True).start()
    return server


def health(problem: Callable[[], Coroutine[Any, Any, str | None]], loop: asyncio.AbstractEventLoop) -> WSGIApplication:
    """Page on whether the process should go on: `problem` is asked in its event loop, which may hang."""

    def page(_: Any, start: StartResponse) -> Iterable[bytes]:
        try:
            found = asyncio.run_coroutine_threadsafe(problem(), loop).result(PATIENCE)
        except TimeoutError:
            found = f"The event loop did not answer for {PATIENCE:.0f} s."
        if found is not None:  # a kubelet restarts the process, and keeps nothing of the page
            log.error("/healthz fails: %s", found)
        start("200 OK" if found is None else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [(found or "ticking").encode()]

    return page


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side was faster
        return
