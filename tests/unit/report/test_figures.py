from __future__ import annotations

import pytest

from servingpool.decision.pool import Slo
from servingpool_simulation.report import figures


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100%"), (0.99999, "99.99%"), (0.9935, "99.35%"), (0.94998, "94.99%"), (0.871, "87.1%"), (0.0, "0.0%")],
)
def test_nothing_reads_as_more_than_it_is(share: float, text: str) -> None:
    assert figures.percent(share) == text


def test_the_objective_names_only_the_bounds_that_are_set() -> None:
    assert figures.objective(Slo(2.0, 0.15, 0.95)) == "TTFT at most 2s and TPOT at most 150ms, for 95% of requests"
    assert figures.objective(Slo(None, 0.15, 0.999)) == "TPOT at most 150ms, for 99.9% of requests"


@pytest.mark.parametrize(
    ("figure", "than", "text"),
    [(8.0, 10.0, "20% less"), (12.0, 10.0, "20% more"), (10.01, 10.0, "as much"), (1.0, 0.0, "as much")],
)
def test_differences_read_as_people_say_them(figure: float, than: float, text: str) -> None:
    assert figures.more_or_less(figure, than) == text


def test_lists_and_times_read_as_people_write_them() -> None:
    assert [figures.listed(list(parts)) for parts in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert [figures.clock(seconds) for seconds in (0, 75, 3675)] == ["0:00", "1:15", "61:15"]
    assert [figures.latency(seconds) for seconds in (None, 0.083, 1.12)] == ["-", "83ms", "1.12s"]
