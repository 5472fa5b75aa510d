"""The form in which an engine's metrics are described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Names = tuple[str, ...]
"""Names that one figure has had, newest first. A page may carry two during a deprecation: the first counts."""


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """Which series hold which figure of `ReplicaMetrics`, by its field's name."""

    engine: str
    """As in `spec.engine`."""
    model_label: str
    """Holds the served model's name. Series without it are not the engine's: routers re-export some."""
    sums: Mapping[str, Names]
    """Figures of a pod that are the sum over its engine ranks."""
    histograms: Mapping[str, Names]
    """Histograms of seconds, without `_bucket`, `_sum`, `_count`."""
    page_labels: tuple[str, ...]
    """Labels that tell series of one page apart. Series that differ in other labels only, which scraping adds,
    are the same figure seen twice."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Label values whose series are not part of any figure."""
    scrape_clock: str = "running"
    """The figure whose sample time stands for the page's."""
