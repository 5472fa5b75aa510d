from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from servingpool_lab.emulator.replay import Arrival, replay
from servingpool_simulation.traces import Trace

TRACE = Trace("three", np.array([0.0, 4.0, 10.0]), np.array([1, 2, 3]), np.array([4, 5, 6]), duration=12.0)


def first(count: int, begin: float, offset: float = 0.0) -> list[Arrival]:
    return list(islice(replay(TRACE, begin, offset), count))


def test_requests_come_at_the_recorded_spacing_from_the_beginning() -> None:
    assert first(3, begin=100.0) == [Arrival(100.0, 1, 4), Arrival(104.0, 2, 5), Arrival(110.0, 3, 6)]


def test_begins_anew_when_the_trace_is_over() -> None:
    assert [arrival.at for arrival in first(7, begin=0.0)] == [0.0, 4.0, 10.0, 12.0, 16.0, 22.0, 24.0]


def test_begins_amid_the_trace_and_keeps_its_length() -> None:
    assert [(a.at, a.prompt_tokens) for a in first(5, begin=50.0, offset=5.0)] == [
        (55.0, 3),
        (57.0, 1),
        (61.0, 2),
        (67.0, 3),
        (69.0, 1),
    ]


@pytest.mark.parametrize("offset", [-1.0, 12.0])
def test_refuses_an_offset_outside_the_trace_before_anything_starts(offset: float) -> None:
    with pytest.raises(ValueError, match="0 to below 12 s, the trace's length"):
        replay(TRACE, 0.0, offset)


def test_refuses_an_empty_trace() -> None:
    nothing = np.zeros(0)
    empty = Trace("none", nothing, nothing.astype(np.int64), nothing.astype(np.int64), duration=0.0)
    with pytest.raises(ValueError, match="no requests"):
        replay(empty, 0.0)
