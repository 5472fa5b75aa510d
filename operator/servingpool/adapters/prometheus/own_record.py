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
_Sources = dict[_Labels, Record]
"""Rows by the labels that scraping added."""


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
        labels = {"horizontalpodautoscaler": name, **self.match}
        selector = f"{HPA_DESIRED}{{{','.join(f'{name}={quote(to)}' for name, to in labels.items())}}}"
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
        names = "|".join(sorted(metric.value for metric in metrics if metric.labels[:2] == POOL))
        labels = {"pool": self.key[1], **self.match}
        return "{" + ",".join((f'__name__=~"{names}"', *(f"{name}={quote(to)}" for name, to in labels.items()))) + "}"

    def _by_time(
        self,
        rows: Iterable[Mapping[str, Any]],
        samples: Callable[[Mapping[str, Any]], Iterable[Sequence[Any]]],
    ) -> dict[float, Record]:
        """The record at each time: of several sources at once, that with the newest decision."""
        times: defaultdict[float, _Sources] = defaultdict(dict)
        others: set[frozenset[tuple[str, str]]] = set()
        points = Unread().readable(rows, lambda row: self._points(row, samples))
        for source, other, metric, said, values in points:
            others |= {other} if values else set()
            for at, value in values:
                found = times[at].setdefault(source, {})
                found.setdefault(metric, []).append(Point(said, value))
        if len(others) > 1:
            # Of two of them, what the first says and the second does not.
            first, second, *_ = sorted(others, key=sorted)
            told = ", ".join(f'{name}="{to}"' for name, to in sorted(first ^ second))
            raise AmbiguousRecord(f"Several pools {'/'.join(self.key)} have a record; they differ by {told}")
        return {at: max(sources.values(), key=_decided) for at, sources in times.items()}

    def _points(
        self, row: Mapping[str, Any], samples: Callable[[Mapping[str, Any]], Iterable[Sequence[Any]]]
    ) -> tuple[_Labels, _Labels, Metric, dict[str, str], list[tuple[float, float]]]:
        """Of a row the labels of its source, all others, what it is of, and its points; none of another pool's row."""
        labels = dict(row["metric"])
        if not all(isinstance(text, str) for text in labels.values()):
            raise TypeError("a label that is no text")
        own = labels.pop("namespace", "")
        mine = (labels.pop("exported_namespace", "") or own, labels.pop("pool")) == self.key
        metric = _BY_NAME[labels.pop("__name__")]
        said = {name: labels.pop(name) for name in metric.labels[2:]}
        source = frozenset((name, to) for name, to in labels.items() if name in ADDED)
        values = [(float(at), float(value)) for at, value in samples(row)] if mine else []
        return source, frozenset(labels.items()) - source, metric, said, values


def _decided(record: Record) -> tuple[float, int]:
    return one(record, Metric.DECIDED_AT) or 0.0, len(record)
