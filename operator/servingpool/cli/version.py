"""`servingpool version`: this client, the operator in the cluster and the CRD, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from servingpool import __version__
from servingpool.adapters.cluster.errors import NotFound
from servingpool.adapters.cluster.kinds import OPERATOR, path_of
from servingpool.adapters.cluster.pools import Pools
from servingpool.api.crd import manifests
from servingpool.cli.kubectl import Context, Kubeconfig, Output, connect, printed, told
from servingpool.cli.output import echo

APART = 3
"""Exit code: they do not fit."""
MOST_NAMED = 3
"""Fields that are named."""


def version(
    *,
    client: Annotated[bool, typer.Option("--client", help="Print the version of this client; ask no cluster.")] = False,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="Print them for programs.")] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the versions of client, operator and CRDs, and whether they fit.

    It needs the right to list Deployments in all namespaces, and to get CustomResourceDefinitions.

    Example: `servingpool version`

    Exit codes: 0 they fit or only the client was asked for, 2 wrong usage, 3 they do not fit or no operator is
    installed, 4 the cluster refused or did not answer.
    """
    if client or output is None:  # as kubectl, which tells its own version whatever the cluster says
        _show({"client": __version__}, [], output)
    if client:
        return
    with told():
        pools = connect(kubeconfig, context)
        operators, lacking = _operators(pools), _lacking(pools)
    problems = list(_problems(operators, lacking))
    found = {"client": __version__, "operators": operators, "fits": not problems}
    _show(found, problems, output)
    raise typer.Exit(APART if problems else 0)


def _operators(pools: Pools) -> dict[str, str]:
    """The operators' versions, as their images' tags tell, by namespace and name."""
    found = pools.listed(path_of("apps/v1", "deployments"), {"labelSelector": "=".join(OPERATOR)})
    told = {}
    for one in found["items"]:
        meta, containers = one["metadata"], one["spec"]["template"]["spec"]["containers"]
        image = str(next((each for each in containers if each.get("name") == "operator"), containers[0])["image"])
        chart = str(meta.get("labels", {}).get("helm.sh/chart", "")).rpartition("operator-")[2]
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2].removeprefix("v")
        told[f"{meta['namespace']}/{meta['name']}"] = tag or chart or "unknown"
    return told


def _lacking(pools: Pools) -> dict[str, tuple[list[str], list[str]]] | None:
    """By CRD the fields of this client that the cluster's lacks, and the reverse. None where one is not installed."""
    differ = {}
    for name, manifest in manifests().items():
        path = path_of("apiextensions.k8s.io/v1", "customresourcedefinitions", None, name)
        try:
            there = set(_fields_of(pools.request("GET", path, f"read CRD {name}")))
        except NotFound:
            return None
        here = set(_fields_of(manifest))
        differ[name] = sorted(here - there), sorted(there - here)
    return differ


def _fields_of(manifest: Mapping[str, Any]) -> Iterator[str]:
    for one in manifest["spec"]["versions"]:
        yield from _fields(one["schema"]["openAPIV3Schema"], "")


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, one in (schema.get("properties") or {}).items():
        yield f"{path}{name}"
        yield from _fields(one, f"{path}{name}.")
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _fields(items, path)


def _problems(operators: Mapping[str, str], lacking: Mapping[str, tuple[list[str], list[str]]] | None) -> Iterator[str]:
    if not operators:
        yield "No operator is installed: no Deployment has its label."
    for name, there in operators.items():
        if there != __version__:
            yield f"The operator {name} is {there} and this client {__version__}: install one release of both."
    if lacking is None:
        yield "The CRDs are not installed: `servingpool crd | kubectl apply --server-side -f -` installs them."
        return
    for name, (older, newer) in lacking.items():
        if older:
            yield (
                f"CRD {name} is older than this client and lacks {_some(older)}: "
                "`servingpool crd | kubectl apply --server-side -f -` replaces it."
            )
        elif newer:
            yield f"CRD {name} is newer than this client and has {_some(newer)}: install a newer client."


def _some(fields: list[str]) -> str:
    more = len(fields) - MOST_NAMED
    return ", ".join(fields[:MOST_NAMED]) + (f" and {more} more fields" if more > 0 else "")


def _show(found: Mapping[str, Any], problems: list[str], output: Output | None) -> None:
    if output is not None:
        printed({**found, **({"problems": problems} if problems else {})}, output)
        return
    if "operators" not in found:
        echo(f"client    {found['client']}")
    for name, there in found.get("operators", {}).items():
        echo(f"operator  {there} ({name})")
    for problem in problems:
        echo(problem, err=True)
    if "operators" in found and not problems:
        echo("They fit, and so do the CRDs.")
