"""One connection to Prometheus: a reply within a deadline, whole and parsed, or `MetricsUnavailable`."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import requests
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from servingpool.adapters.prometheus import bounds
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.rows import shown

LONGEST_URL_QUERY = 2_000
"""Characters; a longer query is sent as a POST, for proxies cap a URL at 4 to 8 kB."""
PIECE = 2**16
"""Bytes of rows parsed at a time. A whole slice is 60 MB of objects: too much for a processor's cache, and enough for
the garbage collector to set in, so each row would cost half as much again."""
_CHUNK = 2**16
"""Bytes of one read of the socket. Packed ones become a thousand times as many at most."""
_NEXT_ROW = b',{"metric":'
"""Between two rows, and nowhere else: within a string, quotes have a backslash before them. Where a server writes
blanks in between, all rows are parsed at once."""
_LOGGED = 500
_KNOWN_ERROR_TYPES = {"timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found"}
_HEAVY_TYPES = {"timeout", "canceled", "execution"}
_HEAVY = {413, 414, 422, 503, 504}
"""What is answered where a query is too much, by its length, its series or its time."""

_log = logging.getLogger(__name__)


class MetricsUnavailable(Exception):
    """Prometheus gave no usable answer.

    The message reaches the status of pools, which tenants can read. It is therefore worded here and never
    carries a response body: bodies have held internal addresses, and whatever an authentication proxy prints.
    """

    def __init__(self, backend: str, what: str) -> None:
        """`what` goes on from the backend's name: "did not answer within 10 s"."""
        super().__init__(f"Prometheus backend '{backend}' {what}")


class Unsent(MetricsUnavailable):
    """It was not asked: other queries took all the time that there was."""


class Excess(MetricsUnavailable):
    """The answer is larger than is taken, or took longer than is waited for. A smaller part may be answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What Prometheus found."""

    ends: list[dict[str, Any]]
    """The first row and the last as JSON has them, or all rows where none could be told apart unparsed."""
    body: bytearray
    between: tuple[int, int]
    """From where to where it holds the other rows, a comma before each."""
    warnings: tuple[str, ...]
    """Reasons why the result may be partial. Not for the status: Thanos puts its stores' addresses there."""
    backend: str
    """Whose answer it is."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows: `metric`, and `value` or `values`, unless a row has another shape. Raises MetricsUnavailable."""
        yield from self.ends[:1]
        (start, end), count = self.between, len(self.ends)
        while start < end or count > bounds.MOST_ROWS:
            if count > bounds.MOST_ROWS:
                raise Excess(self.backend, f"answered with more than {bounds.MOST_ROWS} rows")
            stop = self.body.find(_NEXT_ROW, min(start + PIECE, end))
            try:
                piece = orjson.loads(b"[" + self.body[start + 1 : stop] + b"]")
            except orjson.JSONDecodeError as error:
                raise MetricsUnavailable(self.backend, "answered in an unexpected format") from error
            count += len(piece)
            yield from piece
            start = stop
        yield from self.ends[1:]


class PrometheusClient(PrometheusConnect):  # type: ignore[misc]  # it has no types
    """Not for use by two threads at once: a session is not.

    The base class drops warnings, follows redirects, retries for six seconds by itself, and its timeout is
    per read of the socket, so a server that sends a byte now and then holds it for ever.
    """

    def __init__(self, config: BackendConfig) -> None:
        session = requests.Session()
        session.trust_env = False  # a stray ~/.netrc or HTTP_PROXY must not decide where tokens are sent
        session.verify = str(config.tls.ca_file) if config.tls.ca_file else True
        if config.tls.cert_file and config.tls.key_file:
            session.cert = (str(config.tls.cert_file), str(config.tls.key_file))
        super().__init__(url=config.url, session=session)
        # Without `read=False` a server that is slow is one that "cannot be reached".
        self._adapter = CuttableAdapter(max_retries=Retry(0, read=False))
        session.mount(config.url, self._adapter)
        self.config = config
        self._held = 0
        """Bytes of the last reply, of what all replies share."""

    def release(self) -> None:
        """Give back the room of the last reply, which was read by now."""
        held, self._held = self._held, 0
        bounds.REPLIES.give(held)

    def close(self) -> None:
        """Let go of the connection, and of the last reply's room."""
        self.release()
        self._session.close()

    def cut(self) -> None:
        """End the request that another thread has under way with this client."""
        self._adapter.cut()

    def custom_query(self, query: str, params: dict[str, str] | None = None, timeout: float | None = None) -> Answer:
        """An instant query. `timeout`: seconds to the last byte. Raises MetricsUnavailable."""
        return self._ask("query", {"query": query, **(params or {})}, timeout, "vector")

    def custom_query_range(
        self,
        query: str,
        start_time: float,
        end_time: float,
        step: float,
        params: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """A range query; times in Unix seconds, not rounded as the base class does. Raises MetricsUnavailable."""
        window = {"start": f"{start_time:.3f}", "end": f"{end_time:.3f}", "step": f"{step:.3f}"}
        return self._ask("query_range", {"query": query, **window, **(params or {})}, timeout, "matrix")

    def active_targets(self, timeout: float | None = None) -> list[dict[str, Any]]:
        """What it scrapes. Raises MetricsUnavailable, also where a server has no such list (Mimir, VictoriaMetrics)."""
        response, body = self._send("targets", {"state": "active"}, timeout)
        try:
            found: list[dict[str, Any]] = orjson.loads(body)["data"]["activeTargets"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise self._unavailable(f"has no list of targets (HTTP {response.status_code})", body[:_LOGGED]) from error
        return found

    def _ask(self, path: str, params: dict[str, str], timeout: float | None, expected: str) -> Answer:
        seconds = self.config.timeout if timeout is None else timeout
        params = {**params, "timeout": f"{max(round(seconds * 1000), 1)}ms"}  # so that Prometheus gives up too
        return self._parse(*self._send(path, params, timeout), expected)

    def _send(self, path: str, params: dict[str, str], timeout: float | None) -> tuple[requests.Response, bytearray]:
        self.release()
        seconds = self.config.timeout if timeout is None else timeout
        deadline = self._adapter.deadline = time.monotonic() + seconds
        long = len(params.get("query", "")) > LONGEST_URL_QUERY
        try:
            with self._session.request(
                method="POST" if long else "GET",
                url=f"{self.url}/api/v1/{path}",
                params=None if long else params,
                data=params if long else None,
                headers=self._headers(),
                auth=self._auth(),
                timeout=max(seconds, 0.001),
                allow_redirects=False,
                stream=True,
            ) as response:
                return response, self._read(response, deadline)
        except _TooLong as error:
            raise self._unavailable(str(error), kind=Excess) from None
        except (requests.exceptions.RequestException, HTTPError, OSError) as error:
            late = time.monotonic() > deadline or isinstance(error, (requests.exceptions.Timeout, TimeoutError))
            what = _what(error, self.config.timeout, late=late)
            # Of a header that is none, the exception has the header.
            detail = "" if isinstance(error, requests.exceptions.InvalidHeader) else error
            raise self._unavailable(what, detail, Excess if late else MetricsUnavailable) from error

    def _read(self, response: requests.Response, deadline: float) -> bytearray:
        """The body, by single reads of the socket with a look at the clock between them."""
        body = bytearray()
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            if len(body) + len(chunk) > bounds.LARGEST_REPLY:
                raise _TooLong(f"answered with more than {bounds.LARGEST_REPLY >> 20} MiB")
            if not bounds.REPLIES.take(len(chunk)):
                raise _TooLong("answered with more than there is room for beside other answers")
            self._held += len(chunk)
            body += chunk
            if time.monotonic() > deadline:
                raise TimeoutError("the body was still dripping")
        return body

    def _parse(self, response: requests.Response, body: bytearray, expected: str) -> Answer:
        code = response.status_code
        if 300 <= code < 400:
            raise self._unavailable(f"answered with a redirect (HTTP {code}); its url must be the final address")
        # The reply is small without the rows between the first and the last. Without two commas it is left whole.
        second, last = max(body.find(_NEXT_ROW), 0), max(body.rfind(_NEXT_ROW), 0)
        try:
            reply = orjson.loads(body[:second] + body[last:])
            if code == requests.codes.ok:
                data = reply["data"]
                if data["resultType"] != expected:
                    raise TypeError(f"a {data['resultType']}, not a {expected}")  # noqa: TRY301
                if not isinstance(data["result"], list):
                    raise TypeError("no list of rows")  # noqa: TRY301
                warnings = tuple(reply.get("warnings") or ())
                return Answer(data["result"], body, (second, last), warnings, self.config.name)
            kind = reply.get("errorType")
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            if code == requests.codes.ok:
                shape = "did not answer with query results; its url may point to a login page or to Grafana"
                raise self._unavailable(shape, body[:_LOGGED]) from error
            kind = None
        known = isinstance(kind, str) and kind in _KNOWN_ERROR_TYPES
        heavy = code in _HEAVY or (known and kind in _HEAVY_TYPES)
        said = f"answered HTTP {code} ({kind})" if known else f"answered HTTP {code}"
        raise self._unavailable(said, body[:_LOGGED], Excess if heavy else MetricsUnavailable)

    def _headers(self) -> dict[str, str]:
        headers = dict(self.config.headers)
        if self.config.bearer_token_file is not None:
            headers["Authorization"] = f"Bearer {self._secret(self.config.bearer_token_file, 'bearerTokenFile')}"
        return headers

    def _auth(self) -> tuple[str, str] | None:
        basic = self.config.basic_auth
        return None if basic is None else (basic.username, self._secret(basic.password_file, "passwordFile"))

    def _secret(self, path: Path, setting: str) -> str:
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unavailable(f"has a {setting} that is not readable", error) from error

    def _unavailable(
        self, what: str, detail: object = "", kind: type[MetricsUnavailable] = MetricsUnavailable
    ) -> MetricsUnavailable:
        """The public sentence; the detail goes to the operator's log only.

        Not a body where credentials were sent: servers have answered with the request's headers.
        """
        secret = self.config.bearer_token_file or self.config.basic_auth or self.config.headers
        kept = "" if secret and isinstance(detail, bytearray | bytes) else shown(str(detail), _LOGGED)
        _log.warning("Prometheus backend '%s' %s %s", self.config.name, what, kept)
        return kind(self.config.name, what)


def _what(error: Exception, timeout: float, *, late: bool) -> str:
    """What an exception says of a backend. `late`: after the deadline, when its connection may have been cut."""
    if late or isinstance(error, (requests.exceptions.Timeout, TimeoutError)):
        return f"did not answer within {timeout:g} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "failed the TLS handshake: its certificate is not trusted, or it rejects ours"
    if isinstance(error, requests.exceptions.ConnectionError):
        return "cannot be reached"
    return "closed the connection early, or its answer is not HTTP"


class _TooLong(Exception):
    """The body is longer than is taken; the message goes on from the backend's name."""


class CuttableAdapter(HTTPAdapter):
    """For one thread's requests to one server, one at a time: remembers the connection opened last, which is in use."""

    def __init__(self, **settings: Any) -> None:
        self.deadline = math.inf
        """Monotonic time after which a new connection is refused."""
        self._socket: socket.socket | None = None
        super().__init__(**settings)

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        """Make the pools open connections that are remembered."""
        super().init_poolmanager(*args, **settings)
        manager = self.poolmanager
        manager.pool_classes_by_scheme = {
            scheme: type(pool.__name__, (pool,), {"ConnectionCls": self._remembered(pool.ConnectionCls)})
            for scheme, pool in manager.pool_classes_by_scheme.items()
        }

    def cut(self) -> None:
        """End the connection. A thread that waits for its next byte continues at once, with an error."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed already
                # Not a TLS socket's own method, which takes the session from under the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _remembered(self, kind: type[HTTPConnection]) -> type[HTTPConnection]:
        def connect(connection: HTTPConnection) -> None:
            kind.connect(connection)
            self._socket = connection.sock
            if time.monotonic() > self.deadline:  # `cut` may have come before there was a connection
                raise TimeoutError("connected too late")

        return type(kind.__name__, (kind,), {"connect": connect})
