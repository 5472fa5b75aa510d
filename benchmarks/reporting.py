"""What a run found: a table on the terminal, figures in `build/benchmarks`, a section of the published page."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from stated import Kept, stamped, tables

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "build" / "benchmarks" / "thousand_pools.json"
"""For machines; not in git."""
PAGE = ROOT / "docs" / "benchmarks" / "thousand-pools.md"
PARTS = "cpu_seconds_by_part"
PHASES = {
    "first_tick": "first tick",
    "warming": "until all are warm",
    "steady": "steady, new",
    "a_day_on": "steady, a day on",
    "idle": "idle",
}
INTRODUCTION = """\
# The loop with a thousand pools

Written by `make bench`: one section per kind of run, with the date when it was last made. The commit above is of the
sections with its day. Figures are means over the ticks of a phase. `benchmarks/README.md` says what is real in these
runs.
"""


def show(name: str, found: Mapping[str, Any]) -> None:
    """One row a figure, one column a phase."""
    table = Table(title=f"{name}, per tick", title_justify="left")
    header, rows = _rows(found)
    for index, title in enumerate(header):
        table.add_column(title, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table)
    for line in _single(found):
        console.print(line)


def write(name: str, found: Mapping[str, Any]) -> None:
    """Into figures and page, in place of an earlier run of that name."""
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "python": platform.python_version(),
        **found,
    }
    held = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(held | {name: found}, indent=1) + "\n")
    page = with_section(PAGE.read_text(), name, found)
    kept = replace(Kept.load(PAGE.stem), figures=tables(page))
    kept.save(PAGE.stem)
    PAGE.write_text(stamped(page, kept))


def with_section(page: str, name: str, found: Mapping[str, Any]) -> str:
    """The page with this run's section in place of its last one, else at the end."""
    _, *sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    by_name = {section.splitlines()[0].removeprefix("## "): section.strip() for section in sections}
    header, rows = _rows(found)
    table = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    lines = [f"## {name}", "", "; ".join(_single(found)) + ".", "", *(f"| {' | '.join(row)} |" for row in table)]
    return "\n\n".join([INTRODUCTION.strip(), *(by_name | {name: "\n".join(lines)}).values()]) + "\n"


def _rows(found: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Header and rows of what was measured in each phase."""
    phases = [found[phase] for phase in PHASES if phase in found]
    rows: list[list[str]] = []
    for figure in phases[-1]:
        if figure == PARTS:
            parts = sorted({part for phase in phases for part in phase[figure]})
            rows += [[f"CPU seconds: {part}", *(_text(phase[figure].get(part)) for phase in phases)] for part in parts]
        else:
            rows.append([figure.replace("_", " "), *(_text(phase.get(figure)) for phase in phases)])
    return ["", *(title for phase, title in PHASES.items() if phase in found)], rows


def _single(found: Mapping[str, Any]) -> list[str]:
    """Figures of the whole run."""
    return [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in found.items() if not isinstance(value, dict)]


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _cpu() -> str:
    """The model's name, never the host's."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()
