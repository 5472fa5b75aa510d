"""`servingpool check KIND/NAME`: what the operator would read of a workload's pods, figure by figure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.survey import ready_pods
from servingpool.adapters.prometheus import (
    BackendConfig,
    EngineMetrics,
    FleetReading,
    GatewayProfile,
    PrometheusBackend,
    ReadRequest,
    Selection,
)
from servingpool.adapters.prometheus import page as pages
from servingpool.adapters.prometheus.diagnosis import Evidence, engines_of, models_of
from servingpool.adapters.prometheus.inspection import Inspection
from servingpool.catalogue.conditions import Reason
from servingpool.catalogue.plain import plain
from servingpool.cli.check_gateway import check_gateway
from servingpool.cli.figures import table, where
from servingpool.cli.kubectl import told
from servingpool.cli.output import echo
from servingpool.cli.source import unavailable
from servingpool.decision.observation import Unknown
from servingpool.reconcile.gateways import OwnGateway

ANY_ENGINE = "vllm"
"""By whose profile is asked while the engine is not known: what pods export is told for all engines."""


Replicas = Mapping[str, str]
"""Names of pods, and of the replica that each belongs to."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which pods to look at, and as what."""

    namespace: str
    kind: str
    """As kubectl takes it."""
    name: str
    engine: str | None
    """As the pods' series tell where None."""
    model: str | None
    """Likewise."""
    gateway: OwnGateway | None = None
    """In front of them; None where there is none."""


async def check_target(
    target: Target,
    backend: BackendConfig,
    engines: Mapping[str, EngineMetrics],
    gateways: Mapping[str, GatewayProfile],
    kubeconfig: str | None,
    context: str | None,
) -> bool:
    """Print it. Whether a pool could be scaled on it. ClusterError where the cluster does not answer."""
    cluster = await Cluster.connect(kubeconfig, context)
    try:
        workload, pods = await ready_pods(cluster, target.namespace, target.kind, target.name)
    finally:
        await cluster.close()
    if not pods:
        echo(f"{workload.key.kind} {target.namespace}/{target.name} has no ready pod to look at.", err=True)
        return False
    prometheus = PrometheusBackend(backend, engines, gateways)
    try:
        metered = target.engine is not None and engines[target.engine].metered
        if metered:
            echo(f"Engine {target.engine} exports no metrics. The gateway's are used for it.")
            model = _Model(target.model or "", usable=True)
        else:
            model = await _check(target, workload.key.kind, prometheus, engines, pods)
        if target.gateway is None:
            return model.usable
        profile = gateways[target.gateway.name]
        counted = await check_gateway(target.gateway, model.name, profile, prometheus, metered=metered)
        return counted and model.usable
    finally:
        await prometheus.close()


class _Model(NamedTuple):
    """What the engines serve."""

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
    exported = sorted({one for each in seen.evidence.values() for one in engines_of(each, engines)})
    engine = target.engine or (exported[0] if exported else ANY_ENGINE)
    if engine != (target.engine or ANY_ENGINE):
        seen = await prometheus.inspect(engine, keys)
    reading = await prometheus.read(
        ReadRequest(engine=engine, namespaces=frozenset({target.namespace}), explain=frozenset(keys)), 0.0
    )
    for answer in (seen, reading):
        if isinstance(answer, Unknown):
            echo(unavailable(answer.reason, prometheus.config), err=True)
            return _Model(target.model or "")
    assert isinstance(seen, Inspection)
    assert isinstance(reading, FleetReading)
    echo(f"{kind} {target.namespace}/{target.name}, {len(pods)} ready pods, as engine {engine}:")
    if len(seen.pods) < len(keys):
        echo(f"Series of the first {len(seen.pods)} of them:")
    lacking = _figures(seen, engines[engine])
    several = len(exported) > 1 and target.engine is None
    if several:
        echo(f"The pods export metrics of several engines: {', '.join(exported)}. Give --engine.", err=True)
    elif exported:
        echo(f"The pods export metrics of: {', '.join(exported)}. Set spec.engine to {exported[0]}.")
    models = _models(seen.evidence, engines[engine])
    if models:
        named = ", ".join(f"'{plain(name)}'" for name in models)
        echo(f"Their {engines[engine].model_label} is {named}. Set spec.model to {named}.")
    model = target.model or (models[0] if models else "")
    selection = reading.select(target.namespace, pods, model)
    # Of a replica of several pods some serve, and the others have no engine's metrics.
    told = {pods[sample.replica] for sample in selection.samples}
    missing = {pod: why for pod, why in selection.missing.items() if pods[pod] not in told}
    sound = _pods(seen, target.namespace, replace(selection, missing=missing))
    if lacking:
        echo(f"Missing, and needed for decisions: {', '.join(lacking)}.", err=True)
    return _Model(model, sound and not lacking and not several)


def _pods(seen: Inspection, namespace: str, selection: Selection) -> bool:
    """Print what is wrong with pods. Whether nothing is."""
    for pod, missing in sorted(selection.missing.items()):
        error = seen.errors.get((namespace, pod))
        echo(f"{pod}: {missing.reason}." + (f" Prometheus says: {error}." if error else ""), err=True)
    if selection.doubled:
        echo(Reason.DOUBLED_SERIES.message(pods=selection.named_doubled), err=True)
    if selection.native:
        echo(Reason.NATIVE_HISTOGRAMS.message(pods=selection.named_native), err=True)
    if selection.unreadable:
        echo(Reason.UNREADABLE_SERIES.message(detail=selection.named_unreadable), err=True)
    return not selection.missing and not selection.doubled and not selection.native


def _figures(seen: Inspection, profile: EngineMetrics) -> list[str]:
    """Print a line for each figure. Those that are needed, and that some pod with series lacks."""
    found = [pages.find(profile, samples) for samples in seen.samples.values()] or [pages.find(profile, ())]
    lines = [("figure", "pods", "newest", "series")]
    for each in zip(*found, strict=True):
        shown = next((one for one in each if one.series is not None), each[0])
        age = seen.ages.get(shown.figure)
        newest = "-" if age is None or shown.series is None else f"{age:.0f} s ago"
        lines.append(
            (shown.figure.value, f"{sum(one.series is not None for one in each)}", newest, where(shown, profile))
        )
    table(lines)
    return sorted({figure.value for one in found for figure in pages.lacking(one)})


def _models(evidence: Mapping[tuple[str, str], Evidence], profile: EngineMetrics) -> list[str]:
    return sorted({name for each in evidence.values() for name in models_of(each, profile)})


def run(
    target: Target,
    backend: BackendConfig,
    engines: Mapping[str, EngineMetrics],
    gateways: Mapping[str, GatewayProfile],
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """The exit code."""
    with told():
        return 0 if asyncio.run(check_target(target, backend, engines, gateways, kubeconfig, context)) else 1
