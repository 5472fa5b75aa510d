"""Shared parts of commands that ask a cluster: kubectl's flags, its choice of cluster and namespace, its words."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from servingpool.adapters.cluster import kubeconfig as kubeconfigs
from servingpool.adapters.cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    NotInstalled,
    Unanswered,
    Unauthorized,
    Unfit,
)
from servingpool.adapters.cluster.pools import Pools
from servingpool.catalogue.plain import plain
from servingpool.cli.output import as_yaml, echo, echo_json
from servingpool.cli.usage import POOL_KINDS, wrong

NOT_FOUND, NO_CLUSTER, CONFLICT = 1, 4, 5
"""Exit codes: no such object; the cluster refused or did not answer; the pool was changed meanwhile."""


class Output(StrEnum):
    """A form for programs."""

    JSON = "json"
    YAML = "yaml"


def printed(found: Any, output: Output | str) -> None:
    """Print plain data in a form for programs."""
    if output == Output.JSON:
        echo_json(json.dumps(found, indent=4))
    else:
        echo(as_yaml(found).rstrip())


def complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of pools with this beginning, for a shell: of the chosen namespace, or as NAMESPACE/NAME after a slash."""
    given = ctx.params
    try:
        pools = connect(given.get("kubeconfig"), given.get("context"))
        namespace, slash, _ = incomplete.partition("/")
        found = pools.read(namespace if slash else given.get("namespace") or pools.namespace, None)
    except ClusterError:
        return []
    within = f"{namespace}/" if slash else ""
    names = [f"{within}{each['metadata']['name']}" for each in found["items"]]
    return [name for name in names if name.startswith(incomplete)]


def complete_context(ctx: typer.Context, incomplete: str) -> list[str]:
    """Contexts that begin so, for a shell."""
    try:
        known = kubeconfigs.contexts(_path(ctx.params.get("kubeconfig")))
    except Exception:  # a shell shows nothing then
        return []
    return [each for each in known if each.startswith(incomplete)]


Kubeconfig = Annotated[
    Path | None, typer.Option(help="Default: ~/.kube/config.", envvar="KUBECONFIG", show_default=False)
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Default: that of the context.", show_default=False)
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig.", autocompletion=complete_context)]
PoolName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The ServingPool: NAME, NAMESPACE/NAME or sp/NAME.", autocompletion=complete),
]


def connect(kubeconfig: Path | None, context: str | None) -> Pools:
    """The cluster's pools. ClusterError where the kubeconfig cannot be used."""
    return Pools.connect(_path(kubeconfig), context)


def same_place(kubeconfig: Path | None, context: str | None) -> list[str]:
    """Options by which a further command asks the same cluster as the same user."""
    user = kubeconfigs.acting().get(kubeconfigs.ACTING)
    given = {"--context": context, "--kubeconfig": _path(kubeconfig), "--as": user}
    return [word for option, value in given.items() if value for word in (option, value)]


def place(pools: Pools, name: str, namespace: str | None) -> tuple[str, str]:
    """Namespace and name of a pool; servingpool/chat is a kind and a name, as in kubectl."""
    return _place(name, namespace, lambda: pools.namespace)


def named(name: str, namespace: str | None, kubeconfig: Path | None, context: str | None) -> tuple[str, str]:
    """Namespace and name of a pool, without asking the cluster."""

    def default() -> str:
        try:
            return _meant(kubeconfig, context, asks=False)
        except ClusterError as error:
            echo(f"{sentence(error)}. Or give -n NAMESPACE: the cluster is not asked.", err=True)
            raise typer.Exit(NO_CLUSTER) from None

    return _place(name, namespace, default)


def namespace_of(namespace: str | None, kubeconfig: Path | None, context: str | None, *, asks: bool = True) -> str:
    """The given namespace, or that of the kubeconfig's context. Ends the command where that cannot be read.

    `asks`: the command ends without the cluster, with a sentence on the kubeconfig that is missing.
    """
    if namespace is not None:
        return namespace
    with told():
        return _meant(kubeconfig, context, asks=asks)


def _meant(kubeconfig: Path | None, context: str | None, *, asks: bool) -> str:
    """The namespace where none is given. A command that goes on without the cluster says that it is a guess."""
    found = kubeconfigs.namespace_of(_path(kubeconfig), context)
    if found is None and not asks:
        echo(
            f"No kubeconfig found, so the namespace is {kubeconfigs.DEFAULT_NAMESPACE}. Give -n NAMESPACE for another.",
            err=True,
        )
    return found or kubeconfigs.DEFAULT_NAMESPACE


def _place(name: str, namespace: str | None, default: Callable[[], str]) -> tuple[str, str]:
    within, slash, bare = name.partition("/")
    if slash and within.lower() in POOL_KINDS:
        name, slash = bare, bare.partition("/")[1]
    if not slash and name:
        return namespace or default(), name
    if not within or not bare or "/" in bare or namespace not in {None, within}:
        wrong(f"Write the pool as NAME or NAMESPACE/NAME, got '{name}'")
    return within, bare


@contextlib.contextmanager
def told() -> Iterator[None]:
    """A failure of the cluster is one sentence on what happened, what to do, and an exit code."""
    try:
        yield
    except ClusterError as error:
        raise typer.Exit(tell(error)) from None


def sentence(error: ClusterError) -> str:
    """Failure in the API server's own words, without a full stop."""
    return plain(f"{error}: {error.detail}" if error.detail else str(error))


def tell(error: ClusterError) -> int:
    """Print a ClusterError with its remedy. Returns the exit code."""
    advice = {
        NotInstalled: "`servingpool crd | kubectl apply --server-side -f -` installs ServingPools",
        NotFound: "Check name and namespace",
        Unfit: "Name what can be scaled, as KIND/NAME, such as deployment/llama",
        Forbidden: "Ask an administrator for this right",
        Unauthorized: "Log in again, or choose another --context",
        Unanswered: "Check --context, the network and the API server",
        Conflict: "Try again",
    }.get(type(error))
    ending = "" if advice is None else f" {advice}."
    if isinstance(error, NotFound) and error.near:
        ending = f" Did you mean {' or '.join(error.near)}?"
    echo(f"{sentence(error)}.{plain(ending)}", err=True)
    codes = {NotFound: NOT_FOUND, Unfit: NOT_FOUND, Conflict: CONFLICT}
    return codes.get(type(error), NO_CLUSTER)


def _path(kubeconfig: Path | None) -> str | None:
    return None if kubeconfig is None else str(kubeconfig)
