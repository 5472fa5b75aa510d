"""`servingpool suggest`: a ServingPool for what serves already."""

from __future__ import annotations

from typing import Annotated

import typer

from servingpool.cli.kubectl import AllNamespaces, Context, Kubeconfig, Namespace, namespace_of
from servingpool.cli.source import Backend, Config, Prometheus


def suggest(  # noqa: PLR0913, a command line's options are its parameters
    target: Annotated[
        str | None,
        typer.Argument(metavar="[KIND/NAME]", help="A workload, or hpa/NAME or scaledobject/NAME for what it scales."),
    ] = None,
    *,
    all_namespaces: AllNamespaces = False,
    namespace: Namespace = None,
    since: Annotated[str, typer.Option(help="History that the SLO is taken from, 10m to 90d.")] = "7d",
    gpu_price: Annotated[
        list[str] | None,
        typer.Option(metavar="PRODUCT=DOLLARS", help="Dollars per hour of this GPU product. Repeatable."),
    ] = None,
    prometheus: Prometheus = None,
    config: Config = None,
    backend: Backend = "default",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print a ServingPool in Recommend mode, with a comment on where each line comes from.

    Engine and model come from the pods' metrics, min and max from the HPA or ScaledObject, the SLO from what was
    attained. The price comes from the node label servingpool.dev/dollars-per-gpu-hour or --gpu-price. Comments say what
    of the autoscaler is lost, what the pod template lacks for a drain, and what Prometheus lacks. Nothing is written.
    With -A it looks at all that serve an LLM and can be scaled.

    Example: `servingpool suggest hpa/llama -n chat --prometheus http://localhost:9090 > pool.yaml`

    Exit codes: 0 suggested, 1 no such target, no engine in it, or Prometheus did not answer, 2 wrong usage, 4 the
    cluster refused or did not answer.
    """
    from servingpool.cli import recorded, source, usage
    from servingpool.cli.logs import quiet

    quiet()
    if (target is None) != all_namespaces:
        usage.wrong("Give KIND/NAME, hpa/NAME or scaledobject/NAME, or -A for all")
    kind, name = ("", "") if target is None else recorded.target_of(target)
    found, asked = source.chosen(config, prometheus, backend)
    usage.span("--since", since, *usage.HISTORY)
    from servingpool.cli import suggesting

    order = suggesting.Order(
        kind=kind,
        namespace=namespace_of(namespace, kubeconfig, context),
        name=name,
        since=since,
        prices=suggesting.prices(gpu_price or ()),
        kubeconfig=None if kubeconfig is None else str(kubeconfig),
        context=context,
    )
    raise typer.Exit(suggesting.run(order, found, asked))
