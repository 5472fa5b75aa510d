"""Figures that a profile finds on an engine's page, without a Prometheus: for `check-profile` and `check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.engines.profile import ESSENTIAL, HISTOGRAMS, Figure, Series
from servingpool.adapters.prometheus.plan import Plan, gather
from servingpool.adapters.prometheus.promql import GROUP, Queries
from servingpool.adapters.prometheus.rows import bound_of, shown
from servingpool.adapters.prometheus.samples import BucketCount, Layout, ReadRequest
from servingpool.decision.observation import Histogram, Reading, ReplicaMetrics

POD = "pod"
"""Stands for namespace and pod, which a page does not name."""


class Sample(NamedTuple):
    """A line of a page, or a series of Prometheus."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Found:
    """Place of a figure on a page."""

    figure: Figure
    series: Series | None
    """The first of the profile's that is there; None where none is."""
    samples: tuple[Sample, ...] = ()
    """Samples of the figure, without a histogram's buckets."""

    @property
    def labels(self) -> list[str]:
        """Labels that these samples have, as `name="value"`, or `name="one|other"`."""
        values: dict[str, set[str]] = {}
        for one in self.samples:
            for name, value in one.labels.items():
                values.setdefault(name, set()).add(value)
        return [f'{name}="{"|".join(sorted(found))}"' for name, found in sorted(values.items())]


def parse(text: str) -> list[Sample]:
    """The samples of a page in Prometheus' text format. ValueError where it is none."""
    found = [
        Sample(one.name, one.labels, one.value)
        for family in text_string_to_metric_families(text)
        for one in family.samples
    ]
    if not found:
        raise ValueError("it has no sample")
    return found


def find(profile: EngineMetrics, samples: Sequence[Sample]) -> list[Found]:
    """Place of each figure, also of those that the profile lacks."""
    return [_find(profile, figure, samples) for figure in Figure]


def lacking(found: Iterable[Found], *, tpot: bool = False) -> list[Figure]:
    """Figures without which nothing can be decided. `tpot`: the SLO bounds the time per output token."""
    essential = {*ESSENTIAL, *([Figure.TIME_PER_OUTPUT_TOKEN] if tpot else [])}
    there = {one.figure for one in found if one.series is not None}
    if Figure.PREFILL_SECONDS in there:
        essential -= {Figure.TIME_TO_FIRST_TOKEN, Figure.TIME_PER_OUTPUT_TOKEN}
    return [one.figure for one in found if one.series is None and one.figure in essential]


def read(
    profile: EngineMetrics, samples: Sequence[Sample], request: ReadRequest | None = None
) -> dict[str, ReplicaMetrics]:
    """The page as the operator would read it, by the model it names; "" where the engine does not tell it.

    With the buckets that the SLOs of a `request` need; with none by default.
    """
    queries = Queries(profile)
    bounds = [
        BucketCount(one.name.removesuffix("_bucket"), one.labels["le"], 1.0)
        for one in _buckets(queries, samples)
        if _bound(one) is not None
    ]
    plan = Plan.of(queries, Layout.read(bounds), request or ReadRequest())
    fresh, _ = gather(_rows(queries, plan, samples), plan.columns).samples(0.0, 1.0)
    return next(iter(fresh.values()), {})


def unreadable(profile: EngineMetrics, samples: Sequence[Sample]) -> list[str]:
    """Buckets that are left out because their bound is no number, in a sentence each."""
    odd = [one for one in _buckets(Queries(profile), samples) if _bound(one) is None]
    return sorted({f"{shown(one.name)} has a bucket le={shown(one.labels.get('le', ''))!r}" for one in odd})


def ambiguous(profile: EngineMetrics, samples: Sequence[Sample]) -> list[str]:
    """Gauges with several series that may be parts or copies, in sentences. The operator reads no such page."""
    found = []
    for name in sorted(profile.gauges):
        for number, group in enumerate(profile.groups):
            named = {profile.named_in(number), group.split, *profile.added(number), *group.copies}
            own = [one.labels for one in samples if one.name == name and group.admits(one.labels)]
            alike = [Counter(tuple(labels.get(one, "") for one in named if one) for labels in own)]
            if any(count > 1 for each in alike for count in each.values()):
                others = {label for labels in own for label in labels if label not in named}
                differ = sorted(one for one in others if len({labels.get(one, "") for labels in own}) > 1)
                found.append(f"{name} has several series that differ in {', '.join(differ) or 'nothing'}")
    return list(dict.fromkeys(found))


def _buckets(queries: Queries, samples: Iterable[Sample]) -> list[Sample]:
    names = {f"{name}_bucket" for name in queries.histograms}
    return [one for one in samples if one.name in names]


def _bound(one: Sample) -> float | None:
    with suppress(ValueError):
        return bound_of(one.labels.get("le"))
    return None


def told(figure: Reading | Histogram) -> str:
    """A figure in a few characters: of a histogram, its count and mean."""
    if isinstance(figure, Histogram):
        mean = f", mean {figure.total / figure.count:.4g} s" if figure.count else ""
        return f"{figure.count:g}{mean}"
    return f"{figure:g}" if isinstance(figure, float | int) else figure.reason


def _find(profile: EngineMetrics, figure: Figure, samples: Sequence[Sample]) -> Found:
    for series in profile.figures.get(figure, ()):
        number, (split, values) = profile.group_of(series), series.split
        group, model = profile.groups[number], profile.named_in(number)
        names = set(series.metrics(histogram=figure in HISTOGRAMS))
        there = tuple(
            one
            for one in samples
            if one.name in names
            and group.admits(one.labels)
            and (not split or one.labels[split] in values)
            and (model is None or one.labels.get(model))
        )
        seen = {one.name for one in there}
        if (
            seen == names
            or (seen and series.any_term)
            or (series.excluded and any(one.name in names for one in samples))
        ):
            return Found(figure, series, there)
    return Found(figure, None)


def _rows(queries: Queries, plan: Plan, samples: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    """The rows that Prometheus would answer the plan's query with."""
    profile = queries.profile
    named = profile.model_label
    identity = {one: "" if one == named else POD for one in queries.identity}
    wanted: dict[tuple[str, int], Collection[str]] = {
        (name, group): () for group, names in queries.names.items() for name in names
    }
    wanted |= {(one.part("bucket").name, one.group): texts for one, texts in plan.buckets.items() if texts}
    found: dict[tuple[tuple[str, str], ...], dict[tuple[str, ...], dict[tuple[str, ...], float]]] = {}
    for name, labels, value in samples:
        for number, group in enumerate(profile.groups):
            texts = wanted.get((name, number))
            if texts is None or not group.admits(labels) or (texts and labels.get("le") not in texts):
                continue
            model = profile.named_in(number)
            if model is not None and not labels.get(model):
                continue
            row = {"__name__": name, **identity} | ({GROUP: str(number)} if number else {})
            row |= {label: labels[label] for label in (model, group.split, "le" if texts else None) if label}
            rank, copy = (
                tuple(labels.get(label, "") for label in which) for which in (profile.added(number), group.copies)
            )
            copies = found.setdefault(tuple(sorted(row.items())), {}).setdefault(rank, {})
            copies[copy] = copies.get(copy, 0.0) + value
    models = {dict(row).get(named or "", "") for row in found}
    for series, ranks in found.items():
        yield {"metric": dict(series), "value": [0.0, sum(max(copies.values()) for copies in ranks.values())]}
    for name in models:
        yield {"metric": {**identity, **({named: name} if named else {})}, "value": [0.0, 0.0]}
