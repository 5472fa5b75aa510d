"""What the commands share that look like kubectl's: its flags, its way to say where, its words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from servingpool.adapters.cluster.pools import Pools

NOT_FOUND, NO_CLUSTER, CONFLICT = 1, 4, 5
"""Exit codes: no such pool; the cluster refused or did not answer; the pool was changed meanwhile."""

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Default: ~/.kube/config.", envvar="KUBECONFIG", show_default=False)
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Default: that of the context.", show_default=False)
]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig.")]


def complete(incomplete: str) -> list[str]:
    """Pools that begin so, for a shell: those of the context's namespace, or all as NAMESPACE/NAME after a slash."""
    from servingpool.adapters.cluster.refusals import ClusterError

    try:
        pools = connect(None, None)
        namespace, slash, _ = incomplete.partition("/")
        found = pools.read(namespace if slash else pools.namespace, None)
    except ClusterError:
        return []
    names = [each["metadata"]["name"] for each in found["items"]]
    return [
        each for each in (f"{namespace}/{name}" if slash else name for name in names) if each.startswith(incomplete)
    ]


PoolName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The ServingPool, as NAME or NAMESPACE/NAME.",
        autocompletion=complete,
    ),
]


def connect(kubeconfig: Path | None, context: str | None) -> Pools:
    """The cluster's pools. ClusterError where the kubeconfig cannot be used."""
    import os

    from servingpool.adapters.cluster.pools import Pools

    path = os.environ.get("KUBECONFIG") if kubeconfig is None else str(kubeconfig)
    return Pools.connect(path or None, context)


def place(pools: Pools, name: str, namespace: str | None) -> tuple[str, str]:
    """Namespace and name of a pool."""
    within, slash, bare = name.partition("/")
    if not slash:
        return namespace or pools.namespace, name
    if not within or not bare or "/" in bare or namespace not in {None, within}:
        typer.echo(f"Write the pool as NAME or NAMESPACE/NAME, got '{name}'", err=True)
        raise typer.Exit(2)
    return within, bare


@contextlib.contextmanager
def told() -> Iterator[None]:
    """A failure of the cluster is one sentence and an exit code."""
    from servingpool.adapters.cluster.refusals import ClusterError, Conflict, NotFound

    try:
        yield
    except ClusterError as error:
        typer.echo(str(error), err=True)
        codes = {NotFound: NOT_FOUND, Conflict: CONFLICT}
        raise typer.Exit(codes.get(type(error), NO_CLUSTER)) from None
