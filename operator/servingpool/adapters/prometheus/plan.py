"""How one request is read: which series, which buckets, in how many queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from servingpool.adapters.prometheus.buckets import Layout
from servingpool.adapters.prometheus.pages import Columns
from servingpool.adapters.prometheus.promql import Queries, Scope
from servingpool.adapters.prometheus.samples import ReadRequest

ROWS_PER_SLICE = 100_000
"""About 20 MB of JSON, and 0.2 s to read."""
MOST_SLICES = 16
"""Enough for 20,000 pods of which every bucket of both histograms is read, because pools have many different SLOs."""
SAMPLES_PER_CHUNK = 400_000
"""Samples in one reply of a range query, about 10 MB."""
MOST_POINTS = 10_000
"""Times in one range query; Prometheus refuses over 11,000."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a thread needs to evaluate a request."""

    queries: Queries
    columns: Columns
    buckets: Mapping[str, Collection[str]]
    """Histogram -> the texts of `le` to ask for."""
    rows: int
    """Series to expect in all replies together."""

    @classmethod
    def of(cls, queries: Queries, layout: Layout, request: ReadRequest) -> Plan:
        """The plan for a request, given the buckets that exist."""
        asked = [
            ("time_to_first_token", request.ttft_bounds, True),
            ("time_per_output_token", request.tpot_bounds, True),
            ("queue_time", request.ttft_bounds, False),  # no percentile of it is shown
        ]
        chosen = {
            name: layout.choose(name, bounds, neighbours=neighbours)
            for field, bounds, neighbours in asked
            for name in queries.profile.histograms.get(field, ())
        }
        columns = Columns(queries, chosen, [field for field, bounds, _ in asked if bounds])
        texts = {name: sorted(set().union(*buckets.values())) for name, buckets in chosen.items()}
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
        """The expression that returns the scope's pages."""
        return self.queries.pages(self.buckets, scope)
