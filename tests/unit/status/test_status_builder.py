"""The patch that turns a stored status into the new one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from servingpool.status.report import changes

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
