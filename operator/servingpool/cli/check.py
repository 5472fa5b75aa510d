"""`servingpool check`: whether every Prometheus of the operator's configuration answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from servingpool.adapters.prometheus import BackendConfig
    from servingpool.decision.observation import Unknown

REMEDY = "Correct the backend's url and credentials, or open the network to it."


def check(
    *,
    config: Annotated[
        Path, typer.Option(help="The operator's configuration file (YAML).", envvar="SERVINGPOOL_CONFIG")
    ],
) -> None:
    """Send a test query to every Prometheus in the operator's configuration. `helm test` runs this command.

    Example: `servingpool check --config config.yaml`

    Exit codes: 0 all answer, 1 at least one does not answer, 2 the configuration is invalid.
    """
    from servingpool.cli.logs import configure
    from servingpool.reconcile.config import ConfigError, load

    configure(json=False, debug=False)  # The client logs details that pools' users must not see.
    try:
        backends = load(config).backends
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    problems = asyncio.run(_ask(backends))
    for backend in backends:
        problem = problems[backend.name]
        if problem is None:
            typer.echo(f"Prometheus backend '{backend.name}' answers. URL: {backend.url}")
        else:
            typer.echo(f"{problem.reason}. URL: {backend.url}. {REMEDY}", err=True)
    raise typer.Exit(1 if any(problem is not None for problem in problems.values()) else 0)


async def _ask(backends: Sequence[BackendConfig]) -> Mapping[str, Unknown | None]:
    """By name, why a backend does not answer; None where it does."""
    from servingpool.adapters.prometheus import PrometheusBackend

    opened = [PrometheusBackend(backend) for backend in backends]
    try:
        problems = await asyncio.gather(*(backend.check() for backend in opened))
    finally:
        await asyncio.gather(*(backend.close() for backend in opened))
    return {backend.config.name: problem for backend, problem in zip(opened, problems, strict=True)}
