"""Where the API server is, how it is reached, and who asks it, as kubectl has them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from aiohttp import ClientConnectorError, web
from aiohttp.test_utils import TestServer

from servingpool.adapters.cluster import kubeconfig
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import ClusterError, Unanswered
from servingpool.adapters.cluster.kubeconfig import Login, contexts, proxy_of
from servingpool.adapters.cluster.pools import Pools
from servingpool.adapters.cluster.session import session_of
from servingpool_lab.credentials import CertificateAuthority, write_private


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


def write(path: Path, cluster: dict[str, Any], user: dict[str, Any], name: str = "own", **context: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
    path.write_text(yaml.safe_dump(found))
    return path


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_token_and_namespace_are_those_of_the_current_context(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", {"server": "https://a:6443/"}, {"token": "secret"}, namespace="team")
    found = Login(None)
    assert (found.server, found.authorization(), found.namespace) == ("https://a:6443", "Bearer secret", "team")


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(tmp_path / "a", {"server": "https://a"}, {}, "a")
    second = write(tmp_path / "b", {"server": "https://b"}, {}, "b", namespace="team")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'none'}:{second}")
    assert (Login(None).server, Login(None).namespace) == ("https://a", "default")
    assert (Login(None, "b").server, Login(None, "b").namespace) == ("https://b", "team")
    assert contexts(None) == ["a", "b"]


def test_a_file_of_a_token_is_of_the_kubeconfigs_folder(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    path = write(tmp_path / "config", {"server": "https://a"}, {"tokenFile": "token"})
    assert Login(str(path)).authorization() == "Bearer from a file"


def plugin(folder: Path, **status: str) -> dict[str, Any]:
    """A program that tells how often it was run, as its token, and what else is given."""
    told = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    script = f'echo run >> {folder / "runs"}; echo "$TOLD" | sed "s/RUNS/$(wc -l < {folder / "runs"})/"'
    env = [{"name": "TOLD", "value": json.dumps({**told, "status": {"token": "RUNS", **status}})}]
    return {"apiVersion": told["apiVersion"], "command": "sh", "args": ["-c", script], "env": env}


def test_a_program_is_run_again_before_its_token_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"server": "https://a"}, {"exec": plugin(tmp_path)})
    found = Login(str(path))
    assert [found.authorization() for _ in range(2)] == ["Bearer 1", "Bearer 1"]
    ended = plugin(tmp_path, expirationTimestamp="2026-01-01T00:00:00Z")
    found = Login(str(write(tmp_path / "config", {"server": "https://a"}, {"exec": ended})))
    assert [found.authorization() for _ in range(2)] == ["Bearer 3", "Bearer 4"]


def test_a_program_that_gives_nothing_is_named(tmp_path: Path) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/none", "args": []}
    path = write(tmp_path / "config", {"server": "https://a"}, {"exec": program})
    with pytest.raises(ClusterError, match="Cannot read the cluster's credentials: the program '/none' gives none"):
        Login(str(path)).authorization()


async def test_a_401_has_the_credentials_read_anew_for_each_who_asks(tmp_path: Path) -> None:
    """A token of a program without a time at which it ends, as of EKS' older plugins: the operator went on with it."""
    asked: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        return web.json_response({"items": []}, status=200 if asked[-1] == "Bearer 2" else 401)

    async with TestServer(_application(answer)) as server:
        path = write(tmp_path / "config", {"server": str(server.make_url("/"))}, {"exec": plugin(tmp_path)})
        cluster = await Cluster.connect(str(path))
        assert (await cluster.get("/api"))["items"] == []
        assert (await cluster.get("/api"))["items"] == []
        await cluster.aclose()
    assert asked == ["Bearer 1", "Bearer 2", "Bearer 2"]


async def test_a_redirect_to_another_server_does_not_get_the_token(tmp_path: Path) -> None:
    asked: list[str | None] = []

    async def other(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        return web.json_response({})

    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPFound(elsewhere.make_url("/"))

    async with TestServer(_application(other)) as elsewhere, TestServer(_application(answer)) as server:
        url = str(server.make_url("/")).replace("127.0.0.1", "LocalHost")
        cluster = await Cluster.connect(str(write(tmp_path / "config", {"server": url}, {"token": "secret"})))
        with pytest.raises(Unanswered, match="Cannot read /api: the API server did not answer"):
            await cluster.get("/api")
        await cluster.aclose()
    assert asked == []


def _application(answer: Any) -> web.Application:
    made = web.Application()
    made.router.add_get("/{path:.*}", answer)
    return made


async def test_in_a_pod_without_a_kubeconfig_the_service_account_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority().certificate.decode()
    for name, text in (("token", "of the pod\n"), ("namespace", "team"), ("ca.crt", authority)):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(kubeconfig, "IN_POD", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = Login(None)
    assert found.trust is not None
    assert (found.server, found.authorization(), found.namespace) == ("https://[::1]:443", "bearer of the pod", "team")
    async with session_of(found) as session:  # the usual port, named: it is no redirect to another server
        with pytest.raises(ClientConnectorError):
            await session.get(f"{found.server}/api")


@pytest.mark.parametrize(
    ("server", "excepted", "asked"),
    [
        ("https://10.96.0.1", "", True),
        ("https://10.96.0.1", "10.96.0.0/12,.svc", False),
        ("https://10.112.0.1", "10.96.0.0/12,.svc", True),
        ("https://10.96.0.1:6443", "10.96.0.1:443", True),
        ("https://10.96.0.1", "10.96.0.1:443", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://api.eu.example.com", "example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://api.example.com", "*.example.com", False),
        ("https://notexample.com", "example.com", True),
        ("https://api.example.com", " *", False),
        ("https://127.0.0.1:6443", "", False),
        ("http://10.96.0.1", "", False),
    ],
)
def test_a_proxy_is_asked_as_client_go_asks_it(
    monkeypatch: pytest.MonkeyPatch, server: str, excepted: str, asked: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    assert proxy_of(urlsplit(server)) == ("http://proxy:3128" if asked else None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist. Give --kubeconfig FILE"),
        ("not: [yaml", "is no kubeconfig"),
        ("[1]", "is no kubeconfig: a part of it is missing"),
        ("{}", "names no current-context"),
        ("{current-context: eu}", "has no context 'eu'"),
        ("{current-context: eu, contexts: [{name: eu, context: {cluster: c}}]}", "has no cluster 'c'"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_told(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ClusterError, match="Cannot read the cluster's credentials") as caught:
        Pools.connect(str(path), None)
    assert said in str(caught.value)


def test_wrong_certificates_are_told(tmp_path: Path) -> None:
    for cluster in ({"certificate-authority-data": data(b"none")}, {"certificate-authority": "none"}):
        path = write(tmp_path / "config", {"server": "https://a", **cluster}, {})
        with pytest.raises(ClusterError, match=r"a certificate or key cannot be used|File does not exist"):
            Pools.connect(str(path), None)


class Server:
    """An API server by TLS, which asks for a client's certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority()
        own = self.authority.issue_server(["localhost"], ["127.0.0.1"])
        files = [write_private(folder / "crt", own.certificate), write_private(folder / "key", own.key)]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(files[0]), str(files[1]))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.authority.certificate.decode())
        self.heads: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.heads.append({**dict(self.headers), "path": self.path})
                body = b'{"kind": "ServingPoolList", "items": []}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    yield found
    found.http.shutdown()
    found.http.server_close()


def of(server: Server, folder: Path, **cluster: Any) -> Path:
    ann = server.authority.issue_user("ann", [])
    trusted = {"certificate-authority-data": data(server.authority.certificate)}
    user = {"client-certificate-data": data(ann.certificate), "client-key-data": data(ann.key)}
    return write(
        folder / "config", {"server": f"https://127.0.0.1:{server.http.server_port}/eu/", **trusted, **cluster}, user
    )


async def test_a_client_certificate_is_shown_and_the_servers_is_checked(server: Server, tmp_path: Path) -> None:
    pools = Pools.connect(str(of(server, tmp_path)), None)
    assert pools.read("team", None)["items"] == []
    assert server.heads[0]["path"] == "/eu/apis/servingpool.dev/v1alpha1/namespaces/team/servingpools"
    cluster = await Cluster.connect(str(of(server, tmp_path)))
    assert (await cluster.read_lease(("team", "a")))["items"] == []
    await cluster.aclose()
    stranger = CertificateAuthority().certificate
    other = Pools.connect(str(of(server, tmp_path, **{"certificate-authority-data": data(stranger)})), None)
    with pytest.raises(Unanswered, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
        other.read("team", None)
    named = Pools.connect(str(of(server, tmp_path, **{"tls-server-name": "elsewhere"})), None)
    with pytest.raises(Unanswered, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
        named.read("team", None)
    cluster = await Cluster.connect(str(of(server, tmp_path, **{"tls-server-name": "elsewhere"})))
    with pytest.raises(Unanswered):
        await cluster.read_lease(("team", "a"))
    await cluster.aclose()
    cluster = await Cluster.connect(str(of(server, tmp_path, **{"tls-server-name": "localhost"})))
    assert (await cluster.read_lease(("team", "a")))["items"] == []
    await cluster.aclose()
    trust: Any = Login(str(of(server, tmp_path))).trust
    assert not trust.verify_flags & ssl.VERIFY_X509_STRICT  # which Python 3.13 sets, and authorities of EKS do not bear
    blind = {"insecure-skip-tls-verify": True, "certificate-authority-data": ""}
    assert Pools.connect(str(of(server, tmp_path, **blind)), None).read("team", None)["items"] == []


async def test_a_kubeconfigs_proxy_is_asked_by_the_commands_and_by_the_operator(server: Server, tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 No\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        url = f"http://ann:p%40ss@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        path = str(of(server, tmp_path, **{"proxy-url": url}))
        with pytest.raises(Unanswered):
            await asyncio.to_thread(Pools.connect(path, None).read, "team", None)
        cluster = await Cluster.connect(path)
        with pytest.raises(Unanswered):
            await cluster.read_lease(("team", "a"))
        await cluster.aclose()
    login = f"Basic {data(b'ann:p@ss')}".encode()
    assert all(one.startswith(b"CONNECT 127.0.0.1:") and login in one for one in asked)
    assert len(asked) == 2
