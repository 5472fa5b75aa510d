"""Series that Prometheus has of a few pods, for `servingpool check`: which engine, which series hold which figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.prometheus.diagnosis import (
    LONGEST_QUERY,
    Evidence,
    PodKey,
    engines_of,
    evidence,
    fitting,
    models_of,
    of_pods,
    question,
)
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, Figure
from servingpool.adapters.prometheus.http_client import MetricsUnavailable, PrometheusClient
from servingpool.adapters.prometheus.page import Sample
from servingpool.adapters.prometheus.promql import Queries, any_of, apart, exported
from servingpool.adapters.prometheus.rows import Unread
from servingpool.adapters.prometheus.scrape_errors import scrape_errors


@dataclass(frozen=True, slots=True)
class Inspection:
    """Findings on some pods."""

    pods: Collection[PodKey]
    """Pods that were examined: a query has room for so many names."""
    evidence: Mapping[PodKey, Evidence]
    """Series of the pods, by engine."""
    samples: Mapping[PodKey, tuple[Sample, ...]]
    """Series of the engine that was asked for, buckets left out."""
    ages: Mapping[Figure, float]
    """Seconds since the newest sample of each figure that has a sample."""
    errors: Mapping[PodKey, str]
    """Why a scrape fails, where Prometheus tells."""

    def engines(self, known: Mapping[str, EngineMetrics]) -> list[str]:
        """The engines whose series some pod has."""
        return sorted({name for each in self.evidence.values() for name in engines_of(each, known)})

    def models(self, profile: EngineMetrics) -> list[str]:
        """The model names that the pods' series of an engine carry."""
        return sorted({name for each in self.evidence.values() for name in models_of(each, profile)})


def inspect(
    client: PrometheusClient,
    timeout: float,
    queries: Queries,
    known: Mapping[str, EngineMetrics],
    pods: Collection[PodKey],
) -> Inspection:
    """Ask for all of it, of the engines in `known` whether the pods have their series. Raises MetricsUnavailable."""
    names = {
        figure: sorted({name for one in series for name in one.metrics(histogram=figure in HISTOGRAMS)})
        for figure, series in queries.profile.figures.items()
    }
    # The longest query names them once a metric, and once more.
    room = LONGEST_QUERY - len(_ages(names, "")) - len(question(queries, known, ()))
    pods = fitting(sorted(pods), room, times=2 + sum(map(len, names.values())))
    found: Mapping[PodKey, Evidence] = {}
    if known:
        found, _ = evidence(queries, client.query(question(queries, known, pods), timeout).rows())
    errors = _errors(client, queries, [key for key, one in found.items() if one.up == 0.0])
    if not names:
        return Inspection(pods, found, {}, {}, errors)
    where = of_pods(queries, pods)
    every = any_of(sorted({name for each in names.values() for name in each}))
    samples: dict[PodKey, list[Sample]] = {}
    rows = client.query(f"{{__name__=~{every},{where}}}", timeout).rows()
    for key, sample in Unread().readable(rows, lambda row: _sample(queries, row)):
        samples.setdefault(key, []).append(sample)
    rows = client.query(_ages(names, where), timeout).rows()
    newest = Unread().readable(rows, lambda row: (Figure(row["metric"]["part"]), float(row["value"][1])))
    ages = dict(newest)
    return Inspection(pods, found, {pod: tuple(one) for pod, one in samples.items()}, ages, errors)


def _sample(queries: Queries, row: Mapping[str, Any]) -> tuple[PodKey, Sample]:
    labels = {str(name): str(value) for name, value in row["metric"].items()}
    name, key = labels.pop("__name__"), queries.pod_of(labels)
    # As the engine wrote them, before scraping renamed labels that it set itself.
    own = {one: labels.get(exported(one), value) for one, value in labels.items() if not one.startswith(exported(""))}
    return key, Sample(name, own, float(row["value"][1]))


def _ages(names: Mapping[Figure, Collection[str]], where: str) -> str:
    newest = []
    for figure, each in names.items():
        # One metric at a time: without names, two of one pod would be the same series.
        times = " or ".join(f"timestamp({name}{{{where}}})" for name in each)
        newest.append(apart(f"min(time() - ({times}))", figure))
    return " or ".join(newest)


def _errors(client: PrometheusClient, queries: Queries, down: Collection[PodKey]) -> dict[PodKey, str]:
    with suppress(MetricsUnavailable):  # whoever answers for Prometheus may have no list of targets
        return scrape_errors(queries, client.active_targets(), down) if down else {}
    return {}
