"""Packages that a command needs and the operator's image does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from servingpool.cli.output import echo

FOLDERS = {"backtest": "simulation backtest", "lab": "simulation lab"}
"""Folders in `packages/` of a checkout that have an extra's packages, where they are more than one of its name."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Guard for imports of an extra. Names the extra and raises typer.Exit(2) where a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        folders = " ".join(f"./packages/{one}" for one in FOLDERS.get(extra, extra).split())
        package = f"'servingpool-operator[{extra}]'"
        echo(
            f"{error.name} is not installed. It comes with the extra `{extra}`: pip install {package}, "
            f"in a checkout pip install . {folders}, with the wheels of `make dist` "
            f"pip install --find-links dist {package}",
            err=True,
        )
        raise typer.Exit(2) from None
