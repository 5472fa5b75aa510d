"""A Prometheus of the cluster, found by its Service's labels and asked through the API server's proxy of Services."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from secrets import token_urlsafe
from typing import Any

import yaml

from servingpool.adapters.cluster.api_server import ApiServer, answering
from servingpool.adapters.cluster.errors import ClusterError
from servingpool.adapters.cluster.kinds import JSON, path_of
from servingpool.cli.kubectl import told
from servingpool.cli.output import echo
from servingpool.cli.usage import wrong

PLACE = re.compile(r"([a-z0-9-]+)/([a-z0-9-]+)(?::([a-z0-9-]+))?(/[^?]*)?")
"""NAMESPACE/NAME, perhaps with a port and a path."""
KNOWN = yaml.safe_load(resources.files(__package__).joinpath("prometheus_services.yaml").read_text())
"""Labels of Services, and the path below which each has Prometheus' API."""


def to_prometheus(named: str | None, connect: Callable[[], ApiServer]) -> str:
    """URL on this machine of the Service that is named, or of the one that is found. Ends the command without one."""
    with told():
        server = connect()
        named = named or _found(server)
        space, name, port, path = PLACE.fullmatch(named).groups()  # type: ignore[union-attr]
        service = server.request("GET", path_of("v1", "services", space, name), f"read Service {space}/{name}")
        path = next((below for _, below in _ranks(service)), "") if path is None else path
        if (port := port or next(iter(_ports(service)), None)) is None:
            wrong(f"Service {space}/{name} has no port that can be asked. Give --prometheus URL")
        at = f"{path_of('v1', 'services', space, name)}:{port}/proxy{path.rstrip('/')}"
        server.request("GET", f"{at}/api/v1/query", f"ask {named} through the API server", query={"query": "1"})
    echo(f"Prometheus: Service {space}/{name}, through the API server.", err=True)
    return _opened(server, connect, at)


def _found(server: ApiServer) -> str:
    """Namespace and name of the only one. Ends the command where there is none, or several."""
    items = server.request("GET", path_of("v1", "services"), "look for Prometheus (no --prometheus given)")["items"]
    metas = [(rank, one["metadata"]) for one in items if _ports(one) for rank, _ in _ranks(one)]
    first = {meta["namespace"]: rank for rank, meta in sorted(metas, key=lambda one: one[0], reverse=True)}
    names = sorted({f"{meta['namespace']}/{meta['name']}" for rank, meta in metas if rank == first[meta["namespace"]]})
    if len(names) != 1:
        there = f"The cluster has several: {', '.join(names)}" if names else "None was found in the cluster"
        wrong(f"No Prometheus is named. {there}. Give --prometheus URL, or NAMESPACE/SERVICE of one in the cluster")
    return names[0]


def _ports(service: Mapping[str, Any]) -> list[int]:
    """Ports that may speak HTTP."""
    return [one["port"] for one in service["spec"].get("ports") or () if not str(one.get("name")).startswith("grpc")]


def _ranks(service: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Places among the known ones, and the path of each."""
    labels = (service["metadata"].get("labels") or {}).items()
    return [(rank, one.get("path", "")) for rank, one in enumerate(KNOWN) if one["labels"].items() <= labels]


def _opened(server: ApiServer, connect: Callable[[], ApiServer], base: str) -> str:
    """URL by which this process, and nobody who does not know it, asks what is at `base`, until it ends."""
    secret, held = f"/{token_urlsafe(16)}", [server]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            status, content = 404, b""
            try:
                if self.path.startswith(f"{secret}/"):
                    status, content = self._asked(body)
                    if status == 401:  # the token ran out
                        held[0] = connect()
                        status, content = self._asked(body)
            except ClusterError as error:
                status, content = 502, str(error).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815, as the base class wants

        def _asked(self, body: bytes | None) -> tuple[int, bytes]:
            kind = self.headers.get("Content-Type", JSON)
            with answering("ask Prometheus"):
                answer = held[0].open(self.command, base + self.path.removeprefix(secret), body, content_type=kind)
                return answer.status, answer.read()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    local = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=local.serve_forever, daemon=True, name="tunnel").start()
    return f"http://127.0.0.1:{local.server_port}{secret}"
