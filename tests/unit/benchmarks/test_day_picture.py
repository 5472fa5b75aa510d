"""The README's picture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from day_picture import changes


def test_only_changes_and_the_end_are_drawn() -> None:
    result: Any = SimpleNamespace(series=SimpleNamespace(time=[0, 3600, 7200, 10800], requested=[2, 2, 3, 3]))
    at, asked = changes(result)
    assert at.tolist() == [0.0, 2.0, 3.0]
    assert asked.tolist() == [2.0, 3.0, 3.0]
