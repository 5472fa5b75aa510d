"""A kubeconfig read without the Kubernetes client, and by it where a program gives the credentials."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.adapters.cluster import kubeconfig
from servingpool.adapters.cluster.client import credentials
from servingpool.adapters.cluster.errors import ClusterError, Unanswered
from servingpool.adapters.cluster.kubeconfig import contexts, credentials_of, namespace_of
from servingpool.adapters.cluster.pools import Pools
from servingpool_lab.credentials import CertificateAuthority, write_private


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
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
    with credentials_of(None, None) as (found, namespace):
        assert (found.server, found.authorization, namespace) == ("https://a:6443", "Bearer secret", "team")
    assert namespace_of(None, None) == "team"


async def test_several_files_are_merged_and_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(tmp_path / "a", {"server": "https://a"}, {}, "a")
    second = write(tmp_path / "b", {"server": "https://b"}, {}, "b", namespace="team")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'none'}:{second}")
    with credentials_of(None, None) as (found, namespace):
        assert (found.server, namespace) == ("https://a", "default")
    assert (await credentials(None)).server == "https://a"
    with credentials_of(None, "b") as (found, namespace):
        assert (found.server, namespace) == ("https://b", "team")
    assert contexts(None) == ["a", "b"]


def test_paths_are_of_the_kubeconfigs_folder_and_data_lasts_as_long_as_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    cluster = {"server": "https://a", "certificate-authority": "ca.crt", "tls-server-name": "other"}
    path = write(tmp_path / "config", cluster, {"tokenFile": "token", "client-key-data": data(b"key")})
    with credentials_of(str(path), None) as (found, _):
        assert found.authority == str(tmp_path / "ca.crt")
        assert (found.authorization, found.server_name) == ("Bearer from a file", "other")
        key = Path(str(found.key))
        assert key.read_bytes() == b"key"
        assert key.parent.stat().st_mode & 0o077 == 0
    assert not key.exists()


def test_a_program_that_gives_credentials_is_run_by_the_client(tmp_path: Path) -> None:
    told = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "of the program"},
    }
    program = {
        "apiVersion": told["apiVersion"],
        "command": "echo",
        "args": [json.dumps(told)],
        "interactiveMode": "Never",
    }
    path = write(tmp_path / "config", {"server": "https://a"}, {"exec": program})
    with credentials_of(str(path), None) as (found, _):
        assert (found.server, found.authorization) == ("https://a", "Bearer of the program")
    path = write(tmp_path / "config", {"server": "https://a"}, {"exec": program | {"command": "/none"}})
    with pytest.raises(ClusterError, match="Cannot read the cluster's credentials"), credentials_of(str(path), None):
        pass


def test_in_a_pod_without_a_kubeconfig_the_service_account_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("token", "of the pod"), ("namespace", "team"), ("ca.crt", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(kubeconfig, "IN_POD", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with credentials_of(None, None) as (found, namespace):
        assert (found.server, found.authorization) == ("https://[fd00::1]:443", "Bearer of the pod")
        assert (found.authority, namespace) == (str(tmp_path / "ca.crt"), "team")


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
        with pytest.raises(ClusterError, match="a certificate or key cannot be used"):
            Pools.connect(str(path), None)
    path = write(tmp_path / "config", {"server": "https://a", "certificate-authority-data": "%"}, {})
    with pytest.raises(ClusterError, match="certificate-authority-data is no base64"):
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


def test_a_client_certificate_is_shown_and_the_servers_is_checked(server: Server, tmp_path: Path) -> None:
    pools = Pools.connect(str(of(server, tmp_path)), None)
    assert pools.read("team", None)["items"] == []
    assert server.heads[0]["path"] == "/eu/apis/servingpool.dev/v1alpha1/namespaces/team/servingpools"
    stranger = CertificateAuthority().certificate
    other = Pools.connect(str(of(server, tmp_path, **{"certificate-authority-data": data(stranger)})), None)
    with pytest.raises(Unanswered, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
        other.read("team", None)
    named = Pools.connect(str(of(server, tmp_path, **{"tls-server-name": "elsewhere"})), None)
    with pytest.raises(Unanswered, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
        named.read("team", None)
    blind = {"insecure-skip-tls-verify": True, "certificate-authority-data": ""}
    assert Pools.connect(str(of(server, tmp_path, **blind)), None).read("team", None)["items"] == []


def test_a_proxy_of_the_kubeconfig_or_of_the_environment_is_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        asked: list[bytes] = []

        def refuse() -> None:
            for _ in range(2):
                connection, _ = proxy.accept()
                asked.append(connection.recv(4096))
                connection.sendall(b"HTTP/1.1 403 No\r\n\r\n")
                connection.close()

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        url = f"http://ann:p%40ss@127.0.0.1:{proxy.getsockname()[1]}"
        with pytest.raises(Unanswered):
            Pools.connect(str(of(server, tmp_path, **{"proxy-url": url})), None).read("team", None)
        monkeypatch.setenv("HTTPS_PROXY", url)
        with pytest.raises(Unanswered):
            Pools.connect(str(of(server, tmp_path)), None).read("team", None)
        thread.join(10.0)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert Pools.connect(str(of(server, tmp_path)), None).read("team", None)["items"] == []
    login = f"Basic {data(b'ann:p@ss')}".encode()
    assert all(one.startswith(b"CONNECT 127.0.0.1:") and login in one for one in asked)
    assert len(asked) == 2
