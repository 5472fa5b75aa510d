"""The queries. Their number depends neither on pools nor on pods.

One expression returns whole samples, values and scrape time together, because Prometheus evaluates one
expression on one snapshot, in which a scrape is either complete or absent. Were counters and their time
asked for one after the other, a scrape in between would pair new counts with an old time, and every rate
taken from them would be wrong by an interval.

No rates are taken here: the decision core takes cumulative values and finds resets itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from servingpool.adapters.prometheus.backend_config import SeriesLabels
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, Figure, Series

# A ReplicaSet's pods end in one of the first 27 characters, evenly; a StatefulSet's in a digit; nothing
# ends in anything else, for names are DNS labels. So this cuts pods into slices without knowing any.
_POD_ENDINGS = "bcdfghjklmnpqrstvwxz2456789" + "aeiouy013"

SEVERAL = "several"
"""Name of the row of a sample whose gauges have several series in one scrape that nothing tells apart."""
SOURCES = "sources"
"""Name of the row of a sample with the number of its parts, such as the ranks of a pod, where it has several."""
ADDRESS = ("job", "instance")
"""Labels that tell a target from others, in most cases."""
SCRAPING = ("endpoint", "service", "container", "node", "prometheus", "prometheus_replica", "replica")
"""Labels that scraping adds, as far as they are known by name: for a Prometheus that has no `up`, as after a remote
write of some series only."""
GROUP = "__group__"
"""A label that no engine exports: Prometheus keeps names that begin with `__` to itself."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Pods that a query is about."""

    match_labels: tuple[tuple[str, str], ...] = ()
    namespaces: tuple[str, ...] = ()
    """Namespaces; empty for all."""
    models: tuple[str, ...] = ()
    """Models; empty for all."""
    pods: str = ""
    """Regular expression that a pod's name matches; empty for all."""
    endings: str = ""
    """Last characters of the pods' names; any where empty."""

    def slices(self, number: int) -> list[Scope]:
        """Disjoint scopes that together hold the same pods, of about the same size."""
        if number <= 1:
            return [self]
        return [replace(self, endings=_POD_ENDINGS[start::number]) for start in range(number)]


class Source(NamedTuple):
    """A metric in a group of the profile: the content of a sample's column."""

    name: str
    group: int = 0
    value: str = ""
    """Value of the label that the group is split by."""

    @property
    def key(self) -> str:
        """Key that tells its rows from those of the same metric in another group."""
        return source_key(self.name, str(self.group), self.value) if self.group else self.name

    def part(self, suffix: str) -> Source:
        """Series of a histogram with this suffix: `sum`, `count` or `bucket`."""
        return Source(f"{self.name}_{suffix}", self.group)


def source_key(name: str, group: str, value: str) -> str:
    """`Source.key` of a row that names its group."""
    return f"{name} {group} {value}"


@dataclass(frozen=True, slots=True)
class Queries:
    """Writer of the queries for an engine's series as one Prometheus labels them."""

    profile: EngineMetrics
    labels: SeriesLabels = field(default_factory=SeriesLabels)

    @property
    def owned(self) -> tuple[tuple[str, str], ...]:
        """The labels that say whose sample it is, namespace, pod and model; and to each the one that wins over it.

        Empty where none does: a sample may name its model, and not whose pod it is, unless the configuration says so.
        Both are empty for the model where the engine does not tell it.
        """
        namespace, pod, model = self.labels.namespace, self.labels.pod, self.profile.model_label or ""
        trusted = self.labels.exported
        return (
            (namespace, exported(namespace) if trusted else ""),
            (pod, exported(pod) if trusted else ""),
            (model, exported(model) if model else ""),
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """The labels of `owned` that scraping adds, and the model's."""
        return tuple(label for label, _ in self.owned if label)

    def pod_of(self, labels: Mapping[str, str]) -> tuple[str, str]:
        """Namespace and name of the pod that a series is of."""
        (namespace, own_namespace), (pod, own_pod), _ = self.owned
        return labels.get(own_namespace) or labels[namespace], labels.get(own_pod) or labels[pod]

    def source(self, series: Series) -> Source:
        """Source from which a named series is read."""
        return Source(series.name, self.profile.group_of(series))

    @property
    def sources(self) -> list[Source]:
        """Sources of all histograms of the profile."""
        figures = self.profile.figures
        return sorted({self.source(one) for each in HISTOGRAMS for one in figures.get(each, ()) if one.name})

    @property
    def histograms(self) -> list[str]:
        """The names of all histograms of the profile, old names included."""
        return sorted({source.name for source in self.sources})

    @property
    def owner(self) -> list[str]:
        """The labels that say whose pod a series is of."""
        return [label for pair in self.owned[:2] for label in pair if label]

    def samples(self, buckets: Mapping[Source, Collection[str]], scope: Scope, targets: Sequence[str] = ADDRESS) -> str:
        """Query on all figures of every sample, told apart by `__name__` and `le`; a row without is the scrape time.

        `buckets`: histogram -> the texts of `le` wanted. `targets`: labels that tell targets apart. A row of any but
        the first group names it in the label GROUP. A row named SEVERAL tells of a sample that is not to be used.
        """
        terms = []
        for group, names in self.names.items():
            split = self.profile.groups[group].split
            own = (split, exported(split)) if split else ()
            series = self._once(self.select(names, scope, group=group), targets, *own, group=group)
            by = self.by("__name__", *own, group=group)
            terms.append(_grouped(f"sum by ({by}) ({series})", group))
            gauges = [name for name in names if name in self.profile.gauges]
            if gauges:
                alike = self._scrape("count", self.select(gauges, scope, group=group), targets, *own, group=group)
                several = f"count by ({self.by(group=group)}) ({alike} > 1)"
                terms.append(_named(several, SEVERAL))
        for index, (source, texts) in enumerate(buckets.items()):
            if texts:
                wanted = f"le=~{any_of(sorted(texts))}"
                series = self._once(
                    self.select([source.part("bucket").name], scope, wanted, group=source.group),
                    targets,
                    "le",
                    group=source.group,
                )
                counts = _grouped(f"sum by ({self.by('__name__', 'le')}) ({series})", source.group)
                terms.append(apart(counts, f"histogram-{index}"))
        times = " or ".join(self._time(selector, group) for selector, group in self._clock(scope))
        terms.append(apart(f"max by ({self.by()}) ({times})", "times"))
        if self.own():
            parts = f"max by ({self.by(*self.own())}) ({' or '.join(self.clock(scope))})"
            terms.append(_named(f"count by ({self.by()}) ({parts}) > 1", SOURCES))
        return " or ".join(terms)

    def clock(self, scope: Scope) -> list[str]:
        """Selectors of the series whose sample time stands for that of the whole page."""
        return [selector for selector, _ in self._clock(scope)]

    def _clock(self, scope: Scope) -> list[tuple[str, int]]:
        """The sources of the scrape time, each with its group.

        One metric each: `timestamp` drops names, and two of one pod would be the same series.
        """
        figures = self.profile.figures
        running = figures.get(Figure.RUNNING, ())
        # Where one names no model, each model's own series tell when that was scraped.
        own = [Figure.RUNNING] if running and not any(one.any_model for one in running) else list(figures)
        return [
            (each, group)
            for figure in own
            for one in figures[figure]
            for group in (self.profile.group_of(one),)
            for name in one.metrics(histogram=figure in HISTOGRAMS)
            for each in self.select([name], scope, group=group)
        ]

    def _time(self, selector: str, group: int) -> str:
        """When series were scraped. A model that the target names is not one of series that name none."""
        unnamed = self.profile.groups[group].any_model
        return f"max by ({self.by(group=group)}) (timestamp({selector}))" if unnamed else f"timestamp({selector})"

    @property
    def names(self) -> dict[int, list[str]]:
        """Names of all series but buckets, by their group."""
        found: dict[int, list[str]] = {0: []}
        for figure, series in self.profile.figures.items():
            for one in series:
                if figure not in HISTOGRAMS or not one.name:
                    found.setdefault(self.profile.group_of(one), []).extend(one.metrics(histogram=False))
        for source in self.sources:
            found.setdefault(source.group, []).extend(source.part(part).name for part in ("sum", "count"))
        found[0] += [
            f"{one.name}_count" for each in HISTOGRAMS for one in self.profile.figures.get(each, ()) if one.excluded
        ]
        return {group: list(dict.fromkeys(names)) for group, names in found.items() if names}

    def _once(self, selectors: Sequence[str], targets: Sequence[str], *more: str, group: int) -> str:
        """Query that has each figure of a sample once.

        Within a scrape, series that differ in labels that nobody named are parts of a figure, such as one for each
        tenant. A label that scraping adds is the same on all series of a target. Over the targets it is the greatest: a
        pod matched by a ServiceMonitor and by a PodMonitor, or seen by both of a pair of Prometheus servers, would else
        count double.
        """
        labels = dict.fromkeys([*more, *self.own(group)])
        scrapes = self._scrape("sum", selectors, targets, *more, group=group)
        return f"max by ({self.by('__name__', *labels, group=group)}) ({scrapes})"

    def _scrape(self, total: str, selectors: Sequence[str], targets: Sequence[str], *more: str, group: int) -> str:
        """A total over the series of one scrape that differ in nothing that anybody named."""
        copies = self.profile.groups[group].copies
        told = (*more, *self.own(group), *copies, *map(exported, copies), *targets)
        # Of a federation `job` and `instance` are the federated server's.
        told += tuple(map(exported, ADDRESS)) if self.labels.exported else ()
        return f"{total} by ({self.by('__name__', *dict.fromkeys(told), group=group)}) ({' or '.join(selectors)})"

    def own(self, group: int = 0) -> list[str]:
        """Labels of a pod's series that are added up."""
        own = self.profile.added(group)
        return [*own, *(exported(name) for name in own)]

    def by(self, *more: str, group: int = 0) -> str:
        """Labels to aggregate by, pod and model among them."""
        owned = self.owned[:2] if self.profile.groups[group].any_model else self.owned
        return ", ".join((*more, *(label for pair in zip(*owned, strict=True) for label in pair if label)))

    def select(self, names: Sequence[str], scope: Scope, *matchers: str, group: int = 0) -> list[str]:
        """Selectors whose union is wanted: two where a namespace or a model may be under either of two labels."""
        (_, _), (pod, _), _ = self.owned
        asked = self.profile.groups[group]
        model, own_model = ("", "") if asked.any_model else self.owned[2]
        common = [
            f"__name__=~{any_of(names)}",
            *([f'{model}!=""'] if model else ()),
            f'{pod}=~".*[{scope.endings}]"' if scope.endings else f'{pod}!=""',
            *(_none_of(name, values) for label, values in asked.excluded for name in (label, exported(label))),
            *matchers,
            *(f"{name}={quote(value)}" for name, value in scope.match_labels),
        ]
        ways = [common]
        for wanted, labels in ((scope.namespaces, self.owned[0]), (scope.models, (model, own_model))):
            if wanted and labels[0]:
                ways = [[*way, f"{label}=~{any_of(wanted)}"] for way in ways for label in labels if label]
        if scope.pods:
            ways = [[*way, f"{label}=~{quote(scope.pods)}"] for way in ways for label in self.owned[1] if label]
        return [f"{{{','.join(way)}}}" for way in ways]


def _none_of(label: str, values: Sequence[str]) -> str:
    return f"{label}!={quote(values[0])}" if len(values) == 1 else f"{label}!~{any_of(values)}"


REQUESTED = {
    ("apps", "Deployment"): ("kube_deployment_spec_replicas", "deployment"),
    ("apps", "StatefulSet"): ("kube_statefulset_replicas", "statefulset"),
}
"""By API group and kind, kube-state-metrics' metric of spec.replicas, and its label of the name."""


def requested_replicas(namespace: str, name: str, sort: tuple[str, str]) -> str | None:
    """A workload's spec.replicas as kube-state-metrics exports it, scraped with or without `honorLabels`.

    None for a kind of which it exports none.
    """
    if sort not in REQUESTED:
        return None
    metric, own = REQUESTED[sort]
    selectors = [
        f"{metric}{{{label}={quote(namespace)},{own}={quote(name)}}}" for label in ("namespace", exported("namespace"))
    ]
    return f"max({' or '.join(selectors)})"


def _grouped(term: str, group: int) -> str:
    """Label a term's rows with their group, unless it is the first."""
    return f'label_replace({term}, "{GROUP}", "{group}", "", "")' if group else term


def _named(term: str, name: str) -> str:
    """Give a term's rows a metric's name."""
    return apart(f'label_replace({term}, "__name__", "{name}", "", "")', name)


def apart(term: str, part: str) -> str:
    """Label a term's rows, so that `or` keeps them.

    `or` leaves metric names out when it compares label sets, and drops the rows on its right that have an equal
    on its left: the scrape time would vanish behind the number of running requests.
    """
    return f'label_replace({term}, "part", "{part}", "", "")'


def exported(label: str) -> str:
    """Prometheus' name for a sample's own label whose name scraping took (`honorLabels: false`)."""
    return f"exported_{label}"


def quote(value: str) -> str:
    """A PromQL string. Go's escapes, which PromQL uses, include all that JSON's encoder writes."""
    return json.dumps(value, ensure_ascii=False)


def any_of(values: Iterable[str]) -> str:
    """A regular expression, quoted, that these values alone match."""
    return quote("|".join(re.escape(value) for value in values))
