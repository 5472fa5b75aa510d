"""`servingpool crd`."""

from __future__ import annotations

import typer


def crd() -> None:
    """Print the CustomResourceDefinition.

    Example: `servingpool crd | kubectl apply --server-side -f -`
    """
    from servingpool.api.crd import render

    typer.echo(render(), nl=False)
