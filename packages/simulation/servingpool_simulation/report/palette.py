"""One look for each policy, told apart without colour too: dash, marker and label differ as well."""

from __future__ import annotations

from dataclasses import dataclass

from servingpool_simulation.demo import Comparison, Entry, Role

# Okabe and Ito's palette, made for every common kind of colour blindness.
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#00795A", "#E69F00"
INK, MUTED, FAINT = "#1b1f24", "#57606a", "#d0d7de"
GRID, AREA, PROMPTS, OUTPUT = "#eaeef2", "#afb8c1", "#ccd3da", "#9a6700"
STATIC, TUNED = "#6e7781", "#9a5b2f"
_THEMED = {
    INK: "text",
    MUTED: "quiet",
    FAINT: "line",
    GRID: "grid",
    AREA: "mark",
    PROMPTS: "line",
    "#ffffff": "page",
    BLUE: "c1",
    GREEN: "c2",
    VERMILION: "c3",
    ORANGE: "c5",
    OUTPUT: "c5",
    STATIC: "quiet",
    TUNED: "c3",
}
"""What each colour is called in colours.css."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one policy is drawn."""

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    marker: str
    width: float = 1.3


_BASELINES = (Look(VERMILION, (0, (5.0, 1.5)), "s"), Look(GREEN, (0, (1.2, 1.2)), "^"))
_LOOKS = {
    Role.OURS: Look(BLUE, "-", "o", 2.2),
    Role.HINDSIGHT: Look(MUTED, (0, (1.0, 2.0)), "D", 1.1),
    Role.PEAK: Look(MUTED, (0, (6.0, 3.0)), "P", 1.1),
}


def looks(comparison: Comparison) -> dict[Entry, Look]:
    """Of every entry; baselines take theirs in the order of the table."""
    baselines = [entry for entry in comparison.entries if entry.role is Role.BASELINE]
    found = {entry: _LOOKS[entry.role] for entry in comparison.entries if entry.role is not Role.BASELINE}
    return found | dict(zip(baselines, _BASELINES, strict=True))


def themed(drawing: str) -> str:
    """A drawing within a report: its colours become those of the page, which has two themes."""
    for color, name in _THEMED.items():
        drawing = drawing.replace(color.lower(), f"var(--{name})")
    return drawing
