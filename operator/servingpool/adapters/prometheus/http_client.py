"""A connection to Prometheus: a reply within a deadline, whole and parsed, or `MetricsUnavailable`."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import requests
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from servingpool.adapters.prometheus import rows
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.rows import shown

LONGEST_URL = 2_000
"""Characters of a URL; the parameters of a longer one are sent as a POST, for proxies cap a URL at 4 to 8 kB."""
PIECE = 2**16
"""Bytes of rows parsed at a time. A whole slice is 60 MB of objects: too much for a processor's cache, and enough for
the garbage collector to set in, so each row would cost half as much again."""
_CHUNK = 2**16
"""Bytes of a read of the socket. Packed bytes become a thousand times as many at most."""
_NEXT_ROW = b',{"metric":'
"""Between two rows, and nowhere else: within a string, quotes have a backslash before them. Where a server writes
blanks in between, all rows are parsed at once."""
UNDELAYED = {"vector": {"latency_offset": "5s"}, "matrix": {"latency_offset": "5s", "nocache": "1"}}
"""Parameters by kind of result. Without them VictoriaMetrics answers as of 30 s ago, and a range at times of its own.

In 5 s it has a scrape whole. With `nocache` it heeds no offset of an instant query, and shows the newest rows of some
series before those of others. Some servers refuse parameters that they do not know.
"""
_ON_THE_QUERY = re.compile(r"PromQL (info|warning)|\d+ more \w+ annotations omitted")
LONGEST_SENTENCE = 200
_LOGGED = 500
_KNOWN_ERROR_TYPES = {"timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found"}
_HEAVY_TYPES = {"timeout", "canceled", "execution"}
_HEAVY = {413, 414, 422, 503, 504}
"""Answers where a query is too much, by its length, its series or its time."""

_log = logging.getLogger(__name__)


class MetricsUnavailable(Exception):
    """Prometheus gave no usable answer.

    The message reaches the status of pools, which tenants can read. It is therefore worded here, and carries of a
    response's body at most a sentence on the query: bodies have held internal addresses, and whatever an authentication
    proxy prints.
    """

    def __init__(self, backend: str, what: str) -> None:
        """`what` goes on from the backend's name: "did not answer within 10 s"."""
        super().__init__(f"Prometheus backend '{backend}' {what}")


class Unsent(MetricsUnavailable):
    """The query was not sent: other queries took all the time."""


class Excess(MetricsUnavailable):
    """The answer is larger than is taken, or took longer than is waited for. A smaller part may be answered."""


class Answer(requests.Response):
    """An answer, read whole. It has no header, so no redirect is followed, and no cookie is kept."""

    def __init__(self, backend: str, status: int, body: bytearray) -> None:
        super().__init__()
        self.status_code, self.body, self._backend = status, body, backend
        self.kind: object = None
        """Kind of a query result: vector or matrix."""
        self.partial: object = None
        """The server's word that stores behind it did not answer. Not for the status: Thanos names their addresses."""
        self.delayed = False
        """Whether it is VictoriaMetrics': no other says how many series it fetched."""
        self.ends: Any = None
        """The first row and the last as JSON has them, or all rows where none could be told apart unparsed."""
        self._between = 0, 0
        """From where to where the body holds the other rows, a comma before each."""

    def json(self, **_: object) -> dict[str, Any]:
        """The answer itself, in which the library looks for the result. InvalidJSONError where there is no data."""
        # The reply is small without the rows between the first and the last. Without two commas it is left whole.
        second, last = self._between = max(self.body.find(_NEXT_ROW), 0), max(self.body.rfind(_NEXT_ROW), 0)
        try:
            reply = self._parsed(self.body[:second] + self.body[last:])
            # Without those on the query itself, which series of a single pod may bring about.
            warnings = [one for one in reply.get("warnings") or () if not _ON_THE_QUERY.match(str(one))]
            data, self.partial = reply["data"], reply.get("isPartial") or warnings
            self.delayed = "seriesFetched" in (reply.get("stats") or ())
            self.kind, self.ends = data.get("resultType"), data.get("result")
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise requests.exceptions.InvalidJSONError(response=self) from error
        return {"data": {**data, "result": self}}

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows: `metric`, and `value` or `values`, unless a row has another shape. Raises MetricsUnavailable."""
        yield from self.ends[:1]
        (start, end), count = self._between, len(self.ends)
        while start < end or count > rows.MOST_ROWS:
            if count > rows.MOST_ROWS:
                raise Excess(self._backend, f"answered with more than {rows.MOST_ROWS} rows")
            stop = self.body.find(_NEXT_ROW, min(start + PIECE, end))
            try:
                piece = self._parsed(b"[" + self.body[start + 1 : stop] + b"]")
            except orjson.JSONDecodeError as error:
                raise MetricsUnavailable(self._backend, "answered in an unexpected format") from error
            count += len(piece)
            yield from piece
            start = stop
        yield from self.ends[1:]

    def _parsed(self, text: bytes | bytearray) -> Any:
        if len(text) > rows.MOST_VALUES and text.count(b",") > rows.MOST_VALUES:
            raise Excess(self._backend, f"answered with more than {rows.MOST_VALUES} values in one piece")
        return orjson.loads(text)


class PrometheusClient:
    """Client of a Prometheus, by prometheus-api-client. Not for use by two threads at once: a session is not."""

    def __init__(self, config: BackendConfig) -> None:
        session = requests.Session()
        session.trust_env = False  # a stray ~/.netrc or HTTP_PROXY must not decide where tokens are sent
        session.verify = str(config.tls.ca_file) if config.tls.ca_file else True
        if config.tls.cert_file and config.tls.key_file:
            session.cert = (str(config.tls.cert_file), str(config.tls.key_file))
        self.config = config
        self._delays = False
        """Whether the last answer was VictoriaMetrics'."""
        self._api = PrometheusConnect(config.url, session=session, timeout=config.timeout)
        self._transport = Transport(config.name)
        # No other adapter may answer: the library's retries for six seconds, and neither it nor requests' has bounds.
        session.adapters.clear()
        session.mount("http", self._transport)

    def release(self) -> None:
        """Give back the room of the last answer, which was read by now."""
        self._transport.release()

    def close(self) -> None:
        """Let go of the connection and of the last answer's room. Another thread's request with this client ends."""
        self._transport.cut()
        self.release()
        self._api.close()

    def query(self, query: str, timeout: float, at: float | None = None) -> Answer:
        """An instant query, now or `at` a Unix time. `timeout`: seconds to the last byte. Raises MetricsUnavailable.

        The answer may be a partial one; see `whole`.
        """
        when = {} if at is None else {"time": f"{at:.3f}"}
        return self._ask("vector", partial(self._api.custom_query, query), when, timeout)

    def query_range(self, query: str, times: tuple[float, float, float], timeout: float) -> Answer:
        """As `query`: a range from, to (Unix seconds) and by a step (seconds)."""
        start, end, step = (f"{time:.3f}" for time in times)
        first, last = (datetime.fromtimestamp(time, UTC) for time in times[:2])
        ask = partial(self._api.custom_query_range, query, first, last, step)
        return self._ask("matrix", ask, {"start": start, "end": end}, timeout)  # the library rounds to whole seconds

    def whole(self, answer: Answer) -> Answer:
        """The answer. Raises MetricsUnavailable if it is a partial one."""
        if answer.partial:
            # Not even what it has is used: stores that share series by a hash each have some figures of every pod.
            said = "gave a partial answer; check the stores that it reads from"
            raise self._unavailable(said, str(answer.partial).encode())
        return answer

    def active_targets(self) -> list[dict[str, Any]]:
        """Targets that Prometheus scrapes. Raises MetricsUnavailable, also where a server has no such list."""
        found = self._called(partial(self._api.get_targets, "active")).get("activeTargets")
        if not isinstance(found, list):
            raise self._unavailable("has no list of targets")
        return found

    def _ask(self, kind: str, ask: Callable[..., Any], params: dict[str, str], timeout: float) -> Answer:
        until, undelayed = time.monotonic() + timeout, self._delays
        answer = self._ask_once(kind, ask, params, timeout)
        left = until - time.monotonic()
        # With less time left the second answer may not come, and an old answer is better than none.
        if undelayed or not answer.delayed or left < timeout / 2:
            return answer
        del answer  # it is of the past, lacks the pods that came since, and takes memory that was given back
        return self._ask_once(kind, ask, params, left)

    def _ask_once(self, kind: str, ask: Callable[..., Any], params: dict[str, str], timeout: float) -> Answer:
        seconds = max(timeout, 0.001)
        more = UNDELAYED[kind] if self._delays else {}
        self._delays = False  # a server of another kind may have come, that refuses these parameters
        sent = {**params, **more, "timeout": f"{round(seconds * 1000)}ms"}  # so that Prometheus gives up too
        answer: Answer = self._called(partial(ask, params=sent, timeout=seconds))
        if answer.kind != kind or not isinstance(answer.ends, list):
            raise self._no_results(answer)
        self._delays = answer.delayed
        return answer

    def _called(self, call: Callable[[], Any]) -> Any:
        """Result of a method of the library. Raises MetricsUnavailable in place of the library's errors."""
        basic, self._api.headers = self.config.basic_auth, self._headers()
        self._api.auth = basic and (basic.username, self._secret(basic.password_file, "passwordFile"))
        try:
            return call()
        except MetricsUnavailable as error:
            _log.warning("%s", error)
            raise
        except requests.exceptions.InvalidJSONError as error:
            raise self._no_results(error.response) from error
        except requests.exceptions.HTTPError as error:
            raise self._refused(error.response) from error
        except (requests.exceptions.RequestException, HTTPError, OSError) as error:
            late = isinstance(error, (requests.exceptions.Timeout, TimeoutError))
            what = f"did not answer within {self.config.timeout:g} s" if late else _what(error)
            # Of a header that is none, the exception has the header.
            detail = "" if isinstance(error, requests.exceptions.InvalidHeader) else error
            raise self._unavailable(what, detail, Excess if late else MetricsUnavailable) from error

    def _refused(self, answer: Any) -> MetricsUnavailable:
        code, kind, sentence = answer.status_code, None, None
        if 300 <= code < 400:
            return self._unavailable(f"answered with a redirect (HTTP {code}); its url must be the final address")
        with contextlib.suppress(orjson.JSONDecodeError, AttributeError):
            reply = orjson.loads(answer.body[:PIECE])
            kind, sentence = reply.get("errorType"), reply.get("error")
        known = isinstance(kind, str) and kind in _KNOWN_ERROR_TYPES
        heavy = code in _HEAVY or (known and kind in _HEAVY_TYPES)
        said = f"answered HTTP {code} ({kind})" if known else f"answered HTTP {code}"
        if kind == "bad_data" and isinstance(sentence, str):  # on the query alone
            said += f": {shown(self._public(sentence), LONGEST_SENTENCE).rstrip('.')}"
        return self._unavailable(said, answer.body[:_LOGGED], Excess if heavy else MetricsUnavailable)

    def _public(self, sentence: str) -> str:
        """A sentence on a query, without its selectors, which name other tenants' pods, and without credentials."""
        login = self._api.auth or ()
        sent = [*self._api.headers.values(), *login, b64encode(":".join(login).encode()).decode()]
        words = sorted({word for each in sent for word in each.split()}, key=len, reverse=True)
        return re.sub("|".join([r"\{[^{}]*\}?", *map(re.escape, words)]), "...", sentence)

    def _no_results(self, answer: Any) -> MetricsUnavailable:
        shape = "did not answer with query results; its url may point to a login page or to Grafana"
        return self._unavailable(shape, answer.body[:_LOGGED])

    def _headers(self) -> dict[str, str]:
        headers = dict(self.config.headers)
        if self.config.bearer_token_file is not None:
            headers["Authorization"] = f"Bearer {self._secret(self.config.bearer_token_file, 'bearerTokenFile')}"
        return headers

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


def _what(error: Exception) -> str:
    """Sentence on a backend by an exception that came in time."""
    if isinstance(error, requests.exceptions.SSLError):
        return "failed the TLS handshake: its certificate is not trusted, or it rejects ours"
    if isinstance(error, requests.exceptions.ConnectionError):
        return "cannot be reached"
    return "closed the connection early, or its answer is not HTTP"


class Transport(HTTPAdapter):
    """Reads each answer whole, by its request's timeout and as far as there is room.

    For one thread's requests, one at a time: it remembers the connection opened last, which is in use.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._held = 0
        """Bytes of the last answer, of what all answers share."""
        self.deadline = math.inf
        """Monotonic time by which the last byte must be there."""
        self._socket: socket.socket | None = None
        # Without `read=False` a server that is slow is one that "cannot be reached".
        super().__init__(max_retries=Retry(0, read=False))

    def release(self) -> None:
        """Give back the room of the last answer."""
        held, self._held = self._held, 0
        rows.REPLIES.give(held)

    def send(self, request: requests.PreparedRequest, *_: Any, timeout: Any = None, **settings: Any) -> Answer:
        """The answer of a request. `timeout`: seconds to the last byte. HTTPError unless it is HTTP 200."""
        self.release()
        self.deadline = time.monotonic() + timeout
        if len(request.url or "") > LONGEST_URL:
            request.method = "POST"  # the library's own leaves the parameters in the URL
            request.url, form = (request.url or "").split("?", 1)
            request.headers["Content-Type"] = "application/x-www-form-urlencoded"
            request.prepare_body(form, None)
        # Each read of the socket has the timeout, so a server that sends a header's byte now and then is cut.
        cut = threading.Timer(timeout, self.cut)
        cut.daemon = True
        cut.start()
        try:
            with super().send(request, timeout=timeout, **settings) as response:
                body = self._read(response)
        except (requests.exceptions.RequestException, HTTPError, OSError) as error:
            if time.monotonic() > self.deadline:  # whatever a connection says that was cut
                raise requests.exceptions.Timeout(error) from error
            raise
        finally:
            cut.cancel()
            cut.join()  # or it might cut the next request
        answer = Answer(self._backend, response.status_code, body)
        if answer.status_code != requests.codes.ok:  # the library would put the whole body into its message
            raise requests.HTTPError(response=answer)
        return answer

    def _read(self, response: requests.Response) -> bytearray:
        """The body, by single reads of the socket with a look at the clock between them."""
        body = bytearray()
        while True:
            chunk = response.raw.read1(_CHUNK, decode_content=True)
            if time.monotonic() > self.deadline:  # what was cut in its headers looks like an empty answer
                raise TimeoutError
            if not chunk:
                return body
            if len(body) + len(chunk) > rows.LARGEST_REPLY:
                raise Excess(self._backend, f"answered with more than {rows.LARGEST_REPLY >> 20} MiB")
            if not rows.REPLIES.take(len(chunk)):
                raise Excess(self._backend, "answered with more than there is room for beside other answers")
            self._held += len(chunk)
            body += chunk

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
