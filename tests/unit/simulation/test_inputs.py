"""A past that is like a trace and is not the trace."""

from __future__ import annotations

import numpy as np
import pytest

from servingpool_simulation.inputs import past_like
from servingpool_simulation.traces import azure2023_conv, poisson


def test_a_past_is_like_the_first_hour_in_another_order() -> None:
    trace = azure2023_conv()
    past = past_like(trace, 3 * 3600.0, seed=1)
    assert past is not None
    assert past.duration == 3 * 3600.0
    assert len(past) / past.duration == pytest.approx(len(trace) / trace.duration, rel=0.1)
    first = past.between(0.0, trace.duration)
    shuffled, original = (np.histogram(each.arrival, bins=58, range=(0.0, 3480.0))[0] for each in (first, trace))
    assert abs(np.corrcoef(shuffled, original)[0, 1]) < 0.5


def test_a_short_trace_gives_shorter_blocks_and_one_below_a_minute_no_past() -> None:
    three_minutes = poisson("short", (2.0,), 200.0, prompt=100, output=10)
    past = past_like(three_minutes, 600.0)
    assert past is not None
    assert past.duration == 600.0
    assert past_like(poisson("shorter", (2.0,), 50.0, prompt=100, output=10), 600.0) is None
    assert past_like(three_minutes, 0.0) is None
