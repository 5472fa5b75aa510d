"""A Prometheus of a few lines: it answers with what a test put in, and evaluates nothing."""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.samples import ReadRequest
from servingpool_lab.credentials import CertificateAuthority

OpenBackend = Callable[..., PrometheusBackend]
NOW = 1_790_000_000.0
TTFT = "vllm:time_to_first_token_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"
PAGE = {
    "vllm:num_requests_running": 3,
    "vllm:num_requests_waiting": 1,
    "vllm:generation_tokens_total": 9_000,
    "vllm:prompt_tokens_total": 40_000,
    "vllm:prompt_tokens_by_source_total": 8_000,
    "vllm:request_success_total": 45,
    "vllm:admission_rejections_total": 2,
    "vllm:num_preemptions_total": 4,
    f"{TTFT}_sum": 60.0,
    f"{TTFT}_count": 50,
    f"{TTFT}_bucket": {"1.0": 30, "2.5": 45},
    "vllm:inter_token_latency_seconds_sum": 270.0,
    "vllm:inter_token_latency_seconds_count": 9_000,
    f"{TPOT}_sum": 1.5,
    f"{TPOT}_count": 45,
    f"{TPOT}_bucket": {"0.1": 44, "0.15": 45},
}
"""A pod of vLLM 0.32, as the sums that are asked for."""


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    parameters: dict[str, str]
    connection: tuple[str, int]


@dataclass
class Raw:
    """An answer other than query results."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    send: Callable[[Any], None] | None = None
    """Takes over the socket."""


class FakePrometheus:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.rows: list[dict[str, Any]] = []
        self.layout: dict[str, dict[str, int]] = {
            TTFT: {"0.5": 1, "1.0": 1, "2.5": 1, "5.0": 1, "+Inf": 1},
            TPOT: {"0.05": 1, "0.1": 1, "0.15": 1, "+Inf": 1},
        }
        self.beside: dict[str, Any] = {}
        """What the answers have beside status and data."""
        self.at = NOW
        self.raw: Raw | None = None
        self.separators = (",", ":")
        self.url = ""

    def expose(
        self, pod: str, figures: dict[str, Any] = PAGE, *, scraped_at: float | None = NOW - 5, **labels: str
    ) -> None:
        identity = {"namespace": "chat", "pod": pod, "model_name": "llama"} | labels
        for name, figure in figures.items():
            if isinstance(figure, dict):
                for le, count in figure.items():
                    self._row({"__name__": name, "le": le, **identity}, count)
            else:
                self._row({"__name__": name, **identity}, figure)
        if scraped_at is not None:
            self._row({"part": "times", **identity}, scraped_at)

    def queries(self, *, layout: bool = False) -> list[str]:
        return [a.parameters["query"] for a in self.asked if _is_layout(a.parameters["query"]) == layout]

    def answer(self, asked: Asked) -> Raw:
        if self.raw is not None:
            return self.raw
        ranged = asked.path.endswith("/query_range")
        if _is_layout(asked.parameters["query"]):
            data = [
                {
                    "metric": {"__name__": f"{name}_bucket", "le": le, "namespace": "chat"},
                    "value": [self.at, str(count)],
                }
                for name, counts in self.layout.items()
                for le, count in counts.items()
            ]
            data.append({"metric": {"part": "targets"}, "value": [self.at, "1"]})
        elif ranged:
            times = [float(asked.parameters[key]) for key in ("start", "end", "step")]
            data = [{"metric": row["metric"], "values": list(_over(times, row["value"][1]))} for row in self.rows]
        else:
            data = self.rows
        body = {
            "status": "success",
            "data": {"resultType": "matrix" if ranged else "vector", "result": data},
            **self.beside,
        }
        return Raw(
            body=json.dumps(body, separators=self.separators).encode(), headers={"Content-Type": "application/json"}
        )

    def _row(self, metric: dict[str, str], value: float | str) -> None:
        self.rows.append({"metric": metric, "value": [self.at, str(value)]})


def _is_layout(query: str) -> bool:
    return query.startswith("topk by (__name__, ")


def _over(times: list[float], text: str) -> Iterator[tuple[float, str]]:
    """A series that is scraped 5 s before each step and does not change otherwise."""
    start, end, step = times
    for index in range(int((end - start) / step + 0.5) + 1):
        at = start + index * step
        yield at, str(at - 5) if float(text) == NOW - 5 else text


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet, else each reply waits 40 ms for an acknowledgement
    fake: FakePrometheus

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        parameters = dict(urllib.parse.parse_qsl(form or url.query, keep_blank_values=True))
        asked = Asked(self.command, url.path, dict(self.headers.items()), parameters, self.client_address)
        self.fake.asked.append(asked)
        raw = self.fake.answer(asked)
        if raw.send is not None:
            self.close_connection = True
            raw.send(self.connection)
            return
        self.send_response(raw.status)
        for name, value in {"Content-Length": str(len(raw.body)), **raw.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw.body)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def _serving(tls: ssl.SSLContext | None = None) -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused handshakes are what the test is about
    fake.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield fake
    server.shutdown()
    server.socket.close()


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    with _serving() as fake:
        yield fake


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def certificates(authority: CertificateAuthority, tmp_path: Path) -> dict[str, Path]:
    """Files of the server, of a client, and of the authority that both trust."""
    server, client = (
        authority.issue_server(["prometheus"], ["127.0.0.1"]),
        authority.issue_user("operator", ["metrics"]),
    )
    contents = {
        "ca": authority.certificate,
        "server": server.certificate + server.key,
        "cert": client.certificate,
        "key": client.key,
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in contents}


@pytest.fixture
def secure_prometheus(certificates: dict[str, Path]) -> Iterator[FakePrometheus]:
    """Speaks TLS, and only with clients that show a certificate."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates["ca"])
    tls.load_cert_chain(certificates["server"])
    tls.verify_mode = ssl.CERT_REQUIRED
    with _serving(tls) as fake:
        yield fake


@pytest.fixture
async def open_backend(prometheus: FakePrometheus) -> AsyncIterator[OpenBackend]:
    """Opens backends that read from the fake; settings are the configuration's."""
    opened: list[PrometheusBackend] = []

    def open_one(**settings: Any) -> PrometheusBackend:
        patience = settings.pop("patience", None)
        config = BackendConfig(**{"url": prometheus.url} | settings)
        if patience is not None:
            config = config.model_copy(update={"timeout": patience})
        opened.append(PrometheusBackend(config))
        return opened[-1]

    yield open_one
    for backend in opened:
        await backend.aclose()


@pytest.fixture
def backend(open_backend: OpenBackend) -> PrometheusBackend:
    return open_backend()


@pytest.fixture
def request_2s_100ms() -> ReadRequest:
    return ReadRequest(ttft_bounds=frozenset({2.0}), tpot_bounds=frozenset({0.1}))


@pytest.fixture
def page() -> dict[str, Any]:
    """A pod's figures, to change."""
    return dict(PAGE)


@pytest.fixture
def raw() -> type[Raw]:
    return Raw
