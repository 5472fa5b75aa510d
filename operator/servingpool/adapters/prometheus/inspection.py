"""All that Prometheus has of a few pods, for `servingpool check`: which engine, which series hold which figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from servingpool.adapters.prometheus.diagnosis import Evidence, PodKey, evidence, of_pods, question
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, Figure
from servingpool.adapters.prometheus.http_client import PrometheusClient
from servingpool.adapters.prometheus.page import Sample
from servingpool.adapters.prometheus.promql import Queries, any_of, apart, exported


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found of some pods."""

    evidence: Mapping[PodKey, Evidence]
    """Which engines' series they have."""
    samples: Mapping[PodKey, tuple[Sample, ...]]
    """Series of the engine that was asked for, buckets left out."""
    ages: Mapping[Figure, float]
    """Seconds since the newest sample of each figure that has one."""


def inspect(
    client: PrometheusClient,
    timeout: float,
    queries: Queries,
    known: Mapping[str, EngineMetrics],
    pods: Collection[PodKey],
) -> Inspection:
    """Ask for all of it, of the engines in `known` whether the pods have their series. Raises MetricsUnavailable."""
    found: Mapping[PodKey, Evidence] = {}
    if known:
        found, _ = evidence(queries, client.custom_query(question(queries, known, pods), timeout=timeout).rows())
    names = {
        figure: sorted({name for one in series for name in one.metrics(histogram=figure in HISTOGRAMS)})
        for figure, series in queries.profile.figures.items()
    }
    if not names:
        return Inspection(found, {}, {})
    where = of_pods(queries, pods)
    every = any_of(sorted({name for each in names.values() for name in each}))
    samples: dict[PodKey, list[Sample]] = {}
    for row in client.custom_query(f"{{__name__=~{every},{where}}}", timeout=timeout).rows():
        labels = dict(row["metric"])
        name, key = labels.pop("__name__"), queries.pod_of(labels)
        samples.setdefault(key, []).append(Sample(name, own_labels(labels), float(row["value"][1])))
    newest = []
    for figure, each in names.items():
        # One metric at a time: without names, two of one pod would be the same series.
        times = " or ".join(f"timestamp({name}{{{where}}})" for name in each)
        newest.append(apart(f"min(time() - ({times}))", figure))
    rows = client.custom_query(" or ".join(newest), timeout=timeout).rows()
    ages = {Figure(row["metric"]["part"]): float(row["value"][1]) for row in rows}
    return Inspection(found, {pod: tuple(one) for pod, one in samples.items()}, ages)


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """As the engine wrote them, before scraping renamed those that it set itself."""
    prefix = exported("")
    return {name: labels.get(exported(name), value) for name, value in labels.items() if not name.startswith(prefix)}
