"""`servingpool dashboard`: pages about the pools, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from servingpool.adapters.prometheus.own_record import OwnRecord
from servingpool.cli.extras import needs
from servingpool.cli.fleet import read
from servingpool.cli.kubectl import connect, same_place, told
from servingpool.cli.output import echo
from servingpool.cli.own_record import Match, Source
from servingpool.cli.source import Options, asks
from servingpool.cli.usage import wrong

LOOPBACK = "127.0.0.1"
TIMEOUT = 10.0
"""Seconds for one query: charts are asked for again after some seconds."""


@asks
def dashboard(
    *,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="Only the pools of this namespace. Default: all namespaces.", show_default=False
        ),
    ] = None,
    options: Options,
    match: Match = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8765,
    address: Annotated[
        str, typer.Option(help="Address to listen on. Whoever reaches it sees what you may see: there is no login.")
    ] = LOOPBACK,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further host name by which browsers may ask for it. Repeatable."),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    grafana: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="SERVINGPOOL_GRAFANA",
            help="A Grafana dashboard to link to, with {namespace} and {pool} in its URL.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Serve pages about the pools on localhost: who is in trouble, and each pool's decisions, latency and cost.

    It reads the cluster with your rights and writes nothing. Charts come from the operator's own metrics in
    Prometheus; without it, pages show what the pools' status holds.

    Example: `servingpool dashboard --open`

    Exit codes: 0 stopped on request, 2 wrong usage or a port in use, 4 the kubeconfig cannot be used.
    """
    with needs("dashboard"):
        from servingpool_dashboard.command import PortError, run

    if grafana and not grafana.startswith(("http://", "https://")):
        wrong(f"--grafana must be http:// or https://, got '{grafana}'")
    with told():
        connect(options.kubeconfig, options.context)
    record = _record(Source(options, match))
    own = None if record is None else record(("", ""))
    if address not in {LOOPBACK, "::1", "localhost"}:
        echo(f"Anyone who reaches {address} sees the pools with your rights; there is no login.", err=True)
    try:
        run(
            lambda: connect(options.kubeconfig, options.context),
            record,
            namespace=namespace,
            address=address,
            port=port,
            names=host or (),
            say=lambda url: echo(f"Dashboard on {url}. Ctrl-C stops it."),
            warn=lambda text: echo(text, err=True),
            browse=browse,
            grafana=grafana,
            where=same_place(options.kubeconfig, options.context),
            fleet=lambda: {} if own is None else read(own.config, own.match),
        )
    except PortError as error:
        wrong(str(error))
    except KeyboardInterrupt:
        return


def _record(source: Source) -> Callable[[tuple[str, str]], OwnRecord] | None:
    """Source of each pool's record; None where no Prometheus is named or found. Wrong options end the command."""
    labels = source.labels()
    try:
        asked = source.options.found().source.model_copy(update={"timeout": TIMEOUT})
    except typer.Exit:
        if source.options.prometheus is not None or source.options.config is not None:
            raise
        return None
    return lambda key: OwnRecord(asked, key, labels)
