"""`servingpool crd`."""

from __future__ import annotations

from typing import Annotated

import typer

from servingpool.api.crd import manifests, render
from servingpool.cli.output import echo
from servingpool.cli.usage import wrong


def crd(
    name: Annotated[
        str | None, typer.Argument(help="Print this one alone, such as gpubudgets.servingpool.dev.")
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions.

    Example: `servingpool crd | kubectl apply --server-side -f -`
    """
    if name is not None and name not in manifests():
        wrong(f"NAME must be {' or '.join(manifests())}, got '{name}'")
    echo(render(name), nl=False)
