"""Why pods have no sample: a small query on those pods alone, beside the query that reads all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.engines.profile import Figure
from servingpool.adapters.prometheus.promql import Queries, any_of, apart, exported
from servingpool.adapters.prometheus.rows import Unread
from servingpool.catalogue.conditions import Reason

PodKey = tuple[str, str]
"""Namespace and pod name."""
LONGEST_QUERY = 16_000
"""Characters: VictoriaMetrics takes 16 KiB."""
LOST = "lost"
"""Part of the rows on series of the engine that lack pod or namespace."""
NOBODY = "nobody"
"""Part of the row that is there where no target of anybody is."""
ROUTER_LABEL = "server"
"""Label by which the router of vLLM's production-stack names an engine; it re-exports the series without its model."""


class Cause(Enum):
    """Fault of a pod that has no usable sample, with the reason of a fleet whose pods all have it."""

    UNKNOWN = Reason.FAILED_GET_METRICS
    """Not examined yet, or not to be told apart."""
    STALE = None
    """It has no reason of its own."""
    OTHER_MODEL = Reason.NO_SERIES_FOR_MODEL
    NOT_SCRAPED = Reason.NOT_SCRAPED
    SCRAPE_FAILED = Reason.SCRAPE_FAILED
    NO_ENGINE_SERIES = Reason.NO_ENGINE_SERIES
    OTHER_ENGINE = Reason.WRONG_ENGINE
    ROUTER = Reason.ROUTER_SERIES
    WRONG_LABELS = Reason.WRONG_LABELS
    AMBIGUOUS = Reason.AMBIGUOUS_GAUGES
    """Gauges have several series in one scrape, which may be parts or copies."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A pod without a usable sample."""

    reason: str
    """A sentence without its full stop, which pods' names follow in brackets: "Last scraped 93 s ago"."""
    cause: Cause = Cause.UNKNOWN


@dataclass(slots=True)
class Evidence:
    """Series that Prometheus has of one pod."""

    up: float | None = None
    """1 where a scrape of the pod works, 0 where all fail; None where the pod is no target."""
    series: dict[str, list[Mapping[str, str]]] = field(default_factory=dict)
    """Labels by metric: the model's label, and labels that the engine's profile asks about."""


def question(queries: Queries, known: Mapping[str, EngineMetrics], pods: Iterable[PodKey]) -> str:
    """Query on these pods: whether they are scraped, and which engines' series they have, whatever the model."""
    namespace, pod = _whose(queries)
    where = of_pods(queries, pods)
    names = sorted({name for profile in known.values() for name in clock_names(profile)})
    models = sorted({profile.model_label for profile in known.values() if profile.model_label})
    asked = [*models, *_asked(queries.profile), ROUTER_LABEL]
    by = ", ".join(dict.fromkeys(("__name__", namespace, pod, *asked, *map(exported, asked))))
    own = any_of(clock_names(queries.profile))
    lost = f'{{__name__=~{own},{pod}=""}} or {{__name__=~{own},{namespace}="",{pod}!=""}}'
    return " or ".join(
        (
            apart(f"max by ({namespace}, {pod}) (up{{{where}}})", "up"),
            apart(f"count by ({by}) ({{__name__=~{any_of(names)},{where}}})", "series"),
            apart(f"count by (__name__) ({lost})", LOST),
            apart("absent(up)", NOBODY),
        )
    )


def of_pods(queries: Queries, pods: Iterable[PodKey]) -> str:
    """Matchers of these pods' series, whatever the engine."""
    wanted = set(pods)
    names = zip(_whose(queries), ({one for one, _ in wanted}, {one for _, one in wanted}), strict=True)
    return ",".join(f"{label}=~{any_of(sorted(values))}" for label, values in names)


def explained(queries: Queries, known: Mapping[str, EngineMetrics], pods: Iterable[PodKey]) -> list[PodKey]:
    """The first of these pods, as many as a `question` has room for."""
    return fitting(pods, LONGEST_QUERY - len(question(queries, known, ())), times=2)


def fitting(pods: Iterable[PodKey], room: int, *, times: int) -> list[PodKey]:
    """The first pods whose names fit into so many characters of a query that has `of_pods` so many times."""
    found: list[PodKey] = []
    namespaces: set[str] = set()
    for namespace, pod in pods:
        new = [pod] if namespace in namespaces else [pod, namespace]
        room -= times * sum(len(any_of([name])) - 1 for name in new)
        if room < 0:
            break
        namespaces.add(namespace)
        found.append((namespace, pod))
    return found


def evidence(queries: Queries, rows: Iterable[Mapping[str, Any]]) -> tuple[dict[PodKey, Evidence], set[str]]:
    """Evidence by pod; and which of the parts LOST and NOBODY there are. Unreadable rows are left out."""
    found: dict[PodKey, Evidence] = {}
    of_none: set[str] = set()

    def parsed(row: Mapping[str, Any]) -> tuple[str, PodKey, str, Mapping[str, str], float]:
        labels = row["metric"]
        part = labels["part"]
        pod = ("", "") if part in {LOST, NOBODY} else queries.pod_of(labels)
        name = labels["__name__"] if part == "series" else ""
        if not all(isinstance(text, str) for text in labels.values()):
            raise TypeError("a label that is no text")
        return part, pod, name, labels, float(row["value"][1])

    for part, pod, name, labels, value in Unread().readable(rows, parsed):
        if part in {LOST, NOBODY}:
            of_none.add(part)
        elif part == "up":
            found.setdefault(pod, Evidence()).up = value
        else:
            found.setdefault(pod, Evidence()).series.setdefault(name, []).append(labels)
    return found, of_none


def causes(
    queries: Queries,
    engine: str,
    known: Mapping[str, EngineMetrics],
    pods: Iterable[PodKey],
    rows: Iterable[Mapping[str, Any]],
    match_labels: tuple[tuple[str, str], ...] = (),
) -> dict[PodKey, Missing]:
    """Why each of these pods has no sample, as far as the rows of the `question` tell."""
    found, of_none = evidence(queries, rows)
    told = {pod: _cause(queries, engine, known, found.get(pod, Evidence()), match_labels, of_none) for pod in pods}
    return {pod: missing for pod, missing in told.items() if missing is not None}


def _cause(
    queries: Queries,
    engine: str,
    known: Mapping[str, EngineMetrics],
    seen: Evidence,
    match_labels: tuple[tuple[str, str], ...],
    of_none: Collection[str],
) -> Missing | None:
    own = set(clock_names(queries.profile))
    if own & seen.series.keys():
        return _wrong_labels(queries, engine, seen, match_labels)
    others = engines_of(seen, {name: profile for name, profile in known.items() if not own & {*clock_names(profile)}})
    if others:
        said = f"The pods export metrics of engine {' or '.join(map(repr, others))}, and spec.engine is '{engine}'"
        return Missing(said, Cause.OTHER_ENGINE)
    return _no_series(queries, seen.up, of_none)


def _no_series(queries: Queries, up: float | None, of_none: Collection[str]) -> Missing | None:
    """Why no engine's series name the pod."""
    profile, name = queries.profile, clock_names(queries.profile)[0]
    if up == 0.0:
        return Missing("The scrape fails (up is 0): check path, port and credentials", Cause.SCRAPE_FAILED)
    if up is not None:
        return Missing(f"The pods are scraped and export no {name}; perhaps {profile.silent}", Cause.NO_ENGINE_SERIES)
    if LOST in of_none:
        labels = " or ".join(_whose(queries))
        said = f"Prometheus has {name} without label {labels}; set backends[].labels or the scrape's relabelling"
        return Missing(said, Cause.WRONG_LABELS)
    if queries.labels.exported:  # a federation may leave `up` out
        return None
    if NOBODY in of_none:
        said = "Prometheus has no series up at all: check url and headers of the backend, which may name another tenant"
        return Missing(said, Cause.NOT_SCRAPED)
    return Missing("Prometheus does not scrape the pods (no series up)", Cause.NOT_SCRAPED)


def _wrong_labels(
    queries: Queries, engine: str, seen: Evidence, match_labels: tuple[tuple[str, str], ...]
) -> Missing | None:
    """Why a pod has no sample, although it has the engine's series. None where it has one by now."""
    profile = queries.profile
    name = next(each for each in clock_names(profile) if each in seen.series)
    if profile.model_label and not models_of(seen, profile):
        if all(labels.get(ROUTER_LABEL) or labels.get(exported(ROUTER_LABEL)) for labels in seen.series[name]):
            said = f"The pods are a router: {name} is of the engines behind it (label {ROUTER_LABEL})"
            return Missing(said, Cause.ROUTER)
        return Missing(f"The pods export {name} without label {profile.model_label}", Cause.WRONG_LABELS)
    if match_labels:
        return Missing(f"{name} does not match spec.metrics.matchLabels", Cause.WRONG_LABELS)
    if _admitted(seen, profile):
        return None
    return Missing(f"{name} has other labels than the profile of engine '{engine}' asks for", Cause.WRONG_LABELS)


def _admitted(seen: Evidence, profile: EngineMetrics) -> bool:
    """Whether some series may be read by the labels that the profile asks about."""
    return any(
        profile.groups[profile.group_of(one)].admits(
            {label: labels.get(exported(label)) or labels.get(label, "") for label in _asked(profile)}
        )
        for one in profile.figures.get(Figure.RUNNING, ())
        for name in one.metrics(histogram=False)
        for labels in seen.series.get(name, ())
    )


def _asked(profile: EngineMetrics) -> list[str]:
    """The labels of which a running request's series must have a value, or must not."""
    groups = [profile.groups[profile.group_of(one)] for one in profile.figures.get(Figure.RUNNING, ())]
    names = [name for group in groups for name in (group.split, *(label for label, _ in group.excluded)) if name]
    return sorted(set(names))


def engines_of(seen: Evidence, known: Mapping[str, EngineMetrics]) -> list[str]:
    """The engines whose series a pod has."""
    return sorted(name for name, profile in known.items() if seen.series.keys() & set(clock_names(profile)))


def models_of(seen: Evidence, profile: EngineMetrics) -> list[str]:
    """The model names that a pod's series of an engine carry."""
    label = profile.model_label
    if label is None:
        return []
    rows = [labels for name in clock_names(profile) for labels in seen.series.get(name, ())]
    return sorted({name for labels in rows if (name := labels.get(exported(label)) or labels.get(label))})


def clock_names(profile: EngineMetrics) -> tuple[str, ...]:
    """Metrics of the figure that each engine has from its start on; of a gateway all metrics."""
    running = profile.figures.get(Figure.RUNNING) or [one for each in profile.figures.values() for one in each]
    return tuple(dict.fromkeys(name for one in running for name in one.metrics(histogram=False)))


def _whose(queries: Queries) -> tuple[str, str]:
    (namespace, own_namespace), (pod, own_pod), _ = queries.owned
    return own_namespace or namespace, own_pod or pod
