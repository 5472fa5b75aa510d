"""What is left of a status when the API server refuses parts of it."""

from __future__ import annotations

import pytest

from servingpool.adapters.cluster.older_schema import without

CONDITIONS = [{"type": "Ready"}, {"type": "New"}, {"type": "SLOMet"}, {"type": "Newer"}]
STATUS = {"replicas": 3, "conditions": CONDITIONS, "cost": {"perHour": 1.0, "unit": "new"}, "gone": None}


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        (["status.conditions[1].type"], STATUS | {"conditions": [CONDITIONS[0], CONDITIONS[2], CONDITIONS[3]]}),
        (["status.conditions[1].type", "status.conditions[3]"], STATUS | {"conditions": CONDITIONS[::2]}),
        (["status.cost.unit"], {key: value for key, value in STATUS.items() if key != "cost"}),
        (["status.conditions"], {key: value for key, value in STATUS.items() if key != "conditions"}),
        (["status.conditions[9].type"], STATUS),
        (["spec.targets[0].name", "status", "", "metadata.uid", "status.other"], STATUS),
    ],
)
def test_only_what_is_refused_is_left_out(fields: list[str], left: dict[str, object]) -> None:
    assert without(STATUS, fields) == left
