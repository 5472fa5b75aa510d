"""Decisions of whole days are played again. Those that moved are told in a warning, and fail nothing: see `make guard`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from .recorded import moved, play, read, told
from .stories import RECORDINGS

STORIES = [(name, story) for name, stories in RECORDINGS.items() for story in stories]


class Played:
    """All stories together."""

    def __init__(self) -> None:
        self.pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.count = 0


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    """Its last word is in the summary of pytest."""
    played = Played()
    yield played
    if played.pairs:
        warnings.warn(told(played.pairs, played.count), stacklevel=1)


@pytest.mark.parametrize(("name", "story"), STORIES)
def test_every_decision_is_made_again(name: str, story: str, played: Played) -> None:
    """Where one is to move: `python -m tests.unit.recordings.recorded` writes them."""
    kept = [row for row in read(name) if row["story"] == story]
    played.pairs += moved(kept, play(name, story))
    played.count += len(kept)


def test_what_moves_is_told_and_what_is_missing_fails() -> None:
    kept = read("plain")[:100]
    further = {**kept[50], "replicas": kept[50]["replicas"] + 3}
    changed = [*kept[:20], {**kept[20], "reason": "another"}, *kept[21:50], further, *kept[51:]]
    line = told(moved(kept, changed), len(kept))
    replicas = kept[50]["replicas"]
    assert line.startswith(f"2 of 100 decisions moved, the largest from {replicas} replicas (")
    assert f" to {replicas + 3} replicas (" in line
    closely = [{**row, "need": row["need"] and row["need"] * (1.0 + 1e-12)} for row in kept]
    assert told(moved(kept, closely), 100) == "none of 100 decisions moved"
    with pytest.raises(AssertionError, match="99 of the same"):
        moved(kept, kept[:99])


def test_there_are_enough_of_them() -> None:
    rows = [row for name in RECORDINGS for row in read(name)]
    assert len(rows) >= 3000
    assert len({row["replicas"] for row in rows}) > 8
    limits = {limit for row in rows for limit in row["limits"]}
    assert {"ScaleDownWindow", "GPUBudget", "RequestsWait", "PartialMetrics", "Calibrating"} <= limits
