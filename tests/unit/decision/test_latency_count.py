"""Late requests, counted from buckets that do not end where the SLO does."""

from __future__ import annotations

import pytest

from servingpool.decision.observe.latency import LatencyCount, late_share_by_mean, late_share_of_straddling


def test_an_exponential_tail_is_split_by_its_logarithm_and_not_linearly() -> None:
    # 100 requests beyond 1 s, 10 beyond 2.5 s: 100 * 0.1 ** (2/3) = 21.5 beyond 2 s, of them 11.5 of the bucket's 90.
    share = late_share_of_straddling(LatencyCount(900.0, 90.0, 10.0), (1.0, 2.5), 2.0)
    assert share * 90.0 == pytest.approx(11.5, abs=1.0)


def test_requests_in_a_bucket_that_newer_replicas_do_not_have_count_half() -> None:
    # The older replicas' bucket held the bound of 20 s; the newer ones' ends at it.
    assert late_share_of_straddling(LatencyCount(900.0, 30.0, 0.0), (20.0, 20.0), 20.0) == 0.5


def test_counts_of_a_damaged_sample_are_split_without_an_error() -> None:
    assert late_share_of_straddling(LatencyCount(0.0, 1.0, 1e17), (1.0, 2.5), 2.0) == 0.5


def test_a_bound_beyond_the_last_bucket_and_a_bucket_that_is_gone_have_no_mean_to_go_by() -> None:
    assert late_share_by_mean(0.012, (0.010, float("inf")), 0.020) == 1.0
    assert late_share_by_mean(0.012, (0.020, 0.020), 0.020) == 0.5
