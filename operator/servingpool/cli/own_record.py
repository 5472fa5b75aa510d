"""What the commands share that read the operator's own record in Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from servingpool.cli.usage import wrong

if TYPE_CHECKING:
    from servingpool.adapters.prometheus.own_record import OwnRecord

T = TypeVar("T")
NO_RECORD = 6
"""Exit code: Prometheus did not answer, or has several pools of this name."""
SINCE = ("1m", "366d")
"""Shortest and longest time to look back."""
STEP = ("1s", "1d")
"""Shortest and longest time between two looks: a year at the shortest is 633 queries."""

Prometheus = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A Prometheus that scrapes the operator.",
        envvar="SERVINGPOOL_PROMETHEUS",
        show_default=False,
    ),
]
Match = Annotated[
    list[str] | None,
    typer.Option(metavar="LABEL=VALUE", help="A label that the series must have, such as cluster=eu. Repeatable."),
]


def parse_pool(pool: str) -> tuple[str, str]:
    """Namespace and name, from NAMESPACE/NAME or NAME."""
    namespace, slash, name = pool.partition("/")
    if not slash:
        namespace, name = "default", namespace
    if not namespace or not name or "/" in name:
        wrong(f"Write the pool as NAMESPACE/NAME, got '{pool}'")
    return namespace, name


def point_in_time(option: str, text: str) -> float:
    """Unix time in seconds. A time without a zone is UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        wrong(f"{option} must be a time such as 2026-11-20T03:12, got '{text}'")
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def source_of(key: tuple[str, str], prometheus: str | None, match: list[str] | None, timeout: str = "1m") -> OwnRecord:
    """Where the record of a pool is. `timeout` is for one query."""
    from pydantic import ValidationError

    from servingpool.adapters.prometheus import BackendConfig
    from servingpool.adapters.prometheus.own_record import OwnRecord
    from servingpool.cli.logs import configure

    configure(json=False, debug=False)
    if prometheus is None:
        wrong("Give --prometheus URL, or set SERVINGPOOL_PROMETHEUS")
    labels = {}
    for each in match or ():
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            wrong(f"--match must be LABEL=VALUE, got '{each}'")
        labels[name] = value
    try:
        return OwnRecord(BackendConfig.model_validate({"url": prometheus, "timeout": timeout}), key, labels)
    except ValidationError as error:
        wrong(f"--prometheus {error.errors()[0]['msg']}")


def answered(ask: Callable[[], T]) -> T:
    """What Prometheus answers; without an answer the process ends with one sentence."""
    from servingpool.adapters.prometheus.http_client import MetricsUnavailable
    from servingpool.adapters.prometheus.own_record import AmbiguousRecord

    try:
        return ask()
    except MetricsUnavailable as error:
        typer.echo(str(error), err=True)
    except AmbiguousRecord as error:
        typer.echo(f"{error}. Choose one with --match LABEL=VALUE.", err=True)
    raise typer.Exit(NO_RECORD)
