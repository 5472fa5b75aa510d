"""What the report says of its own error; `make evidence` sets the figures."""

from __future__ import annotations

from servingpool_backtest.report import OFTEN, RARELY, Error, error


def figures(measured: Error) -> str:
    (mean, worst), (points, most) = measured.gpu_hours, measured.attainment
    return f"{mean} off at the mean and {worst} at worst, attainment {points} and {most} points"


def test_scrapes_each_15_s_have_the_narrow_error() -> None:
    assert figures(OFTEN) in error(15.0)
    assert "this wide" not in error(15.0)


def test_rare_scrapes_have_the_wide_error_and_the_report_says_so() -> None:
    assert figures(RARELY) in error(30.0)
    assert error(30.0).endswith("This history's scrapes are 30s apart: expect an error this wide")
