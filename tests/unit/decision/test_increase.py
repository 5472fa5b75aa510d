"""How much counters rose, over lives with restarts, gaps, replaced pods, partial scrapes and counters that go back a little."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision.increase import LONGEST, Change, Counts, change, follow, intervals, risen

COLUMNS = 3
Row = tuple[float, ...]


@dataclass
class Life:
    """What was read of one source, and what it counted."""

    at: list[float]
    rows: list[Row]
    counted: Row
    """Since the first reading, less what came between the last reading before a restart and the restart."""


@st.composite
def lives(draw, *, damage: bool) -> Life:
    """A source whose first and last readings are whole. `damage`: some readings are a little lower than the truth."""
    now, shown = draw(st.lists(st.integers(0, 1000), min_size=COLUMNS, max_size=COLUMNS)), 0.0
    life = Life([0.0], [tuple(map(float, now))], (0.0,) * COLUMNS)
    kinds = st.sampled_from(["whole", "whole", "partial", "restarted", "lower" if damage else "whole"])
    for kind in [*draw(st.lists(kinds, max_size=20)), "whole"]:
        before, came = now, draw(st.lists(st.integers(0, 500), min_size=COLUMNS, max_size=COLUMNS))
        if kind == "restarted":
            now = came = [draw(st.integers(0, old // 4)) for old in before]
        else:
            now = [old + more for old, more in zip(before, came, strict=True)]
        row = [float(one) for one in now]
        at = life.at[-1] + draw(st.floats(1.0, 400.0))
        if kind == "partial":
            row[draw(st.integers(0, COLUMNS - 1))] = math.nan
        elif kind == "lower" and at - shown <= LONGEST:
            place = draw(st.integers(0, COLUMNS - 1))
            row[place] *= draw(st.floats(0.3, 0.999))
        else:
            shown = at
        life.at.append(at)
        life.rows.append(tuple(row))
        life.counted = tuple(old + more for old, more in zip(life.counted, came, strict=True))
    return life


def followed(life: Life) -> list[tuple[float, float, list[float], bool]]:
    """Begin, end and rises of each interval, and whether the source restarted in it."""
    found, before = [], None
    for at, row in zip(life.at, life.rows, strict=True):
        begin, (before, rise) = before, follow(before, Counts(at, row))
        if begin is not None and rise is not None:
            found.append((begin.at, at, rise.figures, rise.restarted))
    return found


def total(life: Life) -> Row:
    return tuple(np.sum([rises for _, _, rises, _ in followed(life)], axis=0).tolist())


@given(lives(damage=False))
def test_without_damage_the_rises_add_up_to_what_was_counted(life: Life) -> None:
    assert total(life) == pytest.approx(life.counted)


@given(lives(damage=True))
def test_a_rise_is_never_negative_and_never_more_than_the_truth(life: Life) -> None:
    assert all(rise >= 0.0 for _, _, rises, _ in followed(life) for rise in rises)
    assert all(rose <= counted + 1e-6 for rose, counted in zip(total(life), life.counted, strict=True))


@given(lives(damage=True))
def test_many_readings_at_once_are_compared_by_the_same_rule(life: Life) -> None:
    found = intervals(np.array(life.at), np.array(life.rows), range(COLUMNS))
    at = np.array(life.at)
    pairs = zip(at[found.begin].tolist(), at[found.end].tolist(), found.rises, found.restarted, strict=True)
    alone = followed(life)
    assert [(begin, end, bool(restarted)) for begin, end, _, restarted in pairs] == [
        (begin, end, restarted) for begin, end, _, restarted in alone
    ]
    assert found.rises == pytest.approx(np.array([rises for _, _, rises, _ in alone]))


@given(st.lists(lives(damage=False), min_size=2, max_size=4))
def test_pods_that_replace_each_other_add_up_and_none_brings_what_it_counted_before_it_was_read(
    lives: list[Life],
) -> None:
    latest: dict[int, Counts] = {}
    rose = np.zeros(COLUMNS)
    for pod, life in enumerate(lives):
        for at, row in zip(life.at, life.rows, strict=True):
            latest[pod], rise = follow(latest.get(pod), Counts(at, row))
            rose += 0.0 if rise is None else rise.figures
    assert rose == pytest.approx(np.sum([life.counted for life in lives], axis=0))


@given(lives(damage=False), st.data())
def test_lost_readings_between_two_restarts_change_no_sum(life: Life, data: st.DataObject) -> None:
    restarts = [
        place for place, (old, new) in enumerate(pairwise(life.rows), 1) if change(old, new) is not Change.CONTINUED
    ]
    partial = [place for place, row in enumerate(life.rows) if any(map(math.isnan, row))]
    needed = {0, len(life.rows) - 1, *restarts, *(place - 1 for place in restarts), *(one - 1 for one in partial)}
    places = [place for place in range(len(life.rows)) if place in needed or data.draw(st.booleans())]
    kept = Life([life.at[one] for one in places], [life.rows[one] for one in places], life.counted)
    assert total(kept) == pytest.approx(life.counted)


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ((8.0, 8.0), (8.0, 9.0), Change.CONTINUED),
        ((8.0, 8.0), (2.0, 1.0), Change.RESTARTED),
        ((8.0, 0.0), (2.0, 5.0), Change.RESTARTED),
        ((8.0, 8.0), (2.1, 2.0), Change.DAMAGED),
        ((8.0, 8.0), (7.999, 9.0), Change.DAMAGED),
        ((math.nan, 8.0), (3.0, 8.0), Change.CONTINUED),
        ((8.0, 8.0), (math.nan, 2.0), Change.RESTARTED),
    ],
)
def test_a_restart_leaves_a_quarter_at_most_and_less_of_a_fall_is_damage(before: Row, now: Row, found: Change) -> None:
    assert change(before, now) is found


def test_a_figure_that_appears_begins_its_counting_there_or_at_0_where_its_first_event_creates_it() -> None:
    before, now = Counts(0.0, (5.0, math.nan)), Counts(15.0, (6.0, 40.0))
    for first, rose in ((math.nan, [1.0, 0.0]), (0.0, [1.0, 40.0])):
        latest, rise = follow(before, now, first=first)
        assert rise is not None
        assert (latest, rise.figures) == (now, rose)


def test_what_restarted_without_a_figure_has_not_counted_it_and_a_table_says_the_same() -> None:
    life = Life([0.0, 15.0, 30.0], [(500.0, 500.0, 9.0), (3.0, math.nan, 0.0), (4.0, 7.0, 0.0)], (4.0, 7.0, 0.0))
    assert total(life) == life.counted
    found = intervals(np.array(life.at), np.array(life.rows), range(COLUMNS))
    assert tuple(found.rises.sum(axis=0)) == life.counted


def test_a_counter_that_stays_lower_begins_anew_after_three_minutes() -> None:
    at = [0.0, 60.0, 120.0, LONGEST, LONGEST + 15.0, LONGEST + 30.0]
    life = Life(at, [(100.0,), (60.0,), (61.0,), (62.0,), (63.0,), (65.0,)], (2.0,))
    assert followed(life) == [(at[4], at[5], [2.0], False)]
    found = intervals(np.array(at), np.array(life.rows), [0])
    assert (found.begin.tolist(), found.end.tolist(), found.rises.tolist()) == ([4], [5], [[2.0]])


def test_a_histogram_with_other_buckets_begins_anew_and_the_same_reading_counts_once() -> None:
    before = Counts(0.0, (5.0,), (1.0,))
    assert follow(before, Counts(15.0, (9.0,), (2.0,))) == (Counts(15.0, (9.0,), (2.0,)), None)
    assert follow(before, Counts(0.0, (5.0,), (1.0,))) == (before, None)


def test_a_reading_that_is_older_is_left_out_unless_the_clock_was_set_back() -> None:
    before, back = Counts(1000.0, (5.0,)), Counts(1000.0 - LONGEST - 1.0, (6.0,))
    assert follow(before, Counts(990.0, (4.0,))) == (before, None)
    assert follow(before, back) == (back, None)


def test_two_readings_that_cannot_be_compared_rise_by_nothing() -> None:
    assert (risen((8.0,), (7.0,)), risen((8.0,), (2.0,)), risen((8.0,), (9.0,))) == ([0.0], [2.0], [1.0])
