"""A stand-in for prometheus-adapter: it serves the engines' gauges to the real HPA controller.

kube-apiserver's aggregation layer sends `custom.metrics.k8s.io` here. Only metrics of pods are served, one namespace at
a time, straight from Prometheus; the HPA controller itself picks the pods of its target.
"""

from __future__ import annotations

import json
import ssl
import threading
import urllib.parse
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import open_local

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
NAME = "pod-metrics"
ROOT = f"/apis/{GROUP}/{VERSION}"


class PodMetrics:
    """Listens on loopback while the context lasts, and is registered with kube-apiserver."""

    def __init__(self, plane: ControlPlane, prometheus_url: str) -> None:
        self._plane, self._prometheus = plane, prometheus_url

    def __enter__(self) -> Self:
        port = free_ports(1)[0]
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._plane.directory / "apiserver.crt", self._plane.directory / "apiserver.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, name=NAME, daemon=True).start()
        self._plane.apply(_registration(port))
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> dict[str, Any] | None:
        """The answer to a GET; None where there is no such path.

        Raises:
            OSError: Prometheus does not answer.
        """
        if path == ROOT:
            resource = {"name": "pods/*", "singularName": "", "namespaced": True, "kind": "MetricValueList"}
            resources = [{**resource, "verbs": ["get"]}]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": ROOT[6:], "resources": resources}
        match path.removeprefix(f"{ROOT}/").split("/"):
            case ["namespaces", namespace, "pods", "*", metric]:
                items = self._values(namespace, metric)
                return {"kind": "MetricValueList", "apiVersion": ROOT[6:], "metadata": {}, "items": items}
        return None

    def _values(self, namespace: str, metric: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": f'sum by (pod) ({{__name__="{metric}", namespace="{namespace}"}})'})
        with open_local(f"{self._prometheus}/api/v1/query?{query}", 5.0) as response:
            found = json.load(response)["data"]["result"]
        return [
            {
                "describedObject": {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "namespace": namespace,
                    "name": one["metric"]["pod"],
                },
                "metric": {"name": metric},
                "timestamp": datetime.fromtimestamp(one["value"][0], UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "value": f"{round(1000 * float(one['value'][1]))}m",
            }
            for one in found
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    found = answer(urllib.parse.unquote(urllib.parse.urlsplit(self.path).path))
                except OSError:
                    self.send_error(503)
                    return
                if found is None:
                    self.send_error(404)
                    return
                body = json.dumps(found).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def _registration(port: int) -> list[dict[str, Any]]:
    """An APIService can name a Service only; one that is an external name needs no pods and no kube-proxy."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "service": {"name": NAME, "namespace": "kube-system", "port": port},
                "group": GROUP,
                "version": VERSION,
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]
