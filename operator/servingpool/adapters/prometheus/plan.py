"""Reading of a request: its series, buckets and queries; and samples from the rows of a reply.

20,000 pods make half a million rows a tick, so each row costs little.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.prometheus.columns import (
    SEVERAL_COLUMN,
    SOURCES_COLUMN,
    Columns,
    HistogramColumns,
    Row,
    SampleKey,
)
from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS as HISTOGRAM_FIGURES
from servingpool.adapters.prometheus.engines.profile import Figure
from servingpool.adapters.prometheus.promql import Queries, Scope, Source
from servingpool.adapters.prometheus.rows import MOST_SAMPLES, MOST_TEXT, ROW_ERRORS
from servingpool.adapters.prometheus.samples import PARTS, Layout, ReadRequest
from servingpool.decision.observation import NOT_EXPOSED, Histogram, Reading, ReplicaMetrics, Unknown

ROWS_PER_SLICE = 100_000
"""About 20 MB of JSON, and 0.2 s to read."""
MOST_SLICES = 16
"""Enough for 20,000 pods of which every bucket of both histograms is read, because pools have many different SLOs."""
SAMPLES_PER_CHUNK = 400_000
"""Samples in a reply of a range query, about 10 MB."""
MOST_POINTS = 10_000
"""Times in a range query; Prometheus refuses over 11,000."""
HISTOGRAMS = tuple(figure.field for figure in HISTOGRAM_FIGURES)
FIGURES = tuple(figure.field for figure in Figure if figure not in HISTOGRAM_FIGURES)
FIELDS = (*FIGURES, *HISTOGRAMS)
"""Fields of `ReplicaMetrics` that are read."""

EMPTY = Histogram((), (), 0.0, 0.0)
_EARLY = 0.001
"""Seconds by which a time may be off by rounding."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Inputs that a thread needs to evaluate a request."""

    queries: Queries
    columns: Columns
    buckets: Mapping[Source, Collection[str]]
    """Histogram -> the texts of `le` to ask for."""
    rows: int
    """Series to expect in all replies together."""
    targets: tuple[str, ...]
    """Labels that tell targets apart."""

    @classmethod
    def of(cls, queries: Queries, layout: Layout, request: ReadRequest) -> Plan:
        """The plan for a request, given the buckets that exist."""
        asked = [
            (Figure.TIME_TO_FIRST_TOKEN, request.ttft_bounds),
            (Figure.TIME_PER_OUTPUT_TOKEN, request.tpot_bounds),
            (Figure.QUEUE_TIME, request.ttft_bounds),
        ]
        chosen = {
            queries.source(series): layout.choose(series.name, bounds)
            for figure, bounds in asked
            for series in queries.profile.figures.get(figure, ())
            if series.name
        }
        columns = Columns(queries, chosen, [figure for figure, bounds in asked if bounds])
        texts = {source: sorted(set().union(*buckets.values())) for source, buckets in chosen.items()}
        return cls(queries, columns, texts, layout.engines * columns.width, layout.targets)

    @property
    def slices(self) -> int:
        """Into how many queries the pods are divided."""
        return min(MOST_SLICES, 1 + self.rows // ROWS_PER_SLICE)

    @property
    def points(self) -> int:
        """Times that a range query may cover so that its reply stays small."""
        return max(1, min(MOST_POINTS, SAMPLES_PER_CHUNK * self.slices // max(1, self.rows)))

    def query(self, scope: Scope) -> str:
        """The expression that returns the scope's samples."""
        return self.queries.samples(self.buckets, scope, self.targets)


class _Rows(dict[SampleKey, Row]):
    """A row for each sample that is asked for. Half a million are, every tick: what is looked up here costs nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def __missing__(self, sample: SampleKey) -> Row:
        """A new row. TypeError where its key is no text, or is too long; ValueError where there are too many rows."""
        if not all(isinstance(each, str) and len(each) <= MOST_TEXT for each in sample):
            raise TypeError("a label that is no text, or too long")
        if len(self) > MOST_SAMPLES:
            raise ValueError("too many samples")  # see `read_samples`
        row = self[sample] = [None] * self._width
        return row


class Table:
    """Rows of an evaluation, gathered by sample."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.rows = _Rows(columns.width)
        self.unread = columns.unread()
        self.several: set[PodKey] = set()
        """Pods with a sample that is left out, for its gauges have several series in one scrape."""
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
            if scraped_at is None or not math.isfinite(scraped_at):
                continue  # no scrape time, no rate: as good as not scraped
            if row.count(None) == len(row) - 1:
                continue  # VictoriaMetrics goes on telling when series were scraped that are no more
            if at - scraped_at > staleness:
                stale[namespace, pod] = at - scraped_at
                continue
            if row[SEVERAL_COLUMN] is not None:
                self.several.add((namespace, pod))
                continue
            for each in self._columns.made:
                each.fill(row)
            read = dict(zip(FIELDS, (*self._figures(row), *self._histograms(row)), strict=True))
            from_admission = self._columns.from_admission
            sources = row[SOURCES_COLUMN] or 1.0
            sample = ReplicaMetrics(pod, scraped_at, sources=sources, ttft_from_admission=from_admission, **read)  # type: ignore[arg-type]
            fresh.setdefault((namespace, pod), {})[model] = sample
        return fresh, stale

    def _figures(self, row: Row) -> Iterator[Reading]:
        for names in self._columns.figures:
            for column, name in names:
                value = row[column]
                if value is not None:
                    yield value if 0.0 <= value < math.inf else Unknown(f"{name} is {value}")
                    break
            else:
                yield NOT_EXPOSED

    def _histograms(self, row: Row) -> Iterator[Histogram | Unknown]:
        for bounded, names in self._columns.histograms:
            lost = NOT_EXPOSED
            for columns in names:
                if row[columns.total] is not None and row[columns.count] is not None:
                    yield self._histogram(row, columns, bounded=bounded)
                    break
                own = (columns.total, columns.count, *(column for _, column in columns.buckets))
                if any(row[one] is not None for one in own):
                    lost = PARTS["count" if row[columns.count] is None else "sum"]
                elif columns.all_requests is not None and row[columns.all_requests] is not None:
                    yield EMPTY  # no request so far that counts; `begun` has the others
                    break
            else:
                yield lost

    def _histogram(self, row: Row, columns: HistogramColumns, *, bounded: bool) -> Histogram | Unknown:
        total, count = row[columns.total] or 0.0, row[columns.count] or 0.0
        bounds, counts = [], []
        for bound, column in columns.buckets:
            value = row[column]
            if value is not None:
                bounds.append(bound)
                counts.append(value)
        self.lacks_buckets |= bounded and not bounds
        if not 0.0 <= min(total, count, *counts) <= total + count + sum(counts) < math.inf:
            return Unknown(f"{columns.name} contains what is no count")
        return Histogram(tuple(bounds), tuple(counts), total, count)


def gather(rows: Iterable[Mapping[str, Any]], columns: Columns) -> Table:
    """Table of an instant query's rows; `Table.unread` has the rows that were not asked for."""
    table = Table(columns)
    found, unread = table.rows, table.unread
    for sample, column, row in columns.locate(rows, unread):
        try:
            value = float(row["value"][1])
            found[sample][column] = value
        except ROW_ERRORS:
            if len(found) > MOST_SAMPLES:
                break  # the answer is refused: see `read_samples`
            unread.add(row)
    return table


def gather_range(rows: Iterable[Mapping[str, Any]], columns: Columns, start: float, end: float) -> dict[float, Table]:
    """The tables of a range query's rows from `start` to `end`, by time of evaluation. Unreadable rows are left out."""
    tables: dict[float, Table] = {}
    unread = columns.unread()
    for sample, column, row in columns.locate(rows, unread):
        try:
            points = [(at, float(value)) for at, value in row["values"] if start <= at + _EARLY and at - _EARLY <= end]
            for at, value in points:
                table = tables.get(at)
                if table is None:
                    table = tables[at] = Table(columns)
                table.rows[sample][column] = value
        except ROW_ERRORS:
            unread.add(row)
    return tables


def evaluated_at(rows: Iterable[Mapping[str, Any]], columns: Columns) -> float:
    """Time of an instant query, Unix seconds, by most of its rows; 0.0 without rows."""
    times = list(columns.unread().readable(rows, lambda row: float(row["value"][0])))
    return max(times, key=times.count, default=0.0)
