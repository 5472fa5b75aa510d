"""What a person sees who gives wrong input, or whose servers fail: one message, an exit code, no traceback."""

from __future__ import annotations

import functools
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from servingpool.cli.main import app

from ...cli_page import Told, hold  # noqa: TID252, tests are no package of an installed name

Reply = tuple[int, str, str]
"""Status, content type, body."""
NOBODY = "http://127.0.0.1:1"
"""Port 1 is reserved, and nothing listens there."""


def status(code: int, reason: str, message: str) -> Reply:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return code, "application/json", json.dumps(body)


def html(_: str) -> Reply:
    return 200, "text/html", "<html><body>Sign in</body></html>"


def unauthorized(_: str) -> Reply:
    return 401, "text/plain", "Unauthorized"


def empty_prometheus(path: str, ahead: float = 0.0) -> Reply:
    """It answers every query, and has nothing."""
    kind = "matrix" if "query_range" in path else "vector"
    clock = [{"metric": {}, "value": [0, str(time.time() + ahead)]}] if "time%28%29" in path else []
    return 200, "application/json", json.dumps({"status": "success", "data": {"resultType": kind, "result": clock}})


def ahead(path: str) -> Reply:
    return empty_prometheus(path, 7200.0)


def empty_cluster(path: str) -> Reply:
    if path.endswith("/apis"):
        return 200, "application/json", json.dumps({"groups": []})
    if path.endswith("/api/v1"):
        names = {"pods": "Pod", "configmaps": "ConfigMap"}
        core = [
            {"name": name, "singularName": kind.lower(), "kind": kind, "namespaced": True}
            for name, kind in names.items()
        ]
        return 200, "application/json", json.dumps({"resources": core})
    if path.endswith("/deployments/llama/scale"):
        scale = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}, "status": {"selector": "app=llama"}}
        return 200, "application/json", json.dumps(scale)
    if path.endswith("/apis/apps/v1"):
        kind = {"kind": "Deployment", "namespaced": True}
        kinds = [{**kind, "name": "deployments"}, {**kind, "name": "deployments/scale"}]
        return 200, "application/json", json.dumps({"resources": kinds})
    if path.endswith("/deployments/llama"):
        found = {
            "metadata": {"namespace": "team", "name": "llama", "uid": "d"},
            "spec": {"replicas": 1, "selector": {}},
        }
        return 200, "application/json", json.dumps(found)
    columns = [{"name": "Name", "priority": 0}]
    table = {"metadata": {"resourceVersion": "1"}, "columnDefinitions": columns, "rows": [], "items": []}
    return 200, "application/json", json.dumps(table)


def misspelt(path: str) -> Reply:
    if "lama-70b" in path:
        return status(404, "NotFound", 'deployments "lama-70b" not found')
    there = {"items": [{"metadata": {"name": "llama-70b"}}]}
    return (200, "application/json", json.dumps(there)) if path.endswith("/deployments") else empty_cluster(path)


def two_servers(path: str) -> Reply:
    labels = {"operated-prometheus": "true"}
    metas = [{"namespace": space, "name": "prometheus-operated", "labels": labels} for space in ("eu", "us")]
    there = {"items": [{"metadata": one, "spec": {"ports": [{"port": 80}]}} for one in metas]}
    return (200, "application/json", json.dumps(there)) if path.endswith("/services") else empty_cluster(path)


def not_found(_: str) -> Reply:
    return 404, "text/plain", "404 page not found\n"


def expired(_: str) -> Reply:
    return status(401, "Unauthorized", "Unauthorized")


def forbidden(_: str) -> Reply:
    return status(403, "Forbidden", "User 'ann' may not")


@dataclass
class Servers:
    """What stands at the two addresses."""

    api: Callable[[str], Reply] = empty_cluster
    prometheus: Callable[[str], Reply] = empty_prometheus


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Servers, str]]:
    """The servers, and the URL before /api-server and /prometheus."""
    now = Servers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            answer = now.prometheus if self.path.startswith("/prometheus") else now.api
            code, kind, text = answer(self.path + body)
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_PATCH = do_GET  # noqa: N815, as the base class wants

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield now, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


POOL = ("pause chat", "resume chat", "adopt chat", "release chat", "explain chat")
CLUSTER = (*POOL, "check deployment/llama", "suggest deployment/llama")
RECORDS = ("record deployment/llama -f llama.rec", "backtest deployment/llama --ttft 2s --max 4")
BLIND = "record deployment/llama --engine vllm --model llama -f llama.rec"
OWN = ("history chat", "compare chat", "explain chat --at 2026-11-20T03:12", "fleet")


@dataclass(frozen=True)
class Case:
    """What is wrong, and the commands that meet it."""

    name: str
    commands: tuple[str, ...]
    api: Callable[[str], Reply] | None = empty_cluster
    """None: nothing listens."""
    prometheus: Callable[[str], Reply] | None = empty_prometheus
    kubeconfig: str | None = "good"
    """Its content, if no good one; None where there is none."""


CASES = [
    Case("No kubeconfig", (*CLUSTER, *RECORDS), kubeconfig=None),
    Case("A kubeconfig that is none", ("explain chat", "suggest deployment/llama"), kubeconfig="not: [yaml"),
    Case("A context that is not there", ("explain chat --context eu", "suggest deployment/llama -n chat --context eu")),
    Case("The API server does not answer", (*CLUSTER, *RECORDS), api=None),
    Case("A login page instead of the API server", ("explain chat", "pause chat"), api=html),
    Case("The login to the cluster ran out (401)", ("explain chat", "suggest deployment/llama"), api=expired),
    Case("No rights (403)", ("explain chat", "pause chat", "suggest -A"), api=forbidden),
    Case("The CRD is not installed", ("pause chat", "adopt chat", "explain chat"), api=not_found),
    Case("An empty cluster", ("suggest -A",)),
    Case("Prometheus does not answer", (*OWN, "suggest deployment/llama", BLIND), prometheus=None),
    Case("A login page instead of Prometheus", (*OWN, "suggest deployment/llama", BLIND), prometheus=html),
    Case("Prometheus needs credentials (401)", (*OWN, "suggest deployment/llama", BLIND), prometheus=unauthorized),
    Case("No history", (*OWN, BLIND, "check deployment/llama --backlog up")),
    Case("Prometheus' clock is 2 h ahead of this machine's", ("history chat",), prometheus=ahead),
    Case(
        "A kind that the API server does not have",
        ("suggest service/x", "check service/x", "record service/x -f x.rec", "backtest service/x"),
    ),
    Case("A workload that is not there", ("check deployment/lama-70b", "suggest deployment/lama-70b"), api=misspelt),
    Case("No Prometheus in the cluster", ("check deployment/llama", "history chat")),
    Case("Several Prometheus in the cluster", ("suggest deployment/llama", "history chat"), api=two_servers),
    Case("No rights to look for Prometheus in the cluster", ("suggest deployment/llama",), api=forbidden),
    Case(
        "No target",
        (
            "check",
            "check deployment/",
            "suggest llama",
            "check hpa/x",
            "record llama -f x.rec",
            "backtest llama",
            "adopt a/b/c",
        ),
    ),
    Case("A pool without a name", ("pause /qwen", "pause prod/", "pause prod/qwen -n chat")),
    Case("A year at one second", ("history chat --since 366d --step 1s",)),
    Case(
        "A time that is none",
        (
            "history chat --since soon",
            "compare chat --since 10y",
            "suggest deployment/llama --since 1s",
            "record deployment/llama --since 100d -f llama.rec",
            "explain chat --at yesterday",
            "explain chat --at 2999-01-01",
        ),
    ),
    Case("A step of nothing", ("history chat --step 0",)),
    Case("A kind that cannot be scaled", ("check pod/x", "check configmap/y", "suggest pod/x")),
    Case("Prometheus has no such path (404)", (*OWN, "suggest deployment/llama", BLIND), prometheus=not_found),
    Case(
        "A --prometheus that is no URL of one",
        (
            *(f"{command} --prometheus localhost:9090" for command in (*OWN, "check deployment/llama")),
            "suggest deployment/llama --prometheus ftp://prometheus",
            "record deployment/llama -f llama.rec --prometheus https://",
            "backtest deployment/llama --prometheus http://ann:secret@prometheus:9090",
            "dashboard --prometheus http://prometheus:9090?x=1",
        ),
    ),
    Case(
        "A --prometheus that only the cluster knows", ("history chat --prometheus http://prometheus.monitoring:9090",)
    ),
    Case("A past, with a kubeconfig that is none", OWN, kubeconfig="not: [yaml"),
    Case(
        "A kind before the name",
        ("pause pool chat", "explain sp chat", "explain servingpool chat", "pause servingpools chat"),
    ),
    Case("Two names", ("explain chat llama", "check deployment/a deployment/b", "demo now", "lab azure")),
    Case("A command or an option that there is not", ("explai", "explain chat --namspace x", "top")),
    Case("Nothing where something must be", ("explain", "record deployment/llama", "simulate")),
    Case(
        "A number that is none, or out of range",
        (
            "dashboard --port 99999",
            "dashboard --port http",
            "demo --seed -1",
            "demo --max-replicas 65",
            "demo --attainment 10",
            "demo --price free",
            "demo --ttft none --tpot none",
            "demo --hardware b300",
            "record deployment/llama -f llama.rec --step 1",
            "record deployment/llama -f llama.rec --step 10s",
            "lab --load-seconds 7200",
        ),
    ),
    Case(
        "A duration that is none, or out of range",
        ("demo --ttft 3h", "demo --tpot fast", "demo --history 7h", "lab --start-at x", "run --config c --interval 2m"),
    ),
    Case(
        "A word that is none of the option's",
        (
            "explain chat -o table",
            "lab --mode On",
            "lab --trace azure",
            "run --config c --log-format xml",
            "history chat -o csv",
        ),
    ),
    Case(
        "A label without a value, or a use",
        ("history chat --match eu", "compare chat --match =eu", "explain chat --match a=b"),
    ),
    Case(
        "A profile or a page that is not there",
        (
            "check-profile sglng --page good.yaml",
            *(f"check-profile vllm --page {one}" for one in ("none.txt", "good.yaml")),
        ),
    ),
    Case(
        "A server and a URL at once",
        tuple(
            f"history chat {two}"
            for two in ("--backend us --prometheus http://x", "--prometheus http://x --backend us")
        ),
    ),
    Case("Whom nobody can act as", ("explain chat --as ü€", "run --config none.yaml --as ann")),
    Case("A price without its product", ("suggest deployment/llama --gpu-price 2.50",)),
    Case("A file and a server at once, without a target", ("check --config good.yaml --prometheus http://p:9090",)),
    Case("A configuration and no such server in it", ("check deployment/llama --config good.yaml --backend eu",)),
    Case("A namespace that the server is closed to", ("check deployment/llama -n chat --config closed.yaml",)),
    Case(
        "An engine that is none, or without metrics",
        tuple(f"check deployment/llama --engine {one}" for one in ("ollamma", "ollama")),
    ),
    Case("A ConfigMap as --config", ("check --config configmap.yaml", "run --config configmap.yaml")),
    Case("An interval that is shorter than a timeout of the file", ("run --config slow.yaml --interval 5s",)),
    Case("A wrong configuration", ("check --config stale.yaml", "check --config misspelt.yaml")),
    Case("A trace that is not there", ("demo --trace /nonexistent.csv", "demo --trace azure")),
    Case("A target and all targets", ("suggest deployment/llama -A", "suggest", "backtest")),
    Case("A mode that stops it", ("resume chat --mode Paused",)),
    Case("No file", ("backtest --from none.rec", "backtest --from good.yaml", "check --config none.yaml")),
]
BACKENDS = "backends: [{name: default, url: 'http://prometheus:9090'%s}]\n"
FILES = {
    "good.yaml": BACKENDS % "",
    "closed.yaml": BACKENDS % ", namespaces: [team-*, shared]",
    "stale.yaml": BACKENDS % ", staleness: 5s",
    "slow.yaml": BACKENDS % ", timeout: 8s",
    "misspelt.yaml": "leaderElecton: {}\n" + BACKENDS % "",
    "configmap.yaml": f"kind: ConfigMap\ndata: {{config.yaml: {json.dumps(BACKENDS % '')}}}\n",
}
ASKS_PROMETHEUS = {"fleet", "history", "compare", "check", "suggest", "record", "backtest"}


Tell = Callable[[str, str], Told]


@pytest.fixture(scope="module")
def tell(servers: tuple[Servers, str], tmp_path_factory: pytest.TempPathFactory) -> Tell:
    """What a command does in a case. It is run once."""
    now, url = servers
    home = tmp_path_factory.mktemp("home")
    config = home / ".kube" / "config"
    config.parent.mkdir()
    resolved, cases = socket.getaddrinfo, {case.name: case for case in CASES}

    @functools.cache
    def tell(name: str, command: str) -> Told:
        case = cases[name]
        now.api, now.prometheus = case.api or empty_cluster, case.prometheus or empty_prometheus
        config.unlink(missing_ok=True)
        if case.kubeconfig is not None:
            server = NOBODY if case.api is None else f"{url}/api-server"
            config.write_text(kubeconfig(server) if case.kubeconfig == "good" else case.kubeconfig)
        prometheus = NOBODY if case.prometheus is None else f"{url}/prometheus"
        folder = tmp_path_factory.mktemp("empty")  # of its own: a recording that is there is gone on with
        for file, text in FILES.items():
            (folder / file).write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: resolved(known(host), *rest, **named))
            for variable in ("KUBECONFIG", "SERVINGPOOL_PROMETHEUS", "SERVINGPOOL_CONFIG", "KUBERNETES_SERVICE_HOST"):
                patch.delenv(variable, raising=False)
            patch.setenv("HOME", str(home))
            return run(case, command, prometheus, {str(config): "CONFIG", url: "http://url"})

    return tell


def known(host: str) -> str:
    """This machine's own addresses. OSError for a name, as a machine has it that does not know it."""
    if isinstance(host, str) and not host.replace(".", "").isdigit():
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return host


def kubeconfig(server: str) -> str:
    return yaml.safe_dump(
        {
            "current-context": "own",
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own", "namespace": "team"}}],
            "clusters": [{"name": "own", "cluster": {"server": server}}],
            "users": [{"name": "own", "user": {"token": "secret"}}],
        }
    )


def run(case: Case, command: str, prometheus: str, names: dict[str, str]) -> Told:
    words = command.split()
    asks = words[0] in ASKS_PROMETHEUS or "--at" in words
    chosen = {"--config", "--from", "--prometheus"} & set(words)
    more = ["--prometheus", prometheus] if asks and not chosen and "in the cluster" not in case.name else []
    done = CliRunner().invoke(app, [*words, *more])
    text = done.stderr.strip()
    if not isinstance(done.exception, (SystemExit, type(None))):
        text = f"Traceback {done.exception!r}"
    for name, instead in (names | {prometheus: "http://prometheus"}).items():
        text = text.replace(name, instead)
    text = re.sub(r"Usage: .*\nTry .*\n\n", "", text)
    return Told(case.name, command, done.exit_code, re.sub(r"\s*\n\s*", " / ", text))


@pytest.mark.parametrize(
    ("case", "command"), [(case.name, command) for case in CASES for command in case.commands], ids=lambda text: text
)
def test_it_ends_with_one_message_that_is_a_sentence(tell: Tell, case: str, command: str) -> None:
    row = tell(case, command)
    clock = "This machine's clock is 2h behind Prometheus': times are by Prometheus' clock."
    message = row.message.removeprefix(f"{clock} / ") if "clock" in case else row.message
    assert "Traceback" not in message
    assert " / " not in message, "one message"
    assert row.code in {0, 1, 2, 3, 4, 6}
    assert row.code != 0
    assert len(message) > 30


def test_the_table_is_current(tell: Tell) -> None:
    hold(
        "On this machine, or by a server that fails",
        [tell(case.name, command) for case in CASES for command in case.commands],
    )
