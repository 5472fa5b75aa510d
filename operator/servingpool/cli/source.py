"""The Prometheus that a command asks, whether the two clocks agree, and the message where it does not answer."""

from __future__ import annotations

import os
import re
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from pydantic import ValidationError

from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import PrometheusClient
from servingpool.adapters.prometheus.rows import Unread
from servingpool.api.duration import brief
from servingpool.api.serving_pool import said
from servingpool.cli.output import echo
from servingpool.cli.usage import wrong
from servingpool.reconcile.config import ConfigError, OperatorConfig, load

TIMEOUT = 10.0
"""Seconds for the first, small question."""
SKEW = 60.0
"""Seconds by which this machine's clock may differ from Prometheus'; newer scrapes than these are not read anyway."""

REACHED_WITHIN = 3.0
"""Seconds for a connection where Prometheus could not be reached: only the cause is asked for."""
SERVICE = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)(\.svc(\..*)?)?")
"""The name of a Service as a cluster's own DNS has it: name and namespace."""


def _beside_config(context: typer.Context, value: str | None) -> str | None:
    """The URL; none where it is the environment's and the command line names a configuration or a server of one."""
    _one_server(context)
    named = "COMMANDLINE" in {_by(context, "config"), _by(context, "backend")}
    return None if named and _by(context, "prometheus") == "ENVIRONMENT" else value


def beside_url(context: typer.Context, value: str) -> str:
    """The name of a backend, which no URL stands beside."""
    _one_server(context)
    return value


def _one_server(context: typer.Context) -> None:
    """End the command if its line names both a URL and a backend. The option that is read last sees both."""
    if _by(context, "prometheus") == _by(context, "backend") == "COMMANDLINE":
        wrong("Give --prometheus URL or --backend NAME, not both")


def _by(context: typer.Context, name: str) -> str:
    """Where a parameter is from, by its name in the library; empty where it is not read yet."""
    source = context.get_parameter_source(name)
    return source.name if source else ""


def prometheus_of(scraped: str) -> object:
    """The option --prometheus."""
    return typer.Option(
        metavar="URL",
        help=f"A Prometheus that scrapes {scraped}.",
        envvar="SERVINGPOOL_PROMETHEUS",
        show_default=False,
        callback=_beside_config,
    )


Config = Annotated[
    Path | None, typer.Option(help="The operator's configuration, for credentials.", envvar="SERVINGPOOL_CONFIG")
]
Backend = Annotated[str, typer.Option(help="Which Prometheus of the configuration.", callback=beside_url)]
Prometheus = Annotated[str | None, prometheus_of("the engines")]


def chosen(config: Path | None, prometheus: str | None, backend: str) -> tuple[OperatorConfig, BackendConfig]:
    """The configuration, with the chosen Prometheus. Wrong options end the command."""
    if config is None and prometheus is None:
        wrong("Give --prometheus URL or --config FILE")
    found = settings(config, prometheus)
    return found, backend_of(found, prometheus, backend)


def backend_of(found: OperatorConfig, prometheus: str | None, backend: str) -> BackendConfig:
    """The backend of this name; of a URL there is only one."""
    one = found.backends[0] if prometheus else next((b for b in found.backends if b.name == backend), None)
    if one is None:
        wrong(f"--backend must be one of {', '.join(each.name for each in found.backends)}, got '{backend}'")
    return one


def settings(config: Path | None, prometheus: str | None) -> OperatorConfig:
    """The configuration, with only the Prometheus of this URL where a URL is given."""
    try:
        if prometheus is None and config is not None:
            return load(config)
        own = load(config) if config is not None else None
        profiles = {} if own is None else {"engines": own.engines, "gateways": own.gateways}
        return OperatorConfig(backends=(BackendConfig(url=str(prometheus)),), **profiles)
    except ConfigError as error:
        wrong(str(error))
    except ValidationError as error:
        wrong(f"--prometheus {said(error.errors()[0])}")


def now(source: BackendConfig) -> float:
    """Unix seconds, by Prometheus' clock where ours is wrong, which is said. Raises MetricsUnavailable."""
    with closing(PrometheusClient(source)) as client:
        asked = time.time()
        rows = client.query("vector(time())", TIMEOUT).rows()
        told = list(Unread().readable(rows, lambda row: float(row["value"][1])))
    answered = time.time()
    there = told[0] if told else answered
    if asked - SKEW <= there <= answered + SKEW:
        return answered
    apart = "behind" if there > answered else "ahead of"
    echo(
        f"This machine's clock is {brief(abs(there - answered))} {apart} Prometheus': times are by Prometheus' clock.",
        err=True,
    )
    return there


def unavailable(reason: str, source: BackendConfig) -> str:
    """Sentences on a Prometheus that fails: the fault, its address, the remedy."""
    if reason.endswith("cannot be reached"):
        return f"{reason}. URL: {source.url}. {_unreached(source.url)}"
    if any(f"HTTP {code}" in reason for code in (401, 403)):
        advice = "Give its credentials by --config FILE, without --prometheus"
    elif "HTTP 404" in reason:
        advice = "Give the base URL, without /api/v1 or /graph"
    else:
        advice = "Correct the URL and its credentials"
    return f"{reason}. URL: {source.url}. {advice}."


def _unreached(url: str) -> str:
    """The cause that no server is reached at a URL, and how to reach a Service of the cluster from this machine."""
    at = urlsplit(url)
    host, port = str(at.hostname), at.port or (443 if at.scheme == "https" else 80)
    service = SERVICE.fullmatch(host)
    try:
        socket.create_connection((host, port), REACHED_WITHIN).close()
    except socket.gaierror:
        cause = f"The name {host} is not known on this machine. "
    except ConnectionRefusedError:
        cause = f"Nothing listens at {host}:{port}. "
    except OSError:
        cause = f"{host}:{port} does not answer. "
    else:
        cause = ""
    forward = (
        f"-n {service[2]} service/{service[1]}" if service and not host[0].isdigit() else "-n NAMESPACE service/NAME"
    )
    if "KUBERNETES_SERVICE_HOST" in os.environ:  # in a pod, as `helm test` runs it
        return f"{cause}Correct the URL, or open the network to it, such as by the chart's networkPolicy."
    local = port if port >= 1024 else 9090
    return (
        f"{cause}A Prometheus in the cluster is reached by `kubectl port-forward {forward} {local}:{port}` "
        f"and --prometheus {at.scheme}://localhost:{local}{at.path}."
    )
