"""The Prometheus that a command asks, whether the two clocks agree, and the message where it does not answer."""

from __future__ import annotations

import functools
import inspect
import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from pydantic import ValidationError

from servingpool.adapters.cluster.api_server import ApiServer
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import PrometheusClient
from servingpool.adapters.prometheus.rows import Unread
from servingpool.api.duration import brief
from servingpool.api.serving_pool import said
from servingpool.cli import tunnel
from servingpool.cli.kubectl import Context, Kubeconfig
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


def _beside_url(context: typer.Context, value: str) -> str:
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


@dataclass(frozen=True, slots=True)
class Where:
    """Prometheus and cluster that are asked."""

    config: OperatorConfig
    source: BackendConfig
    kubeconfig: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The options that say which Prometheus and which cluster are asked, as they were given."""

    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A Prometheus that scrapes engines and operator, or NAMESPACE/SERVICE of one in the cluster. "
            "Default: the one that is found there.",
            envvar="SERVINGPOOL_PROMETHEUS",
            show_default=False,
            callback=_beside_config,
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(help="The operator's configuration (YAML), for credentials.", envvar="SERVINGPOOL_CONFIG"),
    ] = None
    backend: Annotated[str, typer.Option(help="Which Prometheus of the configuration.", callback=_beside_url)] = (
        "default"
    )
    context: Context = None
    kubeconfig: Kubeconfig = None

    def found(self) -> Where:
        """The servers. Wrong options, and a Prometheus that is not found, end the command."""
        url, path = self.prometheus, None if self.kubeconfig is None else str(self.kubeconfig)
        if tunnel.PLACE.fullmatch(url or "") or (url is None and self.config is None):
            url = tunnel.to_prometheus(url, lambda: ApiServer.of(Login(path, self.context)))
        found = settings(self.config, url)
        return Where(found, backend_of(found, url, self.backend), path, self.context)


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `Options` in place of its parameter `options`."""
    own, more = (dict(inspect.signature(each, eval_str=True).parameters) for each in (command, Options))
    del own["options"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(**{name: given[name] for name in own}, options=Options(**{name: given[name] for name in more}))

    parameters = [*own.values(), *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in more.values())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


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
