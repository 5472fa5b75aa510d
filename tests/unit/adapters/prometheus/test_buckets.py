"""Which buckets are worth their bytes."""

from __future__ import annotations

import math
from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.prometheus.rows import MOST_BUCKETS
from servingpool.adapters.prometheus.samples import BucketCount, Layout, with_own_buckets
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics

VLLM_TTFT = (
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0"
)


def layout(*groups: tuple[int, str]) -> Layout:
    """Groups of pods, each with its own buckets."""
    counts: dict[str, int] = {}
    for pods, texts in groups:
        for text in [*texts.split(), "+Inf"]:
            counts[text] = counts.get(text, 0) + pods
    return Layout.read(BucketCount("ttft", text, float(count)) for text, count in counts.items())


def test_the_two_buckets_around_a_bound_and_a_few_neighbours_are_read():
    assert list(layout((20_000, VLLM_TTFT)).choose("ttft", {2.0})) == [0.5, 1.0, 2.5, 5.0, 7.5]


def test_counts_the_engines_by_their_infinite_bucket():
    assert layout((7, VLLM_TTFT), (2, "1.0 3.0")).engines == 9


def test_no_bound_no_bucket_and_no_histogram_none():
    assert layout((1, VLLM_TTFT)).choose("ttft", set()) == {}
    assert layout((1, VLLM_TTFT)).choose("tpot", {0.1}) == {}
    assert layout().choose("ttft", {2.0}) == {}


def test_a_few_pods_with_finer_buckets_do_not_cost_the_others_their_bracket():
    chosen = set(layout((90, VLLM_TTFT), (10, "1.0 1.8 1.9 2.1 2.2 2.5")).choose("ttft", {2.0}))
    assert {1.0, 1.9, 2.1, 2.5} <= chosen


def test_pods_with_finer_buckets_do_not_cost_the_others_their_neighbours():
    chosen = set(layout((90, VLLM_TTFT), (10, "3.9 4.0 4.1 8.0")).choose("ttft", {2.0}))
    assert {5.0, 7.5} <= chosen


SECONDS = st.lists(st.integers(1, 10_000), min_size=1, max_size=40, unique=True)


@given(le=SECONDS, ours=st.floats(0.001, 200.0), theirs=st.lists(st.floats(0.001, 200.0), max_size=8))
def test_buckets_of_a_pool_do_not_depend_on_other_pools(le, ours, theirs):
    found = Layout.read([BucketCount("ttft", repr(value), 3.0) for value in [*(value / 100 for value in le), math.inf]])
    alone, together = (
        with_own_buckets(page(tuple(found.choose("ttft", bounds))), ours, None) for bounds in ({ours}, {ours, *theirs})
    )
    assert together == alone
    assert together.time_to_first_token.bounds == tuple(found.choose("ttft", {ours}))


def test_what_an_slo_does_not_bound_has_no_buckets():
    read = page((0.1, 0.15, 0.2))
    own = with_own_buckets(read, None, 0.1)
    assert own.time_to_first_token == Histogram((), (), 9.0, 3.0)
    assert own.time_per_output_token == read.time_per_output_token
    assert own.queue_time == NOT_EXPOSED


def test_a_sample_without_other_buckets_is_passed_on_unchanged():
    read = page((1.0, 2.5))
    assert with_own_buckets(read, 2.0, 2.0) is read


def page(bounds: tuple[float, ...]) -> ReplicaMetrics:
    histogram = Histogram(bounds, bounds, 9.0, 3.0)
    return ReplicaMetrics("llama-0", 0.0, time_to_first_token=histogram, time_per_output_token=histogram)


@given(le=SECONDS, bound=st.floats(0.001, 200.0))
def test_the_bracket_of_every_bound_is_always_taken(le, bound):
    bounds = sorted(value / 100 for value in le)
    chosen = Layout.read([BucketCount("ttft", repr(value), 3.0) for value in [*bounds, math.inf]]).choose(
        "ttft", {bound}
    )
    above = bisect_right(bounds, bound * (1 + 1e-9))
    assert set(bounds[max(0, above - 1) : above + 1]) <= set(chosen)
    assert list(chosen) == sorted(chosen)


@given(le=SECONDS, theirs=SECONDS, pods=st.integers(1, 1_000), bound=st.floats(0.01, 200.0))
def test_pods_of_another_namespace_push_no_bucket_out(le, theirs, pods, bound):
    """However many buckets they have around the bound, and however many they are."""
    own = [BucketCount("ttft", repr(value / 100), 3.0, "ours") for value in sorted(le)]
    foreign = [BucketCount("ttft", repr(bound * (0.9 + value / 50_000)), float(pods), "theirs") for value in theirs]
    alone, beside = Layout.read(own), Layout.read([*own, *foreign])
    assert alone.choose("ttft", {bound}).keys() <= beside.choose("ttft", {bound}).keys()


def test_of_very_many_buckets_those_of_most_pods_are_known():
    """A page may have a hundred thousand, and choosing among them takes its time for all."""
    own = [BucketCount("ttft", le, 3.0) for le in VLLM_TTFT.split()]
    odd = [BucketCount("ttft", str(1 + number / 1e6), 1.0) for number in range(100_000)]
    crowded = Layout.read([*odd, *own])
    assert [len(one.bounds) for one in crowded.buckets["ttft"]] == [MOST_BUCKETS]
    assert {1.0, 2.5} <= crowded.choose("ttft", {2.0}).keys()


def test_namespaces_with_the_same_buckets_are_one():
    counts = [BucketCount("ttft", le, 3.0, f"n{number}") for number in range(500) for le in VLLM_TTFT.split()]
    alike = Layout.read(counts)
    assert len(alike.buckets["ttft"]) == 1
    assert alike.engines == 1_500
