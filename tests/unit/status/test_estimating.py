"""What a pool is told whose bounds are not the engine's."""

from __future__ import annotations

import math

import pytest

from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Bucket
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.samples import Buckets
from servingpool.decision.observe.window import SampleWindow
from servingpool.status.conditions import estimated

from ..decision.world import counted  # noqa: TID252, tests are no package of an installed name

TTFT, TPOT = 2.0, 0.12


def seen(*, ttft: tuple[float, float], tpot: tuple[float, float], edges: tuple[float, float, float, float]) -> Memory:
    """A hundred requests. Of each bound: how many were at most at its bucket's lower end, and at its upper."""
    first_tokens = dict(zip((Column.TTFT_COUNT, Column.TTFT_LOWER, Column.TTFT_UPPER), (100.0, *ttft), strict=True))
    finished = dict(zip((Column.TPOT_COUNT, Column.TPOT_LOWER, Column.TPOT_UPPER), (100.0, *tpot), strict=True))
    delta = counted(first_tokens | finished, Buckets(Bucket(*edges[:2]), Bucket(*edges[2:])))
    return Memory(window=SampleWindow().add(now=1000.0, span=15.0, ready=1, delta=delta))


def test_bounds_at_bucket_ends_are_counted_exactly() -> None:
    memory = seen(ttft=(90.0, 90.0), tpot=(80.0, 80.0), edges=(2.0, 2.0, 0.12, 0.12))
    assert estimated(memory, TTFT, TPOT) == []


def test_a_bound_inside_a_bucket_with_many_requests_is_named_with_its_buckets() -> None:
    memory = seen(ttft=(98.0, 100.0), tpot=(40.0, 90.0), edges=(1.0, 2.5, 0.1, 0.15))
    assert estimated(memory, TTFT, TPOT) == [
        "For 50% of requests this is an estimate: the engine has no bucket at 120ms. A bound of 100ms or 150ms is counted exactly."
    ]


def test_buckets_of_prefill_engines_are_named_as_bounds_of_the_client() -> None:
    memory = seen(ttft=(50.0, 80.0), tpot=(0.0, 0.0), edges=(0.08, 2.5, 0.1, 0.1))
    assert estimated(memory, 1.9, None, parted=True) == [
        (
            "For 30% of requests this is an estimate: the engine has no bucket at 1900ms, the bound less the handover. "
            "A bound of 160ms or 2600ms is counted exactly."
        )
    ]


def test_there_is_no_bucket_below_the_first() -> None:
    memory = seen(ttft=(90.0, 90.0), tpot=(0.0, 30.0), edges=(2.0, 2.0, 0.0, 0.01))
    assert estimated(memory, TTFT, 0.004) == [
        "For 30% of requests this is an estimate: the engine has no bucket at 4ms. A bound of 10ms is counted exactly."
    ]


def test_beyond_the_last_bucket_all_count_as_late() -> None:
    memory = seen(ttft=(60.0, 100.0), tpot=(100.0, 100.0), edges=(1.0, math.inf, 0.12, 0.12))
    assert estimated(memory, TTFT, TPOT) == [
        "40% of requests count as late: the last bucket ends at 1s, below 2s. Use 1s or less."
    ]


@pytest.mark.parametrize("bounds", [(None, None), (None, TPOT)])
def test_a_bound_that_is_not_set_is_not_mentioned(bounds: tuple[float | None, float | None]) -> None:
    memory = seen(ttft=(50.0, 80.0), tpot=(100.0, 100.0), edges=(1.0, 2.5, 0.1, 0.15))
    assert estimated(memory, *bounds) == []


def test_without_requests_there_is_nothing_to_estimate() -> None:
    assert estimated(Memory(), TTFT, TPOT) == []
