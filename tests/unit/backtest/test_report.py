"""What the report says of its own error."""

from __future__ import annotations

from pathlib import Path

import pytest

from servingpool_backtest.report import OFTEN, RARELY, Error, error

EVIDENCE = Path(__file__).parents[3] / "docs" / "explanation" / "evidence.md"


@pytest.mark.parametrize("measured", [OFTEN, RARELY])
def test_report_and_evidence_give_the_same_figures(measured: Error) -> None:
    rows = [line.strip("| ").split(" | ") for line in EVIDENCE.read_text().splitlines()]
    hours, points = (" / ".join(each) for each in (measured.gpu_hours, measured.attainment))
    (row,) = (row for row in rows if row[0] == measured.scrapes)
    assert (row[1], row[3]) == (hours, f"{points} points")


def test_scrapes_each_15_s_have_the_narrow_error() -> None:
    assert "1.7% off at the mean and 6.7% at worst, attainment 0.5 and 2.4 points" in error(15.0)
    assert "this wide" not in error(15.0)


def test_rare_scrapes_have_the_wide_error_and_the_report_says_so() -> None:
    assert "6.1% off at the mean and 31% at worst, attainment 0.8 and 2.2 points" in error(30.0)
    assert error(30.0).endswith("This history's scrapes are 30s apart: expect an error this wide")
