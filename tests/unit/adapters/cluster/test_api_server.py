"""Answers to the synchronous requests, by kind and in words."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from servingpool.adapters.cluster.api_server import ApiServer
from servingpool.adapters.cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotInstalled,
    Unanswered,
)
from servingpool.adapters.cluster.pools import Pools

SAID = json.dumps({"kind": "Status", "message": "server's detail.", "details": {"name": "qwen"}}).encode()


class Answers(ThreadingHTTPServer):
    """Answers each request with `status` and `body`."""

    status, body = 200, b"{}"


class Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    do_PATCH = do_GET  # noqa: N815, the name that http.server looks for

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def api() -> Iterator[tuple[Answers, Pools]]:
    with Answers(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, Pools(ApiServer(f"http://127.0.0.1:{server.server_port}", None, None), "chat")
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (403, SAID, Forbidden, "403 Forbidden: server's detail"),
        (404, SAID, NotFound, "404 Not Found: server's detail"),
        (404, b"404 page not found\n", NotInstalled, "404 Not Found: the API server does not know this kind"),
        (409, SAID, Conflict, "409 Conflict: server's detail"),
        (
            422,
            SAID,
            Invalid,
            "422 Unprocessable Entity: rejected by an admission policy or by validation: server's detail",
        ),
        (422, b'{"message": "not today"}', ClusterError, "422 Unprocessable Entity: not today"),
        (503, b"", Unanswered, "503 Service Unavailable"),
        (200, b"<html>", Unanswered, "the answer cannot be read"),
        (200, b"[]", Unanswered, "the answer cannot be read"),
    ],
)
def test_a_refusal_has_its_kind_and_the_servers_own_words(
    api: tuple[Answers, Pools], status: int, body: bytes, kind: type[ClusterError], said: str
) -> None:
    server, pools = api
    server.status, server.body = status, body
    with pytest.raises(ClusterError) as caught:
        pools.patch("chat", "qwen", {})
    assert (type(caught.value), str(caught.value)) == (kind, f"Cannot change ServingPool chat/qwen: {said}")


def test_a_watch_that_is_refused_for_its_age_begins_anew_at_the_version_of_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quiet pool's own version may be older than all that the API server still has."""
    asked: list[str] = []
    pauses: list[float] = []
    old = {"metadata": {"name": "qwen", "resourceVersion": "7"}}
    new = {"metadata": {"name": "qwen", "resourceVersion": "21"}}

    class Aged(Pools):
        def watch(self, namespace: str | None, name: str | None, since: str, **_: Any) -> Iterator[dict[str, Any]]:
            asked.append(since)
            yield {"type": "ERROR", "object": {"code": 410}} if since == "7" else {"type": "MODIFIED", "object": new}

        def listed(self, path: str, query: Any, *_: Any) -> dict[str, Any]:
            assert query == {"fieldSelector": "metadata.name=qwen"}
            return {"metadata": {"resourceVersion": "20"}, "items": [old]}

    monkeypatch.setattr(time, "sleep", pauses.append)
    pools = Aged(ApiServer("http://cluster", None, None), "chat")
    assert next(pools.changes("chat", "qwen", old)) == new
    assert (asked, pauses) == (["7", "20"], [1.0])
