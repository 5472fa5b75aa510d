"""Late requests, counted from buckets that do not end where the SLO does."""

from __future__ import annotations

import pytest

from servingpool.decision.observation import Histogram
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.latency import LatencyCount, late_share_by_mean, late_share_of_straddling
from servingpool.decision.observe.samples import NO_BUCKETS, _around
from servingpool.decision.observe.window import SampleWindow

from .world import counted


def test_an_exponential_tail_is_split_by_its_logarithm_and_not_linearly() -> None:
    # 100 requests beyond 1 s, 10 beyond 2.5 s: 100 * 0.1 ** (2/3) = 21.5 beyond 2 s, of them 11.5 of the bucket's 90.
    share = late_share_of_straddling(LatencyCount(900.0, 90.0, 10.0), (1.0, 2.5), 2.0)
    assert share * 90.0 == pytest.approx(11.5, abs=1.0)


def test_a_bound_beyond_the_last_bucket_and_a_bucket_that_is_gone_have_no_mean_to_go_by() -> None:
    # The older replicas' bucket held the bound of 20 s; the newer ones' ends at it: half were late.
    assert late_share_of_straddling(LatencyCount(900.0, 30.0, 0.0), (20.0, 20.0), 20.0) == 0.5
    assert late_share_by_mean(0.012, (0.010, float("inf")), 0.020) == 1.0
    assert late_share_by_mean(0.012, (0.020, 0.020), 0.020) == 0.5


def test_where_most_requests_lie_in_the_bucket_a_mean_beyond_the_bound_tells_that_they_were_late() -> None:
    shares = [late_share_of_straddling(LatencyCount(0, 90), (1.0, 2.5), 2.0, mean) for mean in (1.1, 1.9, 2.3, 5.2)]
    assert shares == pytest.approx([0.03, 0.03, 0.93, 0.03], abs=0.01)


def test_half_of_the_requests_that_are_late_by_nature_show_by_the_bucket_of_the_others() -> None:
    means = []
    for took, counts in ((50 * 0.34 + 50 * 2.15, (50.0, 50.0, 100.0)), (92 * 0.95 + 8 * 1.45, (0.0, 92.0, 100.0))):
        rows, _ = _around([Histogram((0.5, 1.0, 2.5), counts, took, 100.0)], 2.0)
        delta = counted(dict(zip(list(Column)[:5], rows[0], strict=True)), NO_BUCKETS)
        means.append(SampleWindow().add(now=15.0, span=15.0, ready=1, delta=delta).last(600.0).mean_beyond)
    assert means == pytest.approx([2.04, 0.0], abs=0.005)
