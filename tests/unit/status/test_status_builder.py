"""What of a decision reaches the status, and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.api.conditions import ConditionType, Reason, Truth, condition
from servingpool.api.status import Status, Throughput
from servingpool.api.time import from_unix
from servingpool.status.report import Cause, cause_of, changes

from ..reconcile.fake_cluster import merged  # noqa: TID252, tests are no package of an installed name

SCALARS = st.integers(0, 3)
FLAT = st.dictionaries(st.sampled_from("abc"), SCALARS | st.lists(SCALARS, max_size=2), max_size=3)
OBJECTS = st.dictionaries(st.sampled_from("abc"), SCALARS | FLAT, max_size=3)


@given(OBJECTS, OBJECTS)
def test_the_patch_turns_the_stored_status_into_the_new_one(before: Any, after: Any) -> None:
    assert merged(before, changes(before, after)) == after


@given(OBJECTS)
def test_nothing_new_is_no_patch(status: Any) -> None:
    assert changes(status, status) == {}


def test_a_patch_holds_only_changes() -> None:
    before = {"replicas": 2, "latency": {"ttft": "1s", "tpot": "40ms"}, "queue": 3, "list": [1, 2]}
    after = {"replicas": 2, "latency": {"ttft": "2s", "tpot": "40ms"}, "list": [1]}
    assert changes(before, after) == {"latency": {"ttft": "2s"}, "queue": None, "list": [1]}


def status(tokens: float = 1000.0, attainment: float | None = 99.0, **more: Any) -> Status:
    throughput = Throughput(generation_tokens_per_second=tokens)
    return Status(fleet="2/2/8", replicas=2, queue_depth=0.0, attainment=attainment, throughput=throughput, **more)


@pytest.mark.parametrize(
    ("after", "age", "expected"),
    [
        (status(tokens=1100.0), 60.0, None),  # noise
        (status(tokens=2000.0), 30.0, None),  # so soon again
        (status(tokens=2000.0), 60.0, Cause.FIGURES),
        (status(attainment=None), 60.0, Cause.FIGURES),
        (status(), 285.0, None),
        (status(), 300.0, Cause.FIGURES),  # it serves, and looks as if the operator were gone
        (status(observed_generation=2), 0.0, Cause.CHANGED),  # a person waits for it
        (status().model_copy(update={"fleet": "2/3/8"}), 0.0, Cause.CHANGED),
        (status().model_copy(update={"replicas": 3}), 0.0, Cause.CHANGED),
    ],
)
def test_a_status_is_written_when_a_person_would_care(after: Status, age: float, expected: Cause | None) -> None:
    assert cause_of(status(), after, age) == expected


def test_figures_of_very_many_pools_are_written_less_often() -> None:
    often = [cause_of(status(), after, 300.0, 600.0) for after in (status(), status(tokens=2000.0))]
    assert often == [None, None]
    assert cause_of(status(), status(), 600.0, 600.0) is Cause.FIGURES


def judged(type_: ConditionType, truth: Truth, reason: Reason) -> Status:
    said = condition(type_, truth, reason=reason, message="", generation=1, now=from_unix(0.0))
    return status().model_copy(update={"conditions": (said,)})


def test_a_new_reason_of_ready_is_written_at_once() -> None:
    before = judged(ConditionType.READY, Truth.TRUE, Reason.SUCCEEDED_GET_SCALE)
    assert cause_of(before, judged(ConditionType.READY, Truth.TRUE, Reason.WAITING_FOR_NODE), 0.0) is Cause.CHANGED


def test_a_new_reason_of_a_bad_condition_is_written_at_once() -> None:
    """Of a pool that was new "not scraped" stood for a minute where the model's name was wrong."""
    before = judged(ConditionType.METRICS_AVAILABLE, Truth.FALSE, Reason.FAILED_GET_METRICS)
    assert (
        cause_of(before, judged(ConditionType.METRICS_AVAILABLE, Truth.FALSE, Reason.NO_SERIES_FOR_MODEL), 0.0)
        is Cause.CHANGED
    )


def test_a_new_reason_of_a_good_condition_is_written_with_the_figures() -> None:
    """A gateway that answers now and then would else cost a write for each pool and tick."""
    before = judged(ConditionType.METRICS_AVAILABLE, Truth.TRUE, Reason.VALID_METRICS)
    assert (
        cause_of(before, judged(ConditionType.METRICS_AVAILABLE, Truth.FALSE, Reason.FAILED_GET_METRICS), 0.0)
        is Cause.CHANGED
    )
    after = judged(ConditionType.METRICS_AVAILABLE, Truth.TRUE, Reason.PARTIAL_METRICS)
    assert [cause_of(before, after, age) for age in (15.0, 60.0)] == [None, Cause.FIGURES]
