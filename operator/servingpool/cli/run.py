"""`servingpool run`: the operator. Everything is put together here and nowhere else."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from servingpool.cli.assembly import operate
from servingpool.cli.logs import configure
from servingpool.cli.output import echo
from servingpool.cli.usage import Range, span
from servingpool.reconcile.config import ConfigError, load


class LogFormat(StrEnum):
    """How a log line looks."""

    JSON = "json"
    TEXT = "text"


def run(
    *,
    config: Annotated[
        Path, typer.Option(help="The operator's configuration file (YAML).", envvar="SERVINGPOOL_CONFIG")
    ],
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: ~/.kube/config, else the pod's service account.", envvar="KUBECONFIG")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option(help="Watch only this namespace; repeat for more. Default: all.")
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Time between two ticks, 1s to 1m. Overrides the configuration."),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="json for machines, text for people.")] = LogFormat.JSON,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log debug messages.")] = False,
) -> None:
    """Run the operator until it is stopped.

    Example: `servingpool run --config config.yaml --kubeconfig ~/.kube/config --log-format text`

    Exit codes: 0 stopped on request, 1 the lease was lost or kopf failed, 2 the configuration is invalid.
    """
    configure(json=log_format is LogFormat.JSON, debug=verbose)
    if interval is not None:
        span("--interval", interval, Range("1s", "1m", "5s or 30s"))
    changes = {**({"interval": interval} if interval else {}), **({"namespaces": namespace} if namespace else {})}
    try:
        settings = load(config, changes)
    except ConfigError as error:
        echo(str(error), err=True)
        raise typer.Exit(2) from None
    # kopf asks for the user's name to tell operators apart, which a numeric user in a container has not.
    os.environ.setdefault("POD_ID", f"{os.uname().nodename}-{os.getpid()}")
    sys.exit(operate(settings, str(kubeconfig) if kubeconfig is not None else None))
