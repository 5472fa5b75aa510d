"""Columns of a sample's figures: each series has a column, each figure one or several columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, Figure, Origin, Series
from servingpool.adapters.prometheus.promql import GROUP, SEVERAL, SOURCES, Queries, Source, exported, source_key
from servingpool.adapters.prometheus.rows import ROW_ERRORS, Unread

SCRAPED_AT = ""
"""The scrape time's row has no metric name."""
SEVERAL_COLUMN, SOURCES_COLUMN = 1, 2
"""Columns of the rows named SEVERAL and SOURCES; the scrape time's is 0."""

Row = list[float | None]
SampleKey = tuple[str, str, str]
"""Namespace, pod, model."""


@dataclass(frozen=True, slots=True)
class HistogramColumns:
    """Columns of a histogram."""

    name: str
    total: int
    count: int
    buckets: tuple[tuple[float, int], ...] = ()
    all_requests: int | None = None
    """Column of the count with the requests that the profile excludes; None where it excludes none."""


@dataclass(frozen=True, slots=True)
class Made:
    """A column that no row fills: the total of others."""

    column: int
    parts: tuple[tuple[int, float], ...]
    """Columns and their signs."""
    needs_all: bool
    """Whether the total is unknown where a part is missing."""
    less: float = 0.0
    """Subtracted from the total."""

    def fill(self, row: Row) -> None:
        """Set the column. A scrape between the changes of two of its parts leaves no debt."""
        known = [value * sign for column, sign in self.parts if (value := row[column]) is not None]
        if known and (len(known) == len(self.parts) or not self.needs_all):
            total = sum(known) - self.less
            row[self.column] = max(total, 0.0)  # NaN stays


class Columns:
    """Places of the series in a sample's row: sample rows are lists, for 20,000 dicts would take 100 MB."""

    def __init__(
        self,
        queries: Queries,
        buckets: Mapping[Source, Mapping[float, Collection[str]]],
        bounded: Collection[Figure],
    ) -> None:
        """`buckets`: histogram -> upper bound -> texts of `le`. `bounded`: the histograms of no use without."""
        self._identity = queries.owned
        self.unread = partial(Unread, queries.owned[:2])
        """Factory of the counters of rows that cannot be read."""
        self._splits = {
            str(number): (group.split, exported(group.split) if group.split else "")
            for number, group in enumerate(queries.profile.groups)
        }
        self.plain: dict[str, int] = {SCRAPED_AT: 0, SEVERAL: SEVERAL_COLUMN, SOURCES: SOURCES_COLUMN}
        self.by_le: dict[str, dict[str, int]] = {}
        self.made: list[Made] = []
        self.width = len(self.plain)
        self.from_admission = queries.profile.time_to_first_token_from is Origin.ADMISSION
        figures = queries.profile.figures
        self.figures = tuple(
            tuple((self._figure(queries, one), one.name or one.sum[0]) for one in figures.get(figure, ()))
            for figure in Figure
            if figure not in HISTOGRAMS
        )
        self.histograms = tuple(
            (
                figure in bounded,
                tuple(self._histogram(queries, one, buckets) for one in figures.get(figure, ())),
            )
            for figure in HISTOGRAMS
        )

    def locate(
        self, rows: Iterable[Mapping[str, Any]], unread: Unread
    ) -> Iterator[tuple[SampleKey, int, Mapping[str, Any]]]:
        """The sample and the column of each row; rows that were not asked for, and unreadable ones, are left out.

        A label that the sample itself carried wins over the one that scraping added.
        """
        (namespace, own_namespace), (pod, own_pod), (model, own_model) = self._identity
        plain, by_le, splits = self.plain, self.by_le, self._splits
        for row in rows:
            try:
                metric = row["metric"]
                name = metric.get("__name__", SCRAPED_AT)
                if GROUP in metric:
                    group = metric[GROUP]
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
            except ROW_ERRORS:
                unread.add(row)
                continue
            yield sample, column, row

    def _figure(self, queries: Queries, series: Series) -> int:
        source, (split, values) = queries.source(series), series.split
        if series.sum:
            return self._total(queries, series, series.sum, needs_all=not series.any_term)
        if series.less:
            return self._make([(source, 1.0)], needs_all=True, less=series.less)
        if not split:
            return self._plain(source)
        return self._make([(source._replace(value=value), 1.0) for value in values], needs_all=False)

    def _plain(self, source: Source) -> int:
        if source.key not in self.plain:
            self.plain[source.key] = self._new()
        return self.plain[source.key]

    def _histogram(
        self, queries: Queries, series: Series, buckets: Mapping[Source, Mapping[float, Collection[str]]]
    ) -> HistogramColumns:
        if not series.name:
            total = self._total(queries, series, series.sum, series.count)
            return HistogramColumns(series.sum[0], total, self._total(queries, series, series.count, series.sum))
        source = queries.source(series)
        by_le = self.by_le.setdefault(source.part("bucket").key, {})
        columns = []
        for bound, texts in sorted(buckets.get(source, {}).items()):
            column = next((by_le[text] for text in texts if text in by_le), None)
            column = self._new() if column is None else column
            by_le.update(dict.fromkeys(texts, column))
            columns.append((bound, column))
        total, count = (self._plain(source.part(part)) for part in ("sum", "count"))
        hidden = self._plain(Source(f"{source.name}_count")) if series.excluded else None
        return HistogramColumns(source.name, total, count, tuple(columns), hidden)

    def _total(
        self,
        queries: Queries,
        series: Series,
        terms: Collection[str],
        beside: Collection[str] = (),
        *,
        needs_all: bool = True,
    ) -> int:
        """Column of the total of `terms`; empty where a term, or one `beside`, is missing and all are needed."""
        group = queries.profile.group_of(series)
        signed = [(Source(term.removeprefix("-"), group), -1.0 if term[0] == "-" else 1.0) for term in terms]
        signed += [(Source(term.removeprefix("-"), group), 0.0) for term in beside]
        return self._make(signed, needs_all=needs_all)

    def _make(self, terms: Collection[tuple[Source, float]], *, needs_all: bool, less: float = 0.0) -> int:
        """A column that no row fills: the total of others, by their signs."""
        column = self._new()
        self.made.append(Made(column, tuple((self._plain(term), sign) for term, sign in terms), needs_all, less))
        return column

    def _new(self) -> int:
        self.width += 1
        return self.width - 1
