from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from servingpool_simulation.demo import Comparison
from servingpool_simulation.report.terminal import summary

Imagine = Callable[..., Comparison]


def printed(comparison: Comparison) -> str:
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(summary(comparison))
    return out.getvalue()


def test_nothing_is_cut_at_80_columns_even_with_a_price(imagine: Imagine) -> None:
    text = printed(imagine(hpa=(0.9999, 123.4), ours=(0.9499, 110.0)))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_held_and_missed_are_told_without_colour(imagine: Imagine) -> None:
    lines = printed(imagine(hpa=(0.99, 8.0), ours=(0.97, 10.0))).splitlines()
    assert any(line.startswith("HPA on running") and "99.00% held" in line for line in lines)
    assert any(line.startswith("llm-d slo-aware") and "50.0% MISSED" in line for line in lines)
    assert "did so for less" in " ".join(lines)
