import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.api import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2.0), ("100ms", 0.1), ("1m30s", 90.0), ("1h", 3600.0), ("0s", 0.0), ("1s500ms", 1.5), ("30s1m", 90.0)],
)
def test_reads_what_people_write(text: str, seconds: float) -> None:
    assert duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "2", "s", "1.5s", "-1s", " 1s", "1s\n", "1 s", "1d", "1S", "1234567s", "٢s"])
def test_refuses_what_go_or_cel_would_read_otherwise(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration.parse(text)


@given(st.integers(min_value=0, max_value=999_999_000))
def test_what_is_written_reads_back(milliseconds: int) -> None:
    assert round(duration.parse(duration.write(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (120, "2m"), (5400, "1h30m"), (1.5, "1s500ms")])
def test_writes_the_shortest_form(seconds: float, text: str) -> None:
    assert duration.write(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0484, "48.4ms"), (0.0004, "0.4ms"), (0.9999, "1s"), (1.3249, "1.32s"), (59.96, "1m"), (95.2, "1m35s")],
)
def test_brief_has_three_digits(seconds: float, text: str) -> None:
    assert duration.brief(seconds) == text
