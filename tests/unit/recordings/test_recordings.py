"""Decisions of whole days, to the digit: a change of the structure moves none, or says which, how far and why."""

from __future__ import annotations

import pytest

from .recorded import moved, play, read
from .stories import RECORDINGS

STORIES = [(name, story) for name, stories in RECORDINGS.items() for story in stories]


@pytest.mark.parametrize(("name", "story"), STORIES)
def test_no_decision_moves(name: str, story: str) -> None:
    """Where one is to: `python -m tests.unit.recordings.recorded` tells all that moved, and writes them."""
    kept = [row for row in read(name) if row["story"] == story]
    assert moved(kept, play(name, story)) == ""


def test_what_moves_is_told() -> None:
    kept = read("plain")[:100]
    changed = [*kept[:50], {**kept[50], "replicas": kept[50]["replicas"] + 3}, *kept[51:]]
    told = moved(kept, changed)
    assert told.startswith("1 of 100 decisions moved, 1 of them by replicas, at most 3; 100 were made.")
    closely = [{**row, "need": row["need"] and row["need"] * (1.0 + 1e-12)} for row in kept]
    assert moved(kept, closely) == ""
    assert "99 were made" in moved(kept, kept[:99])


def test_there_are_enough_of_them() -> None:
    rows = [row for name in RECORDINGS for row in read(name)]
    assert len(rows) >= 3000
    assert len({row["replicas"] for row in rows}) > 8
    limits = {limit for row in rows for limit in row["limits"]}
    assert {"ScaleDownWindow", "GPUBudget", "RequestsWait", "PartialMetrics", "Calibrating"} <= limits
