"""How much counters rose, over lives with restarts, gaps, replaced pods, partial scrapes and counters that go back a little."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision.increase import Counts, follow
from servingpool.decision.params import LONGEST_GAP

COLUMNS = 3
Row = tuple[float, ...]


@dataclass
class Life:
    """What was read of one source, and what it counted."""

    at: list[float]
    rows: list[Row]
    readable: Row
    """Counted since the first reading, less what a restart lost: what came since a figure was last read before it."""
    truth: Row
    """Counted since the first reading."""
    restarts: list[int]
    """Readings right after one."""


Event = tuple[str, tuple[int, ...], float, int, float]
"""Kind of a reading, what each figure counted before it, seconds, the column that it concerns, a share of its figure."""


def played(first: tuple[int, ...], events: list[Event]) -> Life:
    """The last reading is whole."""
    life = Life([0.0], [tuple(map(float, first))], (0.0,) * COLUMNS, (0.0,) * COLUMNS, [])
    now, shown, whole_at, readable, truth = list(first), list(first), 0.0, [0.0] * COLUMNS, [0.0] * COLUMNS
    for kind, counts, seconds, place, share in [*events, ("whole", (7,) * COLUMNS, 15.0, 0, 1.0)]:
        if kind == "restarted":
            came = tuple(min(more, old // 4) for more, old in zip(counts, shown, strict=True))
            now, shown = [0] * COLUMNS, [0] * COLUMNS
            life.restarts.append(len(life.rows))
        else:
            came = counts
        now = [old + more for old, more in zip(now, came, strict=True)]
        truth = [old + more for old, more in zip(truth, came, strict=True)]
        row, at = [float(one) for one in now], life.at[-1] + seconds
        if kind == "partial":
            row[place] = math.nan
        elif kind == "lower" and at - whole_at <= LONGEST_GAP:
            row[place] *= share
        if kind != "lower" or at - whole_at > LONGEST_GAP:
            whole_at = at
        for column, figure in enumerate(row):
            if not math.isnan(figure):
                readable[column] += now[column] - shown[column]
                shown[column] = now[column]
        life.at.append(at)
        life.rows.append(tuple(row))
    life.readable, life.truth = tuple(readable), tuple(truth)
    return life


def lives(*kinds: str) -> st.SearchStrategy[Life]:
    event = st.tuples(
        st.sampled_from(("whole", *kinds)),
        st.tuples(*[st.integers(0, 500)] * COLUMNS),
        st.floats(1.0, 400.0),
        st.integers(0, COLUMNS - 1),
        st.floats(0.3, 0.999),
    )
    return st.builds(played, st.tuples(*[st.integers(0, 1000)] * COLUMNS), st.lists(event, max_size=15))


def followed(life: Life) -> list[tuple[float, float, list[float], bool]]:
    """Begin, end and rises of each interval, and whether the source restarted in it."""
    found, before = [], Counts(life.at[0], life.rows[0])
    for at, row in zip(life.at[1:], life.rows[1:], strict=True):
        begin, (before, rise) = before, follow(before, Counts(at, row))
        if rise is not None:
            found.append((begin.at, at, rise.figures, rise.restarted))
    return found


def total(life: Life) -> Row:
    return tuple(np.sum([(0.0,) * COLUMNS, *(rises for _, _, rises, _ in followed(life))], axis=0).tolist())


@given(lives("partial", "restarted"))
def test_without_damage_the_rises_add_up_to_what_was_counted(life: Life) -> None:
    assert total(life) == pytest.approx(life.readable)


@given(lives("partial", "restarted", "lower"))
def test_a_rise_is_never_negative_and_never_more_than_the_truth(life: Life) -> None:
    assert all(rise >= 0.0 for _, _, rises, _ in followed(life) for rise in rises)
    assert all(rose <= counted + 1e-6 for rose, counted in zip(total(life), life.truth, strict=True))


def test_a_figure_that_appears_begins_its_counting_there_or_at_0_where_its_first_event_creates_it() -> None:
    before, now = Counts(0.0, (5.0, math.nan)), Counts(15.0, (6.0, 40.0))
    for first, rose in ((math.nan, [1.0, 0.0]), (0.0, [1.0, 40.0])):
        latest, rise = follow(before, now, first=first)
        assert rise is not None
        assert (latest, rise.figures) == (now, rose)


def test_a_counter_that_stays_lower_begins_anew_after_three_minutes() -> None:
    at = [0.0, 60.0, 120.0, LONGEST_GAP, LONGEST_GAP + 15.0, LONGEST_GAP + 30.0]
    life = Life(at, [(100.0,), (60.0,), (61.0,), (62.0,), (63.0,), (65.0,)], (2.0,), (2.0,), [])
    assert followed(life) == [(at[4], at[5], [2.0], False)]


def test_a_histogram_with_other_buckets_begins_anew_and_the_same_reading_counts_once() -> None:
    before = Counts(0.0, (5.0,), (1.0,))
    assert follow(before, Counts(15.0, (9.0,), (2.0,))) == (Counts(15.0, (9.0,), (2.0,)), None)
    assert follow(before, Counts(0.0, (5.0,), (1.0,))) == (before, None)


def test_a_reading_that_is_older_is_left_out_unless_the_clock_was_set_back() -> None:
    before, back = Counts(1000.0, (5.0,)), Counts(1000.0 - LONGEST_GAP - 1.0, (6.0,))
    assert follow(before, Counts(990.0, (4.0,))) == (before, None)
    assert follow(before, back) == (back, None)
