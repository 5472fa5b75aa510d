"""A Prometheus of the cluster without a second terminal: found by its Service's labels, asked through the API server."""

# ruff: noqa: F811, a fixture
from __future__ import annotations

import json
from urllib.request import urlopen

import pytest

from servingpool.adapters.cluster.api_server import ApiServer
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import PrometheusClient
from servingpool.cli import tunnel

from .test_bad_input import Reply, Servers, empty_prometheus, servers, status  # noqa: F401

KNOWN = {"prometheus-operated": {"operated-prometheus": "true"}, "kps": {"app": "kube-prometheus-stack-prometheus"}}


@pytest.mark.parametrize(
    ("named", "at"),
    [
        (None, "monitoring/services/kps:9090/proxy"),
        ("vm/select", "vm/services/select:9090/proxy/select/0/prometheus"),
        ("vm/select:8481/x", "vm/services/select:8481/proxy/x"),
    ],
)
def test_it_is_asked_through_the_api_server_by_those_who_know_the_url(
    servers: tuple[Servers, str], named: str | None, at: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (now, url), asked, logins = servers, list[str](), list[str]()

    def api(path: str) -> Reply:
        asked.append(path.partition("?")[0])
        if "/proxy/" in path:
            return status(401, "Unauthorized", "") if len(asked) == 4 else empty_prometheus(path)
        metas = [{"namespace": "monitoring", "name": name, "labels": labels} for name, labels in KNOWN.items()]
        ports = [{"name": "grpc", "port": 10901}, {"name": "http-web", "port": 9090}]
        labels = {"app.kubernetes.io/name": "vmselect"} if "/vm/" in path else {}
        found = {
            "items": [{"metadata": one, "spec": {"ports": ports}} for one in metas],
            "metadata": {"labels": labels},
            "spec": {"ports": ports},
        }
        return 200, "application/json", json.dumps(found)

    def connect() -> ApiServer:
        logins.append("")
        return ApiServer(f"{url}/api-server", None, "Bearer x")

    now.api = api
    local = tunnel.to_prometheus(named, connect)
    assert capsys.readouterr().err.startswith("Prometheus: Service ")
    client = PrometheusClient(BackendConfig(url=local))
    for query in ("up", "+".join(["up"] * 2000)):  # which is too long for a URL
        assert not list(client.query(query, 5.0).rows())
        assert asked[-1].startswith(f"/api-server/api/v1/namespaces/{at}/api/v1/query")
    assert len(logins) == 2, "the token ran out once"
    before = len(asked)
    with pytest.raises(OSError, match="404"):
        urlopen(f"{local[: local.rindex('/')]}/api/v1/query?query=up", timeout=5)
    assert len(asked) == before
