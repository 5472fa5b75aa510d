"""Packages that a command needs and the operator's image does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """For imports of what comes with an extra. Names the extra and raises typer.Exit(2) where a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        typer.echo(
            f"{error.name} is not installed. It comes with the extra `{extra}`: "
            f"pip install 'servingpool-operator[{extra}]'",
            err=True,
        )
        raise typer.Exit(2) from None
