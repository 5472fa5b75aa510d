"""How one request is read: which series, which buckets, in how many queries; and from the rows of a reply to samples.

20,000 pods make half a million rows a tick, so each row costs little.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS as HISTOGRAM_FIGURES
from servingpool.adapters.prometheus.engines.profile import Figure, Series
from servingpool.adapters.prometheus.promql import Queries, Scope, Source, exported, source_key
from servingpool.adapters.prometheus.samples import Layout, ReadRequest
from servingpool.decision.observation import NOT_EXPOSED, Histogram, Reading, ReplicaMetrics, Unknown

ROWS_PER_SLICE = 100_000
"""About 20 MB of JSON, and 0.2 s to read."""
MOST_SLICES = 16
"""Enough for 20,000 pods of which every bucket of both histograms is read, because pools have many different SLOs."""
SAMPLES_PER_CHUNK = 400_000
"""Samples in one reply of a range query, about 10 MB."""
MOST_POINTS = 10_000
"""Times in one range query; Prometheus refuses over 11,000."""
HISTOGRAMS = tuple(figure.field for figure in HISTOGRAM_FIGURES)
FIGURES = tuple(figure.field for figure in Figure if figure not in HISTOGRAM_FIGURES)
FIELDS = (*FIGURES, *HISTOGRAMS)
"""Of `ReplicaMetrics`: those that are read."""

SCRAPED_AT = ""
"""The scrape time's row has no metric name."""

Row = list[float | None]
SampleKey = tuple[str, str, str]
"""Namespace, pod, model."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a thread needs to evaluate a request."""

    queries: Queries
    columns: Columns
    buckets: Mapping[Source, Collection[str]]
    """Histogram -> the texts of `le` to ask for."""
    rows: int
    """Series to expect in all replies together."""

    @classmethod
    def of(cls, queries: Queries, layout: Layout, request: ReadRequest) -> Plan:
        """The plan for a request, given the buckets that exist."""
        asked = [
            (Figure.TIME_TO_FIRST_TOKEN, request.ttft_bounds, True),
            (Figure.TIME_PER_OUTPUT_TOKEN, request.tpot_bounds, True),
            (Figure.QUEUE_TIME, request.ttft_bounds, False),  # no percentile of it is shown
        ]
        chosen = {
            queries.source(series): layout.choose(series.name, bounds, neighbours=neighbours)
            for figure, bounds, neighbours in asked
            for series in queries.profile.figures.get(figure, ())
            if series.name
        }
        columns = Columns(queries, chosen, [figure for figure, bounds, _ in asked if bounds])
        texts = {source: sorted(set().union(*buckets.values())) for source, buckets in chosen.items()}
        return cls(queries, columns, texts, layout.engines * columns.width)

    @property
    def slices(self) -> int:
        """Into how many queries the pods are divided."""
        return min(MOST_SLICES, 1 + self.rows // ROWS_PER_SLICE)

    @property
    def points(self) -> int:
        """How many times one range query may cover so that its reply stays small."""
        return max(1, min(MOST_POINTS, SAMPLES_PER_CHUNK * self.slices // max(1, self.rows)))

    def query(self, scope: Scope) -> str:
        """The expression that returns the scope's samples."""
        return self.queries.samples(self.buckets, scope)


@dataclass(frozen=True, slots=True)
class _HistogramColumns:
    name: str
    total: int
    count: int
    buckets: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class _Made:
    column: int
    parts: tuple[tuple[int, float], ...]
    """Columns and their signs."""
    needs_all: bool
    """Without one of its parts there is no total."""

    def fill(self, row: Row) -> None:
        """Set the column. A scrape between the changes of two of its parts leaves no debt."""
        known = [value * sign for column, sign in self.parts if (value := row[column]) is not None]
        if known and (len(known) == len(self.parts) or not self.needs_all):
            total = sum(known)
            row[self.column] = max(total, 0.0)  # NaN stays


class Columns:
    """Where in a sample's row each series goes: sample rows are lists, for 20,000 dicts would take 100 MB."""

    def __init__(
        self,
        queries: Queries,
        buckets: Mapping[Source, Mapping[float, Collection[str]]],
        bounded: Collection[Figure],
    ) -> None:
        """`buckets`: histogram -> upper bound -> texts of `le`. `bounded`: the histograms of no use without."""
        self._identity = queries.owned
        self._splits = {
            str(number): (group.split, exported(group.split) if group.split else "")
            for number, group in enumerate(queries.profile.groups)
        }
        self.plain: dict[str, int] = {SCRAPED_AT: 0}
        self.by_le: dict[str, dict[str, int]] = {}
        self.made: list[_Made] = []
        self.width = 1
        figures = queries.profile.figures
        self.figures = tuple(
            tuple((self._figure(queries, one), one.name) for one in figures.get(figure, ()))
            for figure in Figure
            if figure not in HISTOGRAM_FIGURES
        )
        self.histograms = tuple(
            (
                figure in bounded,
                tuple(self._histogram(queries, one, buckets) for one in figures.get(figure, ())),
            )
            for figure in HISTOGRAM_FIGURES
        )

    def locate(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[SampleKey, int, Mapping[str, Any]]]:
        """The sample and the column of each row; rows that were not asked for are left out.

        A label that the sample itself carried wins over the one that scraping added.
        """
        (namespace, own_namespace), (pod, own_pod), (model, own_model) = self._identity
        plain, by_le, splits = self.plain, self.by_le, self._splits
        for row in rows:
            metric = row["metric"]
            name = metric.get("__name__", SCRAPED_AT)
            if "group" in metric:
                group = metric["group"]
                label, own = splits[group]
                name = source_key(name, group, metric.get(own) or metric.get(label, ""))
            column = plain.get(name)
            if column is None and name in by_le:
                column = by_le[name].get(metric["le"])
            if column is None:
                continue
            sample = (
                metric.get(own_namespace) or metric[namespace],
                metric.get(own_pod) or metric[pod],
                metric.get(own_model) or metric.get(model, ""),
            )
            yield sample, column, row

    def _figure(self, queries: Queries, series: Series) -> int:
        source, (split, values) = queries.source(series), series.split
        if not split:
            return self._plain(source)
        return self._make([(source._replace(value=value), 1.0) for value in values], needs_all=False)

    def _plain(self, source: Source) -> int:
        if source.key not in self.plain:
            self.plain[source.key] = self._new()
        return self.plain[source.key]

    def _histogram(
        self, queries: Queries, series: Series, buckets: Mapping[Source, Mapping[float, Collection[str]]]
    ) -> _HistogramColumns:
        if not series.name:
            group = queries.profile.group_of(series)
            total, count = (
                self._make(
                    [(Source(term.removeprefix("-"), group), -1.0 if term[0] == "-" else 1.0) for term in terms],
                    needs_all=True,
                )
                for terms in (series.sum, series.count)
            )
            return _HistogramColumns(series.count[0], total, count, ())
        source = queries.source(series)
        by_le = self.by_le.setdefault(source.part("bucket").key, {})
        columns = []
        for bound, texts in sorted(buckets.get(source, {}).items()):
            column = next((by_le[text] for text in texts if text in by_le), None)
            column = self._new() if column is None else column
            by_le.update(dict.fromkeys(texts, column))
            columns.append((bound, column))
        total, count = (self._plain(source.part(part)) for part in ("sum", "count"))
        return _HistogramColumns(source.name, total, count, tuple(columns))

    def _make(self, terms: Collection[tuple[Source, float]], *, needs_all: bool) -> int:
        """A column that no row fills: the total of others, by their signs."""
        column = self._new()
        self.made.append(_Made(column, tuple((self._plain(term), sign) for term, sign in terms), needs_all))
        return column

    def _new(self) -> int:
        self.width += 1
        return self.width - 1


class Table:
    """The rows of one evaluation, gathered by sample."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.rows: defaultdict[SampleKey, Row] = defaultdict(lambda: [None] * columns.width)
        self.lacks_buckets = False
        """Some sample had a histogram that matters, and none of its buckets was among those asked for."""

    def samples(
        self, at: float, staleness: float
    ) -> tuple[dict[PodKey, dict[str, ReplicaMetrics]], dict[PodKey, float]]:
        """The samples scraped within `staleness` seconds before `at`; and the age in seconds of the others."""
        fresh: dict[PodKey, dict[str, ReplicaMetrics]] = {}
        stale: dict[PodKey, float] = {}
        for (namespace, pod, model), row in self.rows.items():
            scraped_at = row[0]
            if scraped_at is None:
                continue  # no scrape time, no rate: as good as not scraped
            if at - scraped_at > staleness:
                stale[namespace, pod] = at - scraped_at
                continue
            for each in self._columns.made:
                each.fill(row)
            read = dict(zip(FIELDS, (*self._figures(row), *self._histograms(row)), strict=True))
            sample = ReplicaMetrics(pod, scraped_at, **read)  # type: ignore[arg-type]
            fresh.setdefault((namespace, pod), {})[model] = sample
        return fresh, stale

    def _figures(self, row: Row) -> Iterator[Reading]:
        for names in self._columns.figures:
            for column, name in names:
                value = row[column]
                if value is not None:
                    yield value if math.isfinite(value) else Unknown(f"{name} is {value}")
                    break
            else:
                yield NOT_EXPOSED

    def _histograms(self, row: Row) -> Iterator[Histogram | Unknown]:
        for bounded, names in self._columns.histograms:
            for columns in names:
                if row[columns.count] is not None:
                    yield self._histogram(row, columns, bounded=bounded)
                    break
            else:
                yield NOT_EXPOSED

    def _histogram(self, row: Row, columns: _HistogramColumns, *, bounded: bool) -> Histogram | Unknown:
        total, count = row[columns.total], row[columns.count]
        if total is None or count is None:
            return Unknown(f"{columns.name}_sum is missing")
        bounds, counts = [], []
        for bound, column in columns.buckets:
            value = row[column]
            if value is not None:
                bounds.append(bound)
                counts.append(value)
        self.lacks_buckets |= bounded and not bounds
        if not math.isfinite(total + count + sum(counts)):
            return Unknown(f"{columns.name} contains NaN")
        return Histogram(tuple(bounds), tuple(counts), total, count)


def gather(rows: Iterable[Mapping[str, Any]], columns: Columns) -> Table:
    """The table of an instant query's rows. KeyError, TypeError or ValueError if they are not what was asked for."""
    table = Table(columns)
    for sample, column, row in columns.locate(rows):
        table.rows[sample][column] = float(row["value"][1])
    return table


def gather_range(rows: Iterable[Mapping[str, Any]], columns: Columns) -> dict[float, Table]:
    """The tables of a range query's rows, by time of evaluation. Errors as `gather`."""
    tables: dict[float, Table] = {}
    for sample, column, row in columns.locate(rows):
        for at, value in row["values"]:
            table = tables.get(at)
            if table is None:
                table = tables[at] = Table(columns)
            table.rows[sample][column] = float(value)
    return tables
