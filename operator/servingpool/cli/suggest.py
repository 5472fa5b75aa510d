"""`servingpool suggest`: a ServingPool for what serves already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from servingpool.adapters.cluster.autoscaling import AUTOSCALERS
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.names import pods_of_any
from servingpool.adapters.cluster.objects import TargetKey
from servingpool.adapters.cluster.survey import Named, Survey, given_kind, scalables, scaled_by, survey, surveyed
from servingpool.adapters.prometheus import page as pages
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.adapters.prometheus.samples import ReadRequest, sample_of
from servingpool.cli.figures import ANY_ENGINE
from servingpool.cli.kubectl import AllNamespaces, Namespace, namespace_of, told
from servingpool.cli.logs import quiet
from servingpool.cli.output import echo
from servingpool.cli.source import Options, Where, asks, now, unavailable
from servingpool.cli.usage import HISTORY, span, target_of, wrong
from servingpool.decision.observation import Unknown
from servingpool.recording.format import Chunk
from servingpool.recording.recorder import LADDER
from servingpool.recording.suggestion import Facts, Past, manifest, past
from servingpool.status.conditions import judge_drain

STEPS = 168
"""Times at which the history's histograms are read: each hour of a week."""
PRICE_LABEL = "servingpool.dev/dollars-per-gpu-hour"
PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "node.kubernetes.io/instance-type")
"""Node labels that name the product by which a GPU-hour is priced."""
NOT_FOUND = 1
"""Exit code."""


@asks
def suggest(
    target: Annotated[
        str | None,
        typer.Argument(metavar="KIND/NAME", help="A workload, or hpa/NAME or scaledobject/NAME for what it scales."),
    ] = None,
    *,
    all_namespaces: AllNamespaces = False,
    namespace: Namespace = None,
    since: Annotated[str, typer.Option(help="History that the SLO is taken from, 10m to 90d.")] = "7d",
    gpu_price: Annotated[
        list[str] | None,
        typer.Option(metavar="PRODUCT=DOLLARS", help="Dollars per hour of this GPU product. Repeatable."),
    ] = None,
    options: Options,
) -> None:
    """Print a ServingPool in Recommend mode, with a comment on where each line comes from.

    Engine and model come from the pods' metrics, min and max from the HPA or ScaledObject, the SLO from what was
    attained. The price comes from the node label servingpool.dev/dollars-per-gpu-hour or --gpu-price. Comments say what
    of the autoscaler is lost, what the pod template lacks for a drain, and what Prometheus lacks. Nothing is written.
    The SLO is assumed, and a comment says why, where the history is under 2 hours, has gaps over 10%, or is of a fleet
    at which requests queued.
    With -A it looks at all that serve an LLM and can be scaled.

    Example: `servingpool suggest hpa/llama -n chat > pool.yaml`

    Exit codes: 0 suggested, 1 no such target, no engine in it, or Prometheus did not answer, 2 wrong usage, 4 the
    cluster refused or did not answer.
    """
    quiet()
    if (target is None) != all_namespaces:
        wrong("Give KIND/NAME, hpa/NAME or scaledobject/NAME, or -A for all")
    kind, name = ("", "") if target is None else target_of(target)
    span("--since", since, HISTORY)
    within = namespace_of(namespace, options.kubeconfig, options.context)
    order = Order(kind, within, name, since, _prices(gpu_price or ()))
    raise typer.Exit(run(order, options.found()))


@dataclass(frozen=True, slots=True)
class Order:
    """Targets and options of a suggestion."""

    kind: str
    """A kind as kubectl takes it, hpa or scaledobject; empty for all that can be scaled."""
    namespace: str
    name: str
    since: str
    prices: Mapping[str, float]
    """Dollars of a GPU-hour by GPU product or instance type."""


def _prices(given: Iterable[str]) -> dict[str, float]:
    """Prices from `PRODUCT=DOLLARS`. Wrong prices end the command."""
    found = {}
    for text in given:
        product, equals, dollars = text.rpartition("=")
        try:
            price = float(dollars)
        except ValueError:
            price = -1.0
        if not equals or not product or not 0.0 <= price <= 10_000.0:
            wrong(f"--gpu-price must be PRODUCT=DOLLARS with 0 to 10000 dollars, got '{text}'")
        found[product] = price
    return found


def run(order: Order, where: Where) -> int:
    """The exit code."""
    try:
        with told():
            return asyncio.run(_run(order, where, now(where.source)))
    except MetricsUnavailable as error:
        echo(unavailable(str(error), where.source), err=True)
        return NOT_FOUND


async def _run(order: Order, where: Where, end: float) -> int:
    engines, manifests = where.config.known_engines, []
    async with (
        aclosing(await Cluster.connect(where.kubeconfig, where.context)) as cluster,
        aclosing(PrometheusBackend(where.source, engines)) as prometheus,
    ):
        async for _, around in _surveys(cluster, order):
            facts = await _facts(order, around, prometheus, engines, end)
            if isinstance(facts, Facts):
                manifests.append(manifest(facts))
            elif order.kind:
                echo(facts, err=True)
    if not manifests:
        if not order.kind:
            echo(
                "Nothing that can be scaled has metrics of a known engine in Prometheus. "
                "`servingpool check deployment/NAME` says why one has none.",
                err=True,
            )
        return NOT_FOUND
    echo("---\n".join(manifests), nl=False)
    return 0


async def _surveys(cluster: Cluster, order: Order) -> AsyncIterator[tuple[Named, Survey]]:
    """Survey of the asked workload, or of every workload that can be scaled."""
    if not order.kind:
        say = partial(echo, err=True)
        async for found in surveyed(cluster, await scalables(cluster, say), say):
            yield found
        return
    target = Named(order.namespace, order.kind, order.name)
    if order.kind in AUTOSCALERS:
        scaled = await scaled_by(cluster, order.namespace, order.kind, order.name)
        target = Named(scaled.namespace, given_kind(scaled.sort), scaled.name)
    yield target, await survey(cluster, *target)


async def _facts(
    order: Order, around: Survey, prometheus: PrometheusBackend, engines: Mapping[str, EngineMetrics], end: float
) -> Facts | str:
    """Facts until `end`, Unix seconds; or why nothing can be suggested. Raises MetricsUnavailable."""
    target = around.workload.key
    namespace, name = target.namespace, target.name
    keys = [(namespace, pod) for pod in around.ready]
    if not keys:
        return f"{target.kind} {namespace}/{name} has no ready pod to look at. Wait for one, or scale it to 1 or more."
    seen = await prometheus.inspect(ANY_ENGINE, keys)
    if isinstance(seen, Unknown):
        raise MetricsUnavailable(prometheus.config.name, seen.reason.partition("' ")[2])
    exported = seen.engines(engines)
    if not exported:
        return (
            f"Prometheus has no metrics of a known engine from the pods of {target.kind} {namespace}/{name}. "
            f"`servingpool check {given_kind(target.sort)}/{name} -n {namespace}` says why."
        )
    engine = exported[0]
    profile = engines[engine]
    if engine != ANY_ENGINE:
        again = await prometheus.inspect(engine, keys)
        seen = again if not isinstance(again, Unknown) else seen
    models = seen.models(profile)
    model = models[0] if models else name
    origin = f"From the metrics of {len(keys)} pods." if models else "The engine tells no model: it is not compared."
    if len(models) > 1:
        origin += f" They export {len(models)} models: {', '.join(models)}."
    lacking = sorted(
        {figure.value for samples in seen.samples.values() for figure in pages.lacking(pages.find(profile, samples))}
    )
    return Facts(
        namespace=namespace,
        name=name,
        kind=target.kind,
        api_version="/".join(filter(None, around.workload.resource[:2])),
        replicas=around.workload.replicas,
        gpus=around.workload.gpus,
        engine=engine,
        model=model,
        origin=origin,
        backend=prometheus.config.name,
        past=await _past(target, (engine, model), prometheus, end, span("--since", order.since, HISTORY)),
        span=order.since,
        autoscalers=around.autoscalers,
        starts=around.starts,
        price=_price(order, around),
        drain=judge_drain(around.workload.drain, ())[1],
        missing=lacking,
    )


async def _past(
    target: TargetKey, of: tuple[str, str], prometheus: PrometheusBackend, end: float, seconds: float
) -> Past:
    """The past from coarse looks at the histograms: a week of 8 pods is one query of 120,000 samples.

    Where it begins later than asked for, it is read again from there: of 12 minutes an hourly look shows seconds. `of`:
    engine and model.
    """
    bounds, start, step = frozenset(LADDER), end - seconds, seconds / STEPS
    pods = pods_of_any([(target.name, target.sort)])
    request = ReadRequest(engine=of[0], ttft_bounds=bounds, tpot_bounds=bounds, pods=pods)
    found = await prometheus.history(
        request, start=start, end=end, step=step, namespaces=[target.namespace], most_samples=200_000
    )
    if isinstance(found, Unknown):
        echo(f"{found.reason}: the SLO is not taken from the history.", err=True)
        return Past({})
    looks = [models for _, pods in found for models in pods.values()]
    chunk = Chunk.of(start, end, [sample for models in looks if (sample := sample_of(models, of[1])) is not None])
    begun = min((float(one.at.min()) for one in chunk.scrapes), default=start)
    if begun > start + 2.0 * step:
        return await _past(target, of, prometheus, end, end - begun + step)
    return past(chunk, step)


def _price(order: Order, around: Survey) -> tuple[float, str] | None:
    """Dollars of a replica's hour."""
    gpus = max(1, around.workload.gpus)
    for labels in around.nodes:
        try:
            return float(labels[PRICE_LABEL]) * gpus, f"From the node label {PRICE_LABEL}, for {gpus} GPUs."
        except (KeyError, ValueError):
            pass
        for label in PRODUCT_LABELS:
            product = labels.get(label, "")
            if product in order.prices:
                return order.prices[product] * gpus, f"--gpu-price of {product}, by the node label {label}, for {gpus}."
    return None
