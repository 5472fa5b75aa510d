"""By how much what the operator reads may differ from what the client measured, and what is read, or a failed test."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from servingpool.decision.observation import Histogram, Unknown

from .client import Answer

TRANSPORT = 0.25
"""Seconds that a request or a token may be under way between client and engine, which is all that TTFT differs by.
On two cores with a load of seven the mean was 27 ms."""
MEAN_TRANSPORT = 0.1
"""Seconds, likewise, on average."""
ROUNDING = 1e-6
SAME = 0.05
"""Share by which a mean over all tokens may differ: what transport adds to the first one it adds to the last as well."""


def unsure(answer: Answer) -> float:
    """Seconds by which a request's TPOT may differ between client and engine."""
    return TRANSPORT / (len(answer.times) - 1)


def histogram(figure: Histogram | Unknown) -> Histogram:
    assert isinstance(figure, Histogram), figure
    return figure


def reading(figure: float | Unknown) -> float:
    assert not isinstance(figure, Unknown), figure
    return figure


def series(page: str) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """The engine's series on a page, with their labels, of which the cache's hold this machine's sizes."""
    found = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    own = (sample for sample in found if sample.name.startswith("vllm:"))
    return {(s.name, frozenset() if s.name.endswith("_info") else frozenset(s.labels.items())) for s in own}
