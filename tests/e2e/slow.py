"""Whether the machine was fast enough for a verdict on time: what a slow one makes late is no fault of the operator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

LAG = 0.5
"""Seconds at the 99th percentile by which requests may leave late: a fifth of the tightest TTFT bound. A later generator
measures itself."""
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
START_ROOM = 10.0
"""Seconds that a pod may take beyond its loading from its order until it is Ready; about 3 on a quiet machine."""


def too_slow(figures: Mapping[str, Any], status: Mapping[str, Any], load_seconds: float) -> str:
    """What was measured of a machine that was too slow; empty where it was fast enough.

    Args:
        figures: of the clients, as `LoadGenerator.summary` has them.
        status: of the pool; its cold start is that of the pods of its fleet.
        load_seconds: that an engine of it loads for.
    """
    said = []
    lag = figures["lag"]["p99"]
    if lag >= LAG:
        said.append(f"1% of the requests left {lag:.2f} s late or more, of {LAG:g} s")
    start = _seconds(status.get("coldStart"))
    if start >= load_seconds + START_ROOM:
        said.append(f"a replica took {start:g} s to start, {load_seconds:g} s of it loading")
    return "; ".join(said)


def in_time(checks: Mapping[str, bool], slow: str) -> None:
    """Judge what a slow machine can make false: all `checks`, by what each asks for.

    Raises:
        pytest.skip.Exception: one is false, and the machine was too `slow`; has both.
        AssertionError: one is false on a machine that was fast enough.
    """
    wrong = "; ".join(asked for asked, holds in checks.items() if not holds)
    if wrong and slow:
        pytest.skip(f"the machine was too slow for a verdict: {slow}. Not met: {wrong}")
    assert not wrong, wrong


def _seconds(text: str | None) -> float:
    """Of a figure in a status: `48.2ms`, `9.4s`, `1m35s`."""
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ms|s|m|h)", text or ""))
