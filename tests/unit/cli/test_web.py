"""Half-open connections to /metrics held a thread each for ever, and those to /healthz a descriptor."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app

from servingpool.cli import web


@pytest.fixture
def port() -> Iterator[int]:
    registry = CollectorRegistry()
    Gauge("some_figure", "A figure.", registry=registry).set(7)
    server = web.serve(0, make_wsgi_app(registry))
    yield server.server_port
    server.shutdown()
    server.server_close()


def page(port: int, host: str = "127.0.0.1") -> str:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_the_page_is_served_beside_more_half_open_connections_than_there_are_threads(port: int) -> None:
    before = threading.active_count()
    with ExitStack() as held:
        for _ in range(4 * web.MOST_CONNECTIONS):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            one.sendall(b"GET /metrics HT")
        assert "some_figure 7.0" in page(port)
        assert not web.DUAL or "some_figure 7.0" in page(port, "[::1]")
        # A connection that was cut has a thread for a moment longer; those that were never cut would be 128.
        assert threading.active_count() - before <= 2 * web.MOST_CONNECTIONS


def test_a_silent_connection_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web._Handler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        one.sendall(b"GET")
        assert one.recv(1) == b""
