"""When the windows of a schedule are, whatever clocks do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from servingpool.api.batch import FinishBy
from servingpool.api.schedule import WEEK, Schedule, occurrences

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def schedule(zone: str = "UTC", start: str = "09:00", end: str = "17:00", **more: Any) -> Schedule:
    return Schedule.read({"name": "peak", "timeZone": zone, "start": start, "end": end, "min": 4} | more)


def at(text: str, zone: str) -> float:
    """Unix seconds of a local time, with its offset where the time comes twice."""
    read = datetime.fromisoformat(text)
    return (read if read.tzinfo else read.replace(tzinfo=ZoneInfo(zone))).timestamp()


def windows(one: Schedule, begin: str, end: str) -> list[tuple[str, str]]:
    """Of local days, in local time with the offset."""
    zone = one.time_zone
    return [
        tuple(datetime.fromtimestamp(edge, ZoneInfo(zone)).isoformat(timespec="minutes") for edge in found[:2])  # type: ignore[misc]
        for found in occurrences([one], at(begin, zone), at(end, zone))
    ]


def test_a_window_a_day() -> None:
    assert windows(schedule(), "2026-11-23T00:00", "2026-11-24T23:59") == [
        ("2026-11-23T09:00+00:00", "2026-11-23T17:00+00:00"),
        ("2026-11-24T09:00+00:00", "2026-11-24T17:00+00:00"),
    ]


def test_a_window_across_midnight_belongs_to_the_day_on_which_it_starts() -> None:
    friday_night = schedule(BERLIN, "22:00", "06:00", days=["Fri"])
    assert windows(friday_night, "2026-11-16T00:00", "2026-11-22T23:59") == [
        ("2026-11-20T22:00+01:00", "2026-11-21T06:00+01:00")
    ]


def test_what_began_yesterday_is_found_today() -> None:
    night = schedule(BERLIN, "22:00", "06:00")
    assert windows(night, "2026-11-21T02:00", "2026-11-21T03:00") == [
        ("2026-11-20T22:00+01:00", "2026-11-21T06:00+01:00")
    ]


def test_without_times_it_is_the_whole_day() -> None:
    weekend = Schedule.read({"name": "weekend", "timeZone": BERLIN, "days": ["Sat", "Sun"], "max": 2})
    assert windows(weekend, "2026-11-20T00:00", "2026-11-23T12:00") == [
        ("2026-11-21T00:00+01:00", "2026-11-22T00:00+01:00"),
        ("2026-11-22T00:00+01:00", "2026-11-23T00:00+01:00"),
    ]


def test_days_are_those_of_the_zone() -> None:
    """At 23:00 on Sunday in UTC it is Monday in Tokyo."""
    monday = schedule("Asia/Tokyo", "08:00", "09:00", days=["Mon"])
    assert [
        found.begin for found in occurrences([monday], at("2026-11-22T22:00", "UTC"), at("2026-11-23T01:00", "UTC"))
    ] == [at("2026-11-22T23:00", "UTC")]


def test_a_deadline_by_the_clock_follows_summer_time_and_its_days() -> None:
    mondays = FinishBy.read({"time": "06:00", "timeZone": BERLIN, "days": ["Mon"]})
    around = at("2026-10-19T06:00", BERLIN), at("2026-10-19T06:00", BERLIN) + 7 * 86_400 + 3600
    assert mondays.deadlines(*[at("2026-10-24T12:00", BERLIN)] * 2) == around


@pytest.mark.parametrize(
    ("zone", "spring", "offsets"),
    [(BERLIN, "2026-03-29", ("+01:00", "+02:00")), (NEW_YORK, "2026-03-08", ("-05:00", "-04:00"))],
)
def test_a_skipped_hour_makes_the_night_shorter_and_a_skipped_time_is_the_moment_of_the_change(
    zone: str, spring: str, offsets: tuple[str, str]
) -> None:
    """Clocks go from 02:00 to 03:00."""
    winter, summer = offsets
    day = (spring + "T00:00", spring + "T12:00")
    eve = (datetime.fromisoformat(spring) - timedelta(days=1)).date().isoformat()
    night = schedule(zone, "22:00", "06:00")
    (begin, end), *_ = windows(night, *day)
    assert (begin, end) == (f"{eve}T22:00{winter}", f"{spring}T06:00{summer}")
    assert at(end, zone) - at(begin, zone) == 7 * 3600
    assert windows(schedule(zone, "02:30", "05:00"), *day) == [(f"{spring}T03:00{summer}", f"{spring}T05:00{summer}")]
    assert windows(schedule(zone, "01:00", "02:30"), *day) == [(f"{spring}T01:00{winter}", f"{spring}T03:00{summer}")]
    assert windows(schedule(zone, "02:15", "02:45"), *day) == [], "clocks never read a time in it"
    assert windows(schedule(zone, "02:15", "03:15"), *day) == [(f"{spring}T03:00{summer}", f"{spring}T03:15{summer}")]


@pytest.mark.parametrize(
    ("zone", "autumn", "offsets"),
    [(BERLIN, "2026-10-25", ("+02:00", "+01:00")), (NEW_YORK, "2026-11-01", ("-04:00", "-05:00"))],
)
def test_an_hour_that_comes_twice_makes_the_night_longer_and_the_first_of_two_times_counts(
    zone: str, autumn: str, offsets: tuple[str, str]
) -> None:
    """In Berlin 02:00 to 03:00 comes twice, in New York 01:00 to 02:00."""
    summer, winter = offsets
    twice = "02:30" if zone == BERLIN else "01:30"
    day = (autumn + "T00:00", autumn + "T12:00")
    (begin, end), *_ = windows(schedule(zone, "22:00", "06:00"), *day)
    assert end == f"{autumn}T06:00{winter}"
    assert at(end, zone) - at(begin, zone) == 9 * 3600
    assert windows(schedule(zone, twice, "06:00"), *day) == [(f"{autumn}T{twice}{summer}", f"{autumn}T06:00{winter}")]
    assert windows(schedule(zone, "00:15", twice), *day) == [(f"{autumn}T00:15{summer}", f"{autumn}T{twice}{summer}")]


def test_working_hours_stay_at_the_same_local_time_all_year() -> None:
    year = windows(schedule(NEW_YORK, days=["Mon"]), "2026-01-01T00:00", "2026-12-31T23:59")
    assert len(year) == 52
    assert {(begin[11:16], end[11:16]) for begin, end in year} == {("09:00", "17:00")}
    assert {begin[16:] for begin, _ in year} == {"-05:00", "-04:00"}


@given(
    now=st.integers(1_767_225_600, 1_798_761_600),  # all of 2026
    zone=st.sampled_from([BERLIN, NEW_YORK, "UTC", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Kolkata"]),
    start=st.times(),
    end=st.times(),
    days=st.sets(st.sampled_from(WEEK), min_size=1),
)
def test_a_moment_is_in_a_window_if_the_local_clock_says_so(now, zone, start, end, days) -> None:  # type: ignore[no-untyped-def]
    """But for a day after a change of clocks, where a time is skipped or comes twice."""
    one = schedule(zone, start.strftime("%H:%M"), end.strftime("%H:%M"), days=sorted(days))
    local = datetime.fromtimestamp(now, ZoneInfo(zone))
    around = {datetime.fromtimestamp(now + hours * 3600, ZoneInfo(zone)).utcoffset() for hours in (-26, -2, 2)}
    assume(around == {local.utcoffset()})
    clock, today = local.strftime("%H:%M"), WEEK[local.weekday()]
    yesterday = WEEK[local.weekday() - 1]
    if one.start < one.end:
        expected = today in days and one.start <= clock < one.end
    else:
        expected = (today in days and clock >= one.start) or (yesterday in days and clock < one.end)
    found = any(window.begin <= now < window.end for window in occurrences([one], now, now + 1.0))
    assert found == expected
