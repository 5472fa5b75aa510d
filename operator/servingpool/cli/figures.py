"""How `check` and `check-profile` show figures: a line for each, and where it stands."""

from __future__ import annotations

from collections.abc import Iterable

from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.page import Found
from servingpool.catalogue.plain import plain
from servingpool.cli.output import echo


def table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows of cells in columns; the last cell is as long as it is."""
    lines = [tuple(map(plain, row)) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        echo("  ".join([*cells, line[-1]]).rstrip())


def where(found: Found, profile: EngineMetrics) -> str:
    """The series that hold a figure, with their labels; or those that were looked for."""
    if found.series is not None:
        late = ", counted at finish" if found.series.counted == "atFinish" else ""
        text = f"{found.series.name or found.series.text}{{{', '.join(found.labels)}}}"
        return f"{text}{late}" if found.samples else f"{found.series.text}: no request that counts yet"
    tried = profile.figures.get(found.figure, ())
    if not tried:
        return "the profile names no series for it"
    return "none of " + ", ".join(f"{one.text} ({one.versions})" if one.versions else one.text for one in tried)
