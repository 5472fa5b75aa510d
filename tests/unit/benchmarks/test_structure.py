"""Ceilings in code lines: they fall with what stands, and rise with a reason alone."""

from __future__ import annotations

from typing import Any

import pytest
import structure

TEXT = '''"""Docstring
of two lines."""

import math
from pathlib import (
    Path,
)

__all__ = ["X"]
# Why.
X = 1  # which

def f():
    """Docstring."""
    return """
# quoted
"""
'''


def test_words_weigh_nothing() -> None:
    assert structure.code_lines(TEXT) == 5


def test_a_ceiling_falls_to_what_stands_and_says_what_to_delete() -> None:
    ceilings = {"operator/a": 100, "operator/gone": 10, "tests": 50}
    now = {"operator/a": 103, "operator/b": 7, "tests": 40}
    assert structure.lowered(ceilings, now) == {"operator/a": 100, "operator/b": 7, "tests": 40}
    (line,) = structure.above(now, ceilings)
    assert line.startswith("operator/a: 103, 3 above its ceiling. Delete 3 in it first")


@pytest.mark.parametrize(
    ("after", "reasons", "raised"),
    [
        ({"operator/a": 90, "operator/b": 50}, {}, []),
        ({"operator/a": 101, "operator/b": 49}, {}, ["operator/a"]),
        ({"operator/a": 101, "operator/b": 49}, {"operator/a": "of before"}, ["operator/a"]),
        ({"operator/a": 101, "operator/b": 49}, {"operator/a": "moved from b"}, []),
        # A new package takes what others give.
        ({"operator/a": 60, "operator/b": 50, "operator/c": 40}, {}, []),
        ({"operator/a": 100, "operator/b": 50, "operator/c": 1}, {}, ["operator"]),
    ],
)
def test_a_ceiling_rises_with_a_new_reason_alone(
    after: dict[str, int], reasons: dict[str, str], raised: list[str]
) -> None:
    old: dict[str, Any] = {"ceilings": {"operator/a": 100, "operator/b": 50}, "raised": {"operator/a": "of before"}}
    found = structure.raised(old, {"ceilings": after, "raised": reasons})
    assert [line.partition(":")[0] for line in found] == raised
