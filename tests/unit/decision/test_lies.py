"""The matrix of lies in small: `benchmarks/control/lies.py` plays it whole."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[3] / "benchmarks" / "control")]

from lies import drawn  # noqa: E402
from lies_page import dear, worse  # noqa: E402
from lies_work import FIGURES, NOT_READ, OWNERS, WORLDS, Cell, Lie, Play, cells, measured  # noqa: E402

DRAWN = drawn([one for one in cells(full=True) if one.slug == "half" and one.span == "for ever"], 4)
DRAWN.append(Cell("half", "engine.time_to_first_token", "a jump kept", "all", "for ever"))
"""Believed, the last one orders 4.9 times the GPU-hours within these minutes."""
TOLD = [replace(DRAWN[-1], how="stuck"), Cell("half", "gateway.queue", "+30", "all", "for ever")]


def test_each_figure_that_is_read_is_in_the_matrix() -> None:
    assert set(FIGURES) == {f"{owner}.{one.name}" for owner, of in OWNERS.items() for one in fields(of)} - NOT_READ


@pytest.mark.parametrize("cell", DRAWN + TOLD, ids=lambda one: one.name)
def test_a_lie_of_ten_minutes_takes_neither_the_fleet_nor_the_clients(cell: Cell) -> None:
    found = measured(Play(WORLDS[cell.slug], Lie(cell.figure, cell.how, cell.who), 600.0, warm=300.0, behind=300.0))
    assert not dear(found)
    assert not worse(found)
    assert found["told"] is not None or cell not in TOLD
