"""Serves the pages until Ctrl-C."""

from __future__ import annotations

import logging
import socket
import webbrowser
from collections.abc import Callable, Sequence

import uvicorn

from servingpool.adapters.cluster.pools import Pools
from servingpool.adapters.prometheus.own_record import OwnRecord
from servingpool_dashboard.app import Fleet, Pages, application
from servingpool_dashboard.board import Board
from servingpool_dashboard.guard import LOCAL
from servingpool_dashboard.record import Courses
from servingpool_dashboard.rows import Key


class PortError(RuntimeError):
    """The address cannot be listened on; the message says why."""


def run(  # noqa: PLR0913, one parameter an option
    connect: Callable[[], Pools],
    source_of: Callable[[Key], OwnRecord] | None,
    *,
    namespace: str | None,
    address: str,
    port: int,
    names: Sequence[str],
    say: Callable[[str], None],
    warn: Callable[[str], None],
    browse: bool,
    grafana: str = "",
    where: Sequence[str] = (),
    fleet: Callable[[], Fleet] = dict,
) -> None:
    """Serve to the end. Raises PortError.

    Args:
        connect: the cluster; it may raise ClusterError.
        source_of: a pool's record in Prometheus; None where no Prometheus was named.
        namespace: only its pools; None for all.
        address: to listen on.
        port: to listen on; 0 takes a free one.
        names: further host names that may be asked for.
        say: is given the URL.
        warn: is given what cannot be read, each failure once, and the end of it.
        browse: open a browser.
        grafana: URL of a dashboard with {namespace} and {pool} in it; empty for no link.
        where: options for the cluster and the user, for the commands that a page offers.
        fleet: the tables of `servingpool fleet`; it may raise MetricsUnavailable.
    """
    board = Board(connect, namespace, tell=warn)
    host = f"[{address}]" if ":" in address else address
    hosts = {*LOCAL, host, *names}
    try:
        listening = socket.create_server(
            (address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=128
        )
    except OSError as error:
        raise PortError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port") from error
    url = f"http://{host}:{listening.getsockname()[1]}"
    config = uvicorn.Config(
        application(Pages(board, Courses(source_of, tell=warn), grafana=grafana, where=where, fleet=fleet), hosts),
        access_log=False,
        log_level=logging.WARNING,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    board.start()
    say(url)
    if browse:
        webbrowser.open(url)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        board.stop()
