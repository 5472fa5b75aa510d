"""Late requests out of buckets that do not end where the SLO does."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from servingpool.decision.slo_count import SloCount, late_share_by_mean, late_share_of_straddling


def test_an_exponential_tail_is_divided_as_it_falls_not_linearly() -> None:
    # 100 requests beyond 1 s, 10 beyond 2.5 s: 100 * 0.1 ** (2/3) = 21.5 beyond 2 s, of them 11.5 of the bucket's 90.
    share = late_share_of_straddling(SloCount(900.0, 90.0, 10.0), (1.0, 2.5), 2.0)
    assert share * 90.0 == pytest.approx(11.5, abs=1.0)


@pytest.mark.parametrize(("mean", "least", "most"), [(0.012, 0.0, 0.03), (0.024, 0.75, 1.0)])
def test_the_mean_tells_a_fast_fleet_from_a_slow_one_in_the_same_bucket(mean: float, least: float, most: float) -> None:
    # All in the bucket of 10 to 25 ms, bound 20 ms. A mean of 12 ms at a spread of 20% has its centre at 11.76 ms, and
    # 20 ms is log(20 / 11.76) / 0.2 = 2.7 deviations off: 0.4%. At 24 ms it is log(20 / 23.5) / 0.2 = -0.8: 79%.
    assert least <= late_share_by_mean(SloCount(0.0, 100.0, 0.0), mean, (0.010, 0.025), 0.020) <= most


def test_a_later_mean_is_never_less_late() -> None:
    means = [0.011 + 0.0005 * step for step in range(27)]  # up to 24 ms: beyond, no spread fits such counts well
    shares = [late_share_by_mean(SloCount(0.0, 100.0, 0.0), mean, (0.010, 0.025), 0.020) for mean in means]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(shares))


def test_counts_outside_the_bucket_tell_the_spread() -> None:
    # Mean 15 ms with all 100 between 10 and 25 ms is narrow; with 20 below and 10 beyond it is wide, and more are late.
    narrow = late_share_by_mean(SloCount(0.0, 100.0, 0.0), 0.015, (0.010, 0.025), 0.020)
    wide = late_share_by_mean(SloCount(20.0, 70.0, 10.0), 0.015, (0.010, 0.025), 0.020)
    assert narrow < wide


@pytest.mark.parametrize(("mean", "upper"), [(0.012, math.inf), (0.0, 0.025)])
def test_without_an_end_or_a_mean_all_of_the_bucket_is_late(mean: float, upper: float) -> None:
    assert late_share_by_mean(SloCount(10.0, 5.0, 0.0), mean, (0.010, upper), 0.020) == 1.0
