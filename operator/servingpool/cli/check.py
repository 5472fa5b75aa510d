"""`servingpool check`: whether Prometheus answers, and what it has of a workload's engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from servingpool.cli.kubectl import Context, Kubeconfig, Namespace, namespace_of
from servingpool.cli.output import echo
from servingpool.cli.source import unavailable
from servingpool.cli.usage import wrong

if TYPE_CHECKING:
    from servingpool.adapters.prometheus import BackendConfig
    from servingpool.decision.observation import Unknown
    from servingpool.reconcile.config import OperatorConfig
    from servingpool.reconcile.gateways import OwnGateway


def check(  # noqa: PLR0913, a command's options
    target: Annotated[
        str | None,
        typer.Argument(metavar="[KIND/NAME]", help="A workload whose engines to look at, pool or not."),
    ] = None,
    *,
    config: Annotated[
        Path | None,
        typer.Option(help="The operator's configuration file (YAML).", envvar="SERVINGPOOL_CONFIG", show_default=False),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="A Prometheus, instead of one of the configuration.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Which Prometheus of the configuration, for a target.")] = "default",
    namespace: Namespace = None,
    engine: Annotated[
        str | None, typer.Option(help="Read the pods as this engine. Default: as their metrics tell.")
    ] = None,
    gateway: Annotated[
        str | None,
        typer.Option(metavar="NAME[/WORKLOAD]", help="Look at this gateway too. Default: the backend's."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="What spec.model would be. Default: as the metrics tell.")] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Ask Prometheus what the operator would ask: all servers of a configuration, or all figures of a workload.

    With a target it shows, for each figure, the series, their labels and the newest sample, says why one is missing,
    and suggests spec.engine and spec.model; where there is a gateway, that one's figures too.
    Without a target `helm test` runs it.

    Example: `servingpool check --config config.yaml`

    Example: `servingpool check deployment/llama -n chat --prometheus http://localhost:9090`

    Exit codes: 0 all is there, 1 no such target, a figure is missing, or a server does not answer, 2 wrong usage or
    configuration, 4 the cluster refused or did not answer.
    """
    from servingpool.cli import recorded, source
    from servingpool.cli.logs import quiet

    quiet()
    if (config is None and prometheus is None) or (target is None and prometheus is not None):
        wrong("Give --config FILE, or a target with --prometheus URL or --config FILE")
    found = source.settings(config, prometheus)
    if target is None:
        raise typer.Exit(_check_backends(found.backends))
    kind, name = recorded.workload(target)
    known = found.known_engines
    if engine is not None and engine not in known:
        wrong(f"--engine must be one of {', '.join(known)}, got '{engine}'")
    chosen = source.backend_of(found, prometheus, backend)
    within = namespace_of(namespace, kubeconfig, context)
    if not chosen.serves(within):
        wrong(f"--backend '{chosen.name}' does not allow namespace {within}, only {', '.join(chosen.namespaces)}")
    from servingpool.cli import check_target

    before = _gateway(gateway, within, chosen, found)
    meters = [each for each, profile in found.known_gateways.items() if profile.meters]
    if engine is not None and known[engine].metered and (before is None or before.name not in meters):
        wrong(f"--engine {engine} exports no metrics; give --gateway one that meters it ({', '.join(meters)})")
    looked_at = check_target.Target(within, kind, name, engine, model, before)
    path = None if kubeconfig is None else str(kubeconfig)
    raise typer.Exit(check_target.run(looked_at, chosen, known, found.known_gateways, path, context))


def _gateway(given: str | None, namespace: str, backend: BackendConfig, settings: OperatorConfig) -> OwnGateway | None:
    """The one that is asked for, or the backend's."""
    from servingpool.api.spec import Gateway
    from servingpool.reconcile.gateways import gateway_in

    if given is None:
        return gateway_in(namespace, None, backend)
    name, _, workload = given.partition("/")
    if name not in settings.known_gateways:
        wrong(f"--gateway must be one of {', '.join(settings.known_gateways)}, got '{name}'")
    return gateway_in(namespace, Gateway(name=name, workload=workload or None), backend)


def _check_backends(backends: Sequence[BackendConfig]) -> int:
    import asyncio

    problems = asyncio.run(_ask(backends))
    for backend in backends:
        problem = problems[backend.name]
        if problem is None:
            echo(f"Prometheus backend '{backend.name}' answers. URL: {backend.url}")
        else:
            echo(unavailable(problem.reason, backend), err=True)
    return 1 if any(problem is not None for problem in problems.values()) else 0


async def _ask(backends: Sequence[BackendConfig]) -> Mapping[str, Unknown | None]:
    """By name, why a backend does not answer; None where it does."""
    import asyncio

    from servingpool.adapters.prometheus import PrometheusBackend

    opened = [PrometheusBackend(backend) for backend in backends]
    try:
        problems = await asyncio.gather(*(backend.check() for backend in opened))
    finally:
        await asyncio.gather(*(backend.close() for backend in opened))
    return {backend.config.name: problem for backend, problem in zip(opened, problems, strict=True)}
