"""The operator's /metrics: the client library's page, served so that no connection can hold a thread for ever."""

from __future__ import annotations

import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

SILENCE = 10.0
"""Seconds without a byte after which a connection is closed. Prometheus' own timeout for a scrape is 10 s."""
MOST_CONNECTIONS = 32
"""Open at once, each with a thread. Over it the oldest is closed, so that whoever holds them open keeps nobody out."""


class _Handler(WSGIRequestHandler):
    timeout = SILENCE

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the library's name
        """Requests are not logged."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # A server that is reached from all pods takes connections fast; the queue is for those of one moment.
    request_queue_size = 64

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = threading.Lock()
        self._open: dict[int, socket.socket] = {}
        """Open connections by identity, the oldest first."""

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


def serve_metrics(port: int, registry: CollectorRegistry) -> WSGIServer:
    """Serve them on all addresses from a thread, until the process ends. OSError where the port is taken."""
    server = make_server("0.0.0.0", port, make_wsgi_app(registry), _Server, handler_class=_Handler)  # noqa: S104, pods are scraped
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side was faster
        return
