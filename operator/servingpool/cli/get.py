"""`servingpool get`: pools as kubectl shows them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from servingpool.adapters.cluster.pools import Pools
from servingpool.catalogue.plain import plain
from servingpool.cli.kubectl import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    complete,
    connect,
    place,
    printed,
    told,
)
from servingpool.cli.output import echo
from servingpool.cli.usage import wrong

INTERRUPTED = 130
GONE = 410
"""HTTP status of a watch that asks for versions which are no longer kept."""


class Form(StrEnum):
    """Output format of pools."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def get(
    pool: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One ServingPool, as NAME or NAMESPACE/NAME.", autocompletion=complete),
    ] = None,
    *,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: Annotated[Form | None, typer.Option("--output", "-o", help="More columns, or the pools in full.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print each change until Ctrl-C.")] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List pools, with kubectl's flags and your own rights.

    Example: `servingpool get -A -o wide`

    Exit codes: 0 listed, 1 no such pool, 2 wrong usage, 4 the cluster refused or did not answer, 130 a watch was ended.
    """
    if pool is not None and all_namespaces:
        wrong("Give a NAME or --all-namespaces, not both")
    with told():
        pools = connect(kubeconfig, context)
        within, name = (None if all_namespaces else namespace or pools.namespace), None
        if pool is not None:
            within, name = place(pools, pool, namespace)
        try:
            _print(pools, within, name, output, watch=watch)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _print(pools: Pools, namespace: str | None, name: str | None, output: Form | None, *, watch: bool) -> None:
    columns = output not in {Form.JSON, Form.YAML}
    found = pools.read(namespace, name, table=columns)
    table = Table(wide=output is Form.WIDE, everywhere=namespace is None) if columns else None
    if table is not None:
        table.show(found)
        if not found["rows"] and not watch:
            where = "" if namespace is None else f" in namespace {namespace}"
            echo(f"No ServingPools found{where}. `servingpool suggest` writes one for a Deployment.", err=True)
    elif output is not None:
        printed(found, output)
    while watch:
        version = found["metadata"]["resourceVersion"]
        for event in pools.watch(namespace, name, version, table=columns):
            if event["type"] == "ERROR":
                if event["object"].get("code") != GONE:
                    echo(f"The watch ended: {event['object'].get('message', 'without a reason')}", err=True)
                break
            if table is not None:
                table.show(event["object"])
            elif output is not None:
                printed(event["object"], output)
        found = pools.read(namespace, None if namespace is None else name, table=columns)


class Table:
    """Prints the API server's tables, which hold the columns of the CRD, below each other."""

    def __init__(self, *, wide: bool, everywhere: bool) -> None:
        self._wide, self._everywhere = wide, everywhere
        self._columns: list[int] = []
        """Columns of the table that are shown."""
        self._widths: list[int] = []

    def show(self, table: dict[str, Any]) -> None:
        """Print its rows; the columns' names with the first that has rows."""
        definitions = table.get("columnDefinitions") or []
        heading: list[str] = []
        if definitions and not self._columns:
            self._columns = [at for at, one in enumerate(definitions) if self._wide or not one.get("priority")]
            heading = [str(definitions[at]["name"]).upper() for at in self._columns]
        rows = [self._cells(row) for row in table.get("rows") or ()]
        if not rows:
            self._columns = [] if heading else self._columns
            return
        if heading:
            rows = [[*(["NAMESPACE"] if self._everywhere else []), *heading], *rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        self._widths = [max(pair) for pair in zip(widths, self._widths or widths, strict=True)]
        for row in rows:
            echo(self._line(row))

    def _cells(self, row: dict[str, Any]) -> list[str]:
        cells = ["<none>" if row["cells"][at] is None else plain(str(row["cells"][at])) for at in self._columns]
        return [row["object"]["metadata"]["namespace"], *cells] if self._everywhere else cells

    def _line(self, row: Sequence[str]) -> str:
        return "   ".join(cell.ljust(width) for cell, width in zip(row, self._widths, strict=True)).rstrip()
