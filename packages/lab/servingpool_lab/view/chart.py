"""Charts of block characters, on one time axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from rich.style import Style
from rich.text import Text

_EIGHTHS = " ▁▂▃▄▅▆▇█"


STRETCH = 4
"""Columns that one value takes at most: a young chart is not a sliver, and not a wall either."""


def fit(values: Sequence[float], width: int, reduce: Callable[[Sequence[float]], float]) -> list[float]:
    """The values over `width` columns, or STRETCH columns each if that is fewer; what shares a column is reduced."""
    count = len(values)
    columns = min(width, STRETCH * count)
    edges = [column * count // columns for column in range(columns + 1)] if columns > 0 else []
    return [reduce(values[begin : max(end, begin + 1)]) for begin, end in pairwise(edges)]


def latest(values: Sequence[float]) -> float:
    """The last one."""
    return values[-1]


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def sparkline(values: Sequence[float], style: str) -> Text:
    """One line; the highest value is a full block, 0 a blank."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return Text(" " * len(values))
    return Text("".join(_EIGHTHS[max(1, round(8 * value / highest)) if value > 0 else 0] for value in values), style)


def stacked(
    lower: Sequence[float],
    upper: Sequence[float],
    *,
    styles: tuple[str, str],
    height: int,
    top: float,
    mark: float | None,
) -> list[Text]:
    """Columns of `lower` with `upper` on top of it, as `height` lines from the top down; `top` is a full column.

    `mark` is a level at which a line runs through what is empty.
    """
    unit = top / height
    lines = []
    for row in range(height - 1, -1, -1):
        line = Text()
        for below, above in zip(lower, upper, strict=True):
            line.append(*_cell(below / unit - row, (below + above) / unit - row, styles, mark and mark / unit - row))
        lines.append(line)
    return lines


def _cell(lower: float, both: float, styles: tuple[str, str], mark: float | None) -> tuple[str, Style]:
    """One character: how far each part reaches into it, in cells."""
    first, second = (Style.parse(style) for style in styles)
    if lower >= 1:
        return "█", first
    if both <= 0:
        return _line(mark), Style(color="bright_black")
    if lower <= 0:
        return _EIGHTHS[max(1, min(8, round(8 * both)))], second
    if both <= lower:
        return _EIGHTHS[max(1, round(8 * lower))], first
    # Two colours in one cell: the block is the lower part, the background the upper.
    return _EIGHTHS[max(1, round(8 * lower))], Style(color=first.color, bgcolor=second.color)


def _line(mark: float | None) -> str:
    if mark is None or not 0 <= mark < 1:
        return " "
    return "▁" if mark < 0.25 else "─"


def clock(seconds: float) -> str:
    """`4:05`, `1:04:05`."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
