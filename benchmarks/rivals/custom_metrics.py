"""`python -m rivals.custom_metrics`: the custom metrics API of the plain HPAs, answered from Prometheus.

A stand-in for prometheus-adapter with three rules. KEDA's own adapter serves the external metrics of KEDA's HPAs.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from servingpool_lab import kwok

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
BASE = f"/apis/{GROUP}/{VERSION}"
WAITING, RUNNING, TOKENS = "num_requests_waiting", "num_requests_running", "generation_tokens_per_second"
OF_DEPLOYMENTS = {name: f'sum(vllm:{name}{{model_name="%s"}})' for name in (WAITING, RUNNING)}
OF_PODS = {TOKENS: 'sum by (pod) (rate(vllm:generation_tokens_total{model_name="%s"}[1m]))'}
"""Queries by metric. A fleet's model is named as its Deployment."""


def application(prometheus: str) -> web.Application:
    """Routes of the API: its list of metrics, a Deployment's metric, a metric of all pods of a Deployment."""

    async def listed(_request: web.Request) -> web.Response:
        names = [*(f"deployments.apps/{name}" for name in OF_DEPLOYMENTS), *(f"pods/{name}" for name in OF_PODS)]
        resources = [
            {"name": name, "singularName": "", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
            for name in names
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        return web.json_response({**listed, "resources": resources})

    async def of_deployment(request: web.Request) -> web.Response:
        metric, name = request.match_info["metric"], request.match_info["name"]
        found = await _query(prometheus, OF_DEPLOYMENTS[metric] % name)
        return _values(
            metric, [({"kind": "Deployment", "apiVersion": "apps/v1", "name": name}, one) for _, one in found]
        )

    async def of_pods(request: web.Request) -> web.Response:
        metric, selector = request.match_info["metric"], request.query["labelSelector"]
        found = await _query(prometheus, OF_PODS[metric] % selector.removeprefix(f"{kwok.APP_LABEL}="))
        return _values(metric, [({"kind": "Pod", "apiVersion": "v1", "name": pod}, one) for pod, one in found])

    app = web.Application()
    in_namespace = f"{BASE}/namespaces/default"
    app.add_routes(
        [
            web.get(BASE, listed),
            web.get(f"{in_namespace}/deployments.apps/{{name}}/{{metric}}", of_deployment),
            web.get(f"{in_namespace}/pods/*/{{metric}}", of_pods),
        ]
    )
    return app


async def _query(prometheus: str, query: str) -> list[tuple[str, float]]:
    """Pod (empty for a sum) and value of each series."""
    timeout = aiohttp.ClientTimeout(total=5.0)
    async with (
        aiohttp.ClientSession(trust_env=False, timeout=timeout) as http,
        http.get(f"{prometheus}/api/v1/query", params={"query": query}) as response,
    ):
        series = (await response.json())["data"]["result"]
    return [(one["metric"].get("pod", ""), float(one["value"][1])) for one in series]


def _values(metric: str, found: list[tuple[dict[str, str], float]]) -> web.Response:
    """404 where Prometheus has no series: the HPA then holds."""
    if not found:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        return web.json_response({**body, "message": f"no series of {metric}"}, status=404)
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    items: list[dict[str, Any]] = [
        {
            "describedObject": {**what, "namespace": "default"},
            "metric": {"name": metric},
            "timestamp": at,
            "value": f"{round(1000 * value)}m",
        }
        for what, value in found
    ]
    head = {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
    return web.json_response({**head, "items": items})


async def _serve(prometheus: str, port: int, context: ssl.SSLContext) -> None:
    runner = web.AppRunner(application(prometheus), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    await asyncio.Event().wait()


def main() -> None:
    """Until it is killed."""
    parser = argparse.ArgumentParser(prog="python -m rivals.custom_metrics", description=__doc__)
    parser.add_argument("--prometheus", required=True, help="its URL")
    parser.add_argument("--port", type=int, required=True, help="on loopback, with TLS")
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    asked = parser.parse_args()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(asked.certificate, asked.key)
    asyncio.run(_serve(asked.prometheus, asked.port, context))


if __name__ == "__main__":
    main()
