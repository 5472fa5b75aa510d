"""The page of benchmarks/backtest.py."""

from __future__ import annotations

from backtest import WATCHED, Line, page
from stated import Kept, tables

KEPT = Kept.load("backtest")


def test_a_history_has_a_cell_and_each_kind_of_scrapes_its_mean_and_worst() -> None:
    lines = [
        Line(case, fleet, watched, 4.0, 4.0 + off, 0.96, 0.95, 0.0, 1.0)
        for case, off in (("ramp", 0.4), ("code", -0.8))
        for fleet in ("static 7", "HPA on running")
        for watched in WATCHED
    ]
    found = tables(page(lines))
    first, by_case = found.values()
    assert [row[1:] for row in first[1:]] == [["4", "15.0%", "20.0%", "1.0", "1.0"]] * 2
    assert by_case[1:] == [["ramp", *["+10.0%"] * 4], ["code", *["-20.0%"] * 4]]
    assert [first[0], by_case[0]] == [rows[0] for rows in KEPT.figures.values()]
