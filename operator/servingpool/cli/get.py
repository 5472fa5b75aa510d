"""`servingpool get`: pools as kubectl shows them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from servingpool.adapters.cluster.pools import PAUSE, Pools
from servingpool.catalogue.plain import plain
from servingpool.cli.jsonpath import JsonPath
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
from servingpool.cli.usage import NAMED_KIND, wrong

INTERRUPTED = 130
GONE = 410
"""HTTP status of a watch that asks for versions which are no longer kept."""


JSONPATH = "jsonpath="


def _form(text: str) -> str:
    """How pools are printed. Raises typer.BadParameter."""
    if text in {"wide", "json", "yaml", "name"}:
        return text
    if text.startswith(JSONPATH):
        try:
            JsonPath(text.removeprefix(JSONPATH))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return text
    raise typer.BadParameter(f"must be wide, name, json, yaml or jsonpath=TEMPLATE, got '{text}'")


def _path(text: str) -> str:
    """What pools are sorted by, with or without its braces. Raises typer.BadParameter."""
    try:
        found = JsonPath(within := f"{{{text.removeprefix('{').removesuffix('}')}}}")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not found.path:
        raise typer.BadParameter(f"must be one field, such as .status.desiredReplicas, got '{text}'")
    return within


def get(  # noqa: PLR0913, a command line's options are its parameters
    pool: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One ServingPool, as NAME or NAMESPACE/NAME.", autocompletion=complete),
    ] = None,
    *,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Annotated[
        str | None, typer.Option("--selector", "-l", metavar="SELECTOR", help="Labels of the pools, such as team=chat.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="wide|name|json|yaml|jsonpath=TEMPLATE",
            parser=_form,
            help="More columns, names alone, the pools in full, or fields of them.",
        ),
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option(metavar="JSONPATH", parser=_path, help="Field to sort by, such as .status.desiredReplicas."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print each change until Ctrl-C.")] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List pools, with kubectl's flags and your own rights.

    Example: `servingpool get -A -o wide`

    Example: `servingpool get -l team=chat --sort-by .status.desiredReplicas`

    Example: `servingpool get chat -o jsonpath='{.status.lastDecision.reason}'`

    Exit codes: 0 listed, 1 no such pool, 2 wrong usage, 4 the cluster refused or did not answer, 130 a watch was ended.
    """
    if pool is not None and (all_namespaces or selector is not None):
        wrong(f"Give a NAME or {'--all-namespaces' if all_namespaces else '--selector'}, not both")
    with told():
        pools = connect(kubeconfig, context)
        within, name = (None if all_namespaces else namespace or pools.namespace), None
        if pool is not None:
            within, name = place(pools, pool, namespace)
        try:
            Printer(pools, Asked(within, name, selector), output, sort_by).print(watch=watch)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """Which pools."""

    namespace: str | None
    """None for all."""
    name: str | None
    selector: str | None


class Printer:
    """Reads pools and prints them, as a table or in full."""

    def __init__(self, pools: Pools, asked: Asked, output: str | None, sort_by: str | None) -> None:
        self._pools, self._asked, self._output = pools, asked, output
        self._sort = None if sort_by is None else JsonPath(sort_by)
        templated = output is not None and output.startswith(JSONPATH)
        self._template = JsonPath(str(output).removeprefix(JSONPATH)) if templated else None
        columns = output in {None, "wide"}
        self._table = Table(wide=output == "wide", everywhere=asked.namespace is None) if columns else None

    def print(self, *, watch: bool) -> None:
        """Once, or until Ctrl-C."""
        found = self._read(self._asked.name)
        self._show(found)
        if self._table is not None and not found["rows"] and not watch:
            self._tell_none()
        version: str | None = found["metadata"]["resourceVersion"] if watch else None
        while watch:
            if version is None:
                version = self._pools.version(self._asked.namespace, self._asked.name)
            for event in self._pools.watch(
                self._asked.namespace,
                self._asked.name,
                version,
                table=self._table is not None,
                selector=self._asked.selector,
            ):
                if event["type"] == "ERROR":
                    if event["object"].get("code") != GONE:
                        echo(f"The watch ended: {event['object'].get('message', 'without a reason')}", err=True)
                    version = None
                    break
                self._show(event["object"])
                version = _version(event["object"]) or version
            time.sleep(PAUSE)

    def _read(self, name: str | None) -> dict[str, Any]:
        asked, table, sort = self._asked, self._table is not None, self._sort is not None
        found = self._pools.read(asked.namespace, name, table=table, selector=asked.selector, whole=sort)
        return found if self._sort is None else _sorted(found, self._sort)

    def _show(self, found: dict[str, Any]) -> None:
        output = self._output
        if self._table is not None:
            self._table.show(found)
        elif output == "name":
            for one in found.get("items", [found]):
                echo(plain(f"{NAMED_KIND}/{one['metadata']['name']}"))
        elif self._template is not None:
            echo(self._template.render(found))
        elif output is not None:
            printed(found, output)

    def _tell_none(self) -> None:
        where = "" if self._asked.namespace is None else f" in namespace {self._asked.namespace}"
        if self._asked.selector:
            echo(f"No ServingPools found{where} with labels {self._asked.selector}.", err=True)
        else:
            echo(f"No ServingPools found{where}. `servingpool suggest` writes one for a Deployment.", err=True)


def _version(changed: dict[str, Any]) -> str | None:
    """The resourceVersion of a pool, or of a table's one row."""
    one = changed["rows"][0]["object"] if changed.get("rows") else changed
    found: str | None = one["metadata"].get("resourceVersion")
    return found


def _sorted(found: dict[str, Any], by: JsonPath) -> dict[str, Any]:
    """The list or table in the order of a field: numbers before texts, pools without the field first."""

    def key(one: dict[str, Any]) -> tuple[int, float, str]:
        values = by.values(one.get("object", one))
        value = values[0] if values else None
        if isinstance(value, int | float):
            return 1, float(value), ""
        return (0, 0.0, "") if value is None else (2, 0.0, str(value))

    rows = "rows" if "rows" in found else "items"
    return {**found, rows: sorted(found[rows], key=key)} if rows in found else found


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
