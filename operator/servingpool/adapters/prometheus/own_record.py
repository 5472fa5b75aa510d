"""The operator's own metrics of one pool, read back from a Prometheus that scrapes the operator."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import PrometheusClient
from servingpool.adapters.prometheus.promql import ADDRESS, SCRAPING, quote
from servingpool.adapters.prometheus.rows import Unread
from servingpool.catalogue.metrics import POOL, Metric

MOST_POINTS = 10_000
"""Points of a series in one answer; Prometheus refuses more than 11,000."""
HPA_DESIRED = "kube_horizontalpodautoscaler_status_desired_replicas"
ADDED = frozenset({*ADDRESS, *SCRAPING, "pod"})
"""Labels that scraping adds, by which series of one pool may differ: an operator's pods, or Prometheus' replicas."""


class AmbiguousRecord(Exception):
    """Prometheus holds several pools of this name. The message says by which labels they differ."""


@dataclass(frozen=True, slots=True)
class Point:
    """A sample: the labels that the metric's catalogue entry has besides the pool, and the value."""

    labels: Mapping[str, str]
    value: float


Record = dict[Metric, list[Point]]
"""Figures of a pool at one time, by metric."""
_BY_NAME = {metric.value: metric for metric in Metric}
_Labels = frozenset[tuple[str, str]]
_Samples = Callable[[Mapping[str, Any]], Iterable[Sequence[Any]]]
_Grouped = dict[tuple[tuple[str, str], _Labels], defaultdict[float, dict[_Labels, Record]]]
"""Records by the pool and the labels that tell clusters apart; then by time, and by the labels that scraping added."""
CLUSTER = "cluster"
"""Label by which the series of several clusters in one Prometheus differ."""


def one(record: Record, metric: Metric) -> float | None:
    """The value of a metric that has one series a pool; None where it is unknown."""
    points = record.get(metric)
    return points[0].value if points else None


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """Record of a pool in one Prometheus."""

    config: BackendConfig
    key: tuple[str, str]
    match: Mapping[str, str] = field(default_factory=dict)
    """Further labels that the series must have."""

    def at(self, time: float) -> Record:
        """The record at the last scrape before `time`, Unix seconds. Raises MetricsUnavailable or AmbiguousRecord."""
        with closing(PrometheusClient(self.config)) as client:
            answer = client.query(self._selector(Metric), self.config.timeout, time)
            found = self._by_time(answer.rows(), lambda row: [row["value"]])
        return max(found.values(), key=len, default={})  # one, unless a row has a damaged time

    def over(self, metrics: Iterable[Metric], start: float, end: float, step: float) -> Iterator[tuple[float, Record]]:
        """Records at every `step` seconds from `start` to `end` at which anything is known. Raises as `at`."""
        selector = self._selector({*metrics, Metric.DECIDED_AT})
        steps = math.floor((end - start) / step)
        with closing(PrometheusClient(self.config)) as client:
            for first in range(0, steps + 1, MOST_POINTS):
                last = min(first + MOST_POINTS - 1, steps)
                times = start + first * step, start + last * step, step
                answer = client.query_range(selector, times, self.config.timeout)
                yield from sorted(self._by_time(answer.rows(), lambda row: row["values"]).items())

    def autoscaler(self, name: str, start: float, end: float, step: float) -> dict[float, float]:
        """Replicas that a HorizontalPodAutoscaler of the pool's namespace wanted, by time; from kube-state-metrics.

        Raises MetricsUnavailable.
        """
        selector = _selector((HPA_DESIRED,), {"horizontalpodautoscaler": name, **self.match})
        found: dict[float, float] = {}
        with closing(PrometheusClient(self.config)) as client:
            rows = client.query_range(selector, (start, end, step), self.config.timeout).rows()
            for values in Unread().readable(rows, self._own_values):
                found |= values
        return found

    def _own_values(self, row: Mapping[str, Any]) -> dict[float, float]:
        said = row["metric"]
        own = (said.get("exported_namespace") or said.get("namespace")) == self.key[0]
        return {float(at): float(value) for at, value in row["values"]} if own else {}

    def _selector(self, metrics: Iterable[Metric]) -> str:
        return _selector((one for one in metrics if one.labels[:2] == POOL), {"pool": self.key[1], **self.match})

    def _by_time(self, rows: Iterable[Mapping[str, Any]], samples: _Samples) -> dict[float, Record]:
        """The record at each time: of several sources at once, that with the newest decision."""
        mine = {other: times for (key, other), times in _grouped(rows, samples).items() if key == self.key}
        if len(mine) > 1:
            # Of two of them, what the first says and the second does not.
            first, second, *_ = sorted(mine, key=sorted)
            told = ", ".join(f'{name}="{to}"' for name, to in sorted(first ^ second))
            raise AmbiguousRecord(f"Several pools {'/'.join(self.key)} have a record; they differ by {told}")
        found = (each for times in mine.values() for each in times.items())
        return {at: max(sources.values(), key=_decided) for at, sources in found}


def fleet_record(
    config: BackendConfig, match: Mapping[str, str], metrics: Iterable[Metric]
) -> dict[tuple[str, tuple[str, str]], Record]:
    """Records of all pools now, by cluster, namespace and pool; what is of no pool is of the pool "".

    Raises MetricsUnavailable.
    """
    found: dict[tuple[str, tuple[str, str]], Record] = {}
    with closing(PrometheusClient(config)) as client:
        rows = client.query(_selector(metrics, match), config.timeout).rows()
        for (key, other), times in _grouped(rows, lambda row: [row["value"]]).items():
            place = dict(other).get(CLUSTER, ""), key
            records = (record for sources in times.values() for record in sources.values())
            found[place] = max(found.get(place, {}), *records, key=_decided)
    return found


def _grouped(rows: Iterable[Mapping[str, Any]], samples: _Samples) -> _Grouped:
    found: _Grouped = defaultdict(lambda: defaultdict(dict))
    for group, source, metric, points in Unread().readable(rows, lambda row: _points(row, samples)):
        for at, point in points:
            found[group][at].setdefault(source, {}).setdefault(metric, []).append(point)
    return found


def _selector(metrics: Iterable[str], labels: Mapping[str, str]) -> str:
    named = (f"{name}={quote(to)}" for name, to in labels.items())
    return "{" + ",".join((f'__name__=~"{"|".join(sorted(metrics))}"', *named)) + "}"


def _points(
    row: Mapping[str, Any], samples: _Samples
) -> tuple[tuple[tuple[str, str], _Labels], _Labels, Metric, list[tuple[float, Point]]]:
    """A row in parts: its group, the labels of its source, what it is about, and its points by time."""
    labels = dict(row["metric"])
    if not all(isinstance(text, str) for text in labels.values()):
        raise TypeError("a label that is no text")
    own = labels.pop("namespace", "")
    key = labels.pop("exported_namespace", "") or own, labels.pop("pool", "")
    metric = _BY_NAME[labels.pop("__name__")]
    said = {name: labels.pop(name, "") for name in metric.labels if name not in POOL}
    source = frozenset((name, to) for name, to in labels.items() if name in ADDED)
    points = [(float(at), Point(said, float(value))) for at, value in samples(row)]
    return (key, frozenset(labels.items()) - source), source, metric, points


def _decided(record: Record) -> tuple[float, int]:
    return one(record, Metric.DECIDED_AT) or 0.0, len(record)
