from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from servingpool_simulation.report.drawing import Label, apart, label_lines

GAP = 0.1


@given(st.lists(st.floats(0, 1), max_size=12).map(sorted))
def test_labels_never_overlap_and_keep_their_order(places: list[float]) -> None:
    moved = apart(places, GAP)
    assert len(moved) == len(places)
    assert all(high - low >= GAP - 1e-9 for low, high in pairwise(moved))


@given(st.lists(st.integers(0, 50), unique=True, max_size=8).map(sorted))
def test_labels_that_do_not_collide_stay_where_their_lines_end(steps: list[int]) -> None:
    places = [step * GAP * 1.01 for step in steps]
    assert apart(places, GAP) == places


def test_two_that_collide_part_around_their_mean() -> None:
    low, high = apart([0.5, 0.52], GAP)
    assert (round(low, 6), round(high, 6)) == (0.46, 0.56)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_label_stands_beside_its_line_though_nobody_set_the_limits(scale: str) -> None:
    axes = Figure().subplots()
    axes.set_yscale(scale)
    axes.plot([0.0, 1.0], [0.2, 0.2])
    axes.axhline(2.0)
    label_lines(axes, [Label(2.0, "bound", "black")])
    low, high = (axes.transData.transform((0.0, edge))[1] for edge in axes.get_ylim())
    [label] = [child for child in axes.get_children() if isinstance(child, Annotation)]
    share = (axes.transData.transform((0.0, 2.0))[1] - low) / (high - low)
    assert label.xy[1] == pytest.approx(share)
