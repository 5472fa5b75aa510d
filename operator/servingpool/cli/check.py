"""`servingpool check`: whether Prometheus answers, and what it has of a workload's engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, NamedTuple

import typer

from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.survey import ready_pods
from servingpool.adapters.gateways.own_gateway import OwnGateway, gateway_in
from servingpool.adapters.prometheus import page as pages
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.gateways import GatewayFigure, GatewayProfile
from servingpool.adapters.prometheus.gateways.profile import METERING, READ_AS
from servingpool.adapters.prometheus.inspection import Inspection
from servingpool.adapters.prometheus.page import Found
from servingpool.adapters.prometheus.samples import (
    ANY_MODEL,
    FleetReading,
    ReadRequest,
    Selection,
    alike,
    lost_parts,
    named,
    with_own_buckets,
)
from servingpool.api.spec import Gateway
from servingpool.catalogue.conditions import Reason
from servingpool.catalogue.plain import plain
from servingpool.cli.figures import ANY_ENGINE, Target
from servingpool.cli.figures import where as told_where
from servingpool.cli.kubectl import Namespace, namespace_of, told
from servingpool.cli.logs import quiet
from servingpool.cli.output import echo, table
from servingpool.cli.source import Options, Where, asks, settings, unavailable
from servingpool.cli.usage import workload, wrong
from servingpool.decision.observation import Unknown
from servingpool.reconcile.config import OperatorConfig


@asks
def check(
    target: Annotated[
        str | None, typer.Argument(metavar="KIND/NAME", help="A workload whose engines to look at, pool or not.")
    ] = None,
    *,
    options: Options,
    namespace: Namespace = None,
    engine: Annotated[
        str | None, typer.Option(help="Read the pods as this engine. Default: as their metrics tell.")
    ] = None,
    gateway: Annotated[
        str | None, typer.Option(metavar="NAME[/WORKLOAD]", help="Look at this gateway too. Default: the backend's.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="What spec.model would be. Default: as the metrics tell.")] = None,
    backlog: Annotated[str | None, typer.Option(metavar="QUERY", help="Ask a query of spec.batch.backlog too.")] = None,
) -> None:
    """Ask Prometheus what the operator would ask: all servers of a configuration, or all figures of a workload.

    With a target it shows, for each figure, the series, their labels and the newest sample, says why one is missing,
    and suggests spec.engine and spec.model; where there is a gateway, that one's figures too.
    Without a target `helm test` runs it.

    Example: `servingpool check --config config.yaml`

    Example: `servingpool check deployment/llama -n chat`

    Exit codes: 0 all is there, 1 no such target, a figure is missing, or a server does not answer, 2 wrong usage or
    configuration, 4 the cluster refused or did not answer.
    """
    quiet()
    if target is None:
        if options.config is None or options.prometheus is not None:
            wrong("Give --config FILE alone, or name a KIND/NAME whose engines to look at")
        raise typer.Exit(_check_backends(settings(options.config, None).backends))
    (kind, name), asked = workload(target), options.found()
    found, chosen = asked.config, asked.source
    known = found.known_engines
    if engine is not None and engine not in known:
        wrong(f"--engine must be one of {', '.join(known)}, got '{engine}'")
    within = namespace_of(namespace, options.kubeconfig, options.context)
    if not chosen.serves(within):
        wrong(f"--backend '{chosen.name}' does not allow namespace {within}, only {', '.join(chosen.namespaces)}")
    before = _gateway(gateway, within, chosen, found)
    meters = [each for each, profile in found.known_gateways.items() if profile.meters]
    if engine is not None and known[engine].metered and (before is None or before.name not in meters):
        wrong(f"--engine {engine} exports no metrics; give --gateway one that meters it ({', '.join(meters)})")
    if backlog is not None and not asyncio.run(_answers(backlog, chosen)):
        raise typer.Exit(1)
    with told():
        usable = asyncio.run(check_target(Target(within, kind, name, engine, model), asked, before))
    raise typer.Exit(0 if usable else 1)


async def _answers(query: str, config: BackendConfig) -> bool:
    """Print the answer to a backlog's query. Whether it is a number."""
    async with aclosing(PrometheusBackend(config)) as prometheus:
        found = await prometheus.number(query)
    unknown = isinstance(found, Unknown)
    echo(f"Backlog: {found.reason if isinstance(found, Unknown) else format(found, ',g')}.", err=unknown)
    return not unknown


def _gateway(given: str | None, namespace: str, backend: BackendConfig, settings: OperatorConfig) -> OwnGateway | None:
    """The gateway that is asked for, or the backend's."""
    if given is None:
        return gateway_in(namespace, None, backend)
    name, _, in_front = given.partition("/")
    if name not in settings.known_gateways:
        wrong(f"--gateway must be one of {', '.join(settings.known_gateways)}, got '{name}'")
    return gateway_in(namespace, Gateway(name=name, workload=in_front or None), backend)


def _check_backends(backends: Sequence[BackendConfig]) -> int:
    problems = asyncio.run(_ask(backends))
    for backend, problem in zip(backends, problems, strict=True):
        if problem is None:
            echo(f"Prometheus backend '{backend.name}' answers. URL: {backend.url}")
        else:
            echo(unavailable(problem.reason, backend), err=True)
    return 1 if any(problem is not None for problem in problems) else 0


async def _ask(backends: Sequence[BackendConfig]) -> list[Unknown | None]:
    """Why backends do not answer; None where a backend answers."""
    opened = [PrometheusBackend(backend) for backend in backends]
    try:
        return await asyncio.gather(*(backend.check() for backend in opened))
    finally:
        await asyncio.gather(*(backend.aclose() for backend in opened))


ANY_SLO = ReadRequest(ttft_bounds=frozenset({1.0}), tpot_bounds=frozenset({0.1}))
"""With bounds, so that buckets are read."""
FIGURES = ("figure", "pods", "newest", "series")
Replicas = Mapping[str, str]
"""Names of pods, and of the replica that each belongs to."""


async def check_target(target: Target, where: Where, gateway: OwnGateway | None = None) -> bool:
    """Print what the engines and the `gateway` before them export. Whether a pool could be scaled on it.

    Raises ClusterError where the cluster does not answer.
    """
    engines, gateways = where.config.known_engines, where.config.known_gateways
    async with aclosing(await Cluster.connect(where.kubeconfig, where.context)) as cluster:
        found, pods = await ready_pods(cluster, target.namespace, target.kind, target.name)
    if not pods:
        echo(f"{found.key.kind} {target.namespace}/{target.name} has no ready pod to look at.", err=True)
        return False
    async with aclosing(PrometheusBackend(where.source, engines, gateways)) as prometheus:
        metered = target.engine is not None and engines[target.engine].metered
        if metered:
            echo(f"Engine {target.engine} exports no metrics. The gateway's are used for it.")
            model = _Model(target.model or "", usable=True)
        else:
            model = await _check(target, found.key.kind, prometheus, engines, pods)
        if gateway is None:
            return model.usable
        counted = await check_gateway(gateway, model.name, gateways[gateway.name], prometheus, metered=metered)
        return counted and model.usable


class _Model(NamedTuple):
    """Model that the engines serve."""

    name: str = ""
    """Empty where it is not known."""
    usable: bool = False
    """A pool could be scaled on their metrics."""


async def _check(
    target: Target, kind: str, prometheus: PrometheusBackend, engines: Mapping[str, EngineMetrics], pods: Replicas
) -> _Model:
    keys = [(target.namespace, pod) for pod in pods]
    seen = await prometheus.inspect(target.engine or ANY_ENGINE, keys)
    if isinstance(seen, Unknown):
        echo(unavailable(seen.reason, prometheus.config), err=True)
        return _Model(target.model or "")
    exported = seen.engines(engines)
    engine = target.engine or (exported[0] if exported else ANY_ENGINE)
    if engine != (target.engine or ANY_ENGINE):
        seen = await prometheus.inspect(engine, keys)
    asked = replace(ANY_SLO, engine=engine, namespaces=frozenset({target.namespace}), explain=frozenset(keys))
    reading = await prometheus.read(asked, 0.0)
    for answer in (seen, reading):
        if isinstance(answer, Unknown):
            echo(unavailable(answer.reason, prometheus.config), err=True)
            return _Model(target.model or "")
    assert isinstance(seen, Inspection)
    assert isinstance(reading, FleetReading)
    several = len(exported) > 1 and target.engine is None
    models = seen.models(engines[engine])
    model = target.model or (models[0] if models else "")
    selection = reading.select(target.namespace, pods, model)
    # Of a replica of several pods some serve, and the others have no engine's metrics.
    told = {pods[sample.replica] for sample in selection.samples}
    missing = {pod: why for pod, why in selection.missing.items() if pods[pod] not in told}
    sound = _pods(seen, target, replace(selection, missing=missing))
    found = [pages.find(engines[engine], samples) for samples in seen.samples.values() or ((),)]
    lacking = sorted({figure.value for one in found for figure in pages.lacking(one)})
    if lacking:
        echo(f"Missing, and needed for decisions: {', '.join(lacking)}.", err=True)
    if several:
        echo(f"The pods export metrics of several engines: {', '.join(exported)}. Give --engine.", err=True)
    usable = sound and not lacking and not several
    if usable:
        echo("Every figure that decisions need is there.")
    echo(f"{kind} {target.namespace}/{target.name}, {len(pods)} ready pods, as engine {engine}:")
    if len(seen.pods) < len(keys):
        echo(f"Series of the first {len(seen.pods)} of them:")
    table(
        [FIGURES, *((each[0].figure.value, *_line(each, seen, engines[engine])) for each in zip(*found, strict=True))]
    )
    _fields(exported[: 0 if several else None], "engine", "The pods export metrics of")
    _fields(models, "model", f"Their {engines[engine].model_label} is")
    return _Model(model, usable)


def _fields(found: Sequence[str], field: str, said: str) -> None:
    """Print what is found, and the field of a pool that is to have it."""
    if found:
        named = ", ".join(f"'{plain(name)}'" for name in found)
        echo(f"{said} {named}. Set spec.{field} to {named}.")


def _pods(seen: Inspection, target: Target, selection: Selection) -> bool:
    """Print what is wrong with pods. Whether nothing is."""
    given = [("spec.engine", "--engine", target.engine), ("spec.model", "--model", target.model)]
    for pod, missing in sorted(selection.missing.items()):
        error, reason = seen.errors.get((target.namespace, pod)), missing.reason
        for field, option, value in given:
            reason = reason.replace(field, option) if value is not None else reason  # no pool is looked at
        echo(f"{reason}. (pod {pod})" + (f" Prometheus says: {error}." if error else ""), err=True)
    if selection.doubled:
        echo(Reason.DOUBLED_SERIES.message(pods=named(selection.doubled)), err=True)
    if selection.native:
        echo(Reason.NATIVE_HISTOGRAMS.message(pods=named(selection.native)), err=True)
    if selection.unreadable:
        echo(Reason.UNREADABLE_SERIES.message(detail=alike(selection.unreadable)), err=True)
    lost = lost_parts(with_own_buckets(one, *ANY_SLO.ttft_bounds, *ANY_SLO.tpot_bounds) for one in selection.samples)
    if lost:
        echo(f"Prometheus has the pods without {', '.join(lost)}. Keep them in the monitor.", err=True)
    return not (selection.missing or selection.doubled or selection.native or lost)


def _line(each: Sequence[Found], seen: Inspection, profile: EngineMetrics) -> tuple[str, str, str]:
    """Line on a figure, by each pod's series: the pods that have it, the age of the newest sample, the series."""
    there = [one for one in each if one.series is not None]
    shown = there[0] if there else each[0]
    age = seen.ages.get(shown.figure)
    newest = "-" if age is None or not there else f"{age:.0f} s ago"
    return f"{len(there)}", newest, told_where(shown, profile)


async def check_gateway(
    own: OwnGateway, model: str, profile: GatewayProfile, prometheus: PrometheusBackend, *, metered: bool = False
) -> bool:
    """Print a line for each figure. Whether a pool would be told of its requests.

    `metered`: all that decisions need must be there, since the engine exports nothing.
    """
    reading = await prometheus.read(
        ReadRequest(engine=own.name, gateway=True, namespaces=frozenset({own.namespace})), 0.0
    )
    if isinstance(reading, Unknown):
        echo(unavailable(reading.reason, prometheus.config), err=True)
        return False
    pods = own.pods(reading.samples)
    if not pods:
        echo(f"{own.unseen}.", err=True)
        return False
    seen = await prometheus.inspect(own.name, pods, gateway=True)
    if isinstance(seen, Unknown):
        echo(unavailable(seen.reason, prometheus.config), err=True)
        return False
    echo(f"Gateway {own.name} in namespace {own.namespace}, {len(pods)} pods:")
    if len(seen.pods) < len(pods):
        echo(f"Series of the first {len(seen.pods)} of them:")
    there = _gateway_figures(seen, profile)
    missing = set(METERING) - there if metered else set()
    if missing:
        echo(f"Missing, and needed for decisions: {', '.join(sorted(missing))}.", err=True)
    models = sorted({name for pod in pods for name in reading.samples[pod]} - {ANY_MODEL})
    return _whose(own, model, profile, models) and not missing


def _gateway_figures(seen: Inspection, profile: GatewayProfile) -> set[GatewayFigure]:
    """Print a line for each figure of the gateway. Returns the figures that some pod has."""
    found = [pages.find(profile.metrics, samples) for samples in seen.samples.values()]
    lines, there = [FIGURES], set()
    for name, figure in READ_AS.items():
        each = [one for page in found for one in page if one.figure is figure]
        there |= {name} if any(one.series is not None for one in each) else set()
        lines.append((name.value, *_line(each, seen, profile.metrics)))
    table(lines)
    return there


def _whose(own: OwnGateway, model: str, profile: GatewayProfile, models: Sequence[str]) -> bool:
    """Whether its series lead to the model, as they are labelled or by the workload."""
    if profile.model_label is None:
        if own.workload is None:
            echo(f"{own.ambiguous}, and --gateway to {own.name}/WORKLOAD.", err=True)
        return own.workload is not None
    hint = " Those that are LoRA adapters of one fleet go into spec.metrics.adapters." if len(models) > 1 else ""
    echo(f"Its {profile.model_label} is {', '.join(map(repr, models))}.{hint}")
    if model not in models:
        echo(f"{own.without(model)}.", err=True)
    return model in models
