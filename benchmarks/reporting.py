"""The table on the terminal and the file in `results/`."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("results") / "thousand_pools.json"
PHASES = {
    "first_tick": "first tick",
    "warming": "until all are warm",
    "steady": "steady, new",
    "a_day_on": "steady, a day on",
    "idle": "idle",
}


def show(found: Mapping[str, Any]) -> None:
    """One row a figure, one column a phase."""
    table = Table(title=f"{found['pools']} pools, per tick", title_justify="left")
    table.add_column("")
    phases = [found[phase] for phase in PHASES if phase in found]
    for phase, title in PHASES.items():
        if phase in found:
            table.add_column(title, justify="right")
    for figure in phases[-1]:
        if figure == "cpu_seconds_by_part":
            for part in sorted({part for phase in phases for part in phase[figure]}):
                table.add_row(f"  CPU seconds: {part}", *(_text(phase[figure].get(part)) for phase in phases))
        else:
            table.add_row(figure.replace("_", " "), *(_text(phase.get(figure)) for phase in phases))
    console = Console()
    console.print(table)
    for name, value in found.items():
        if not isinstance(value, dict):
            console.print(f"{name.replace('_', ' ')}: {_text(value)}")


def write(name: str, found: Mapping[str, Any]) -> None:
    """Into the file, in place of an earlier run of that name."""
    held = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    held[name] = {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "python": platform.python_version(),
        **found,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(held, indent=1) + "\n")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _cpu() -> str:
    """The model's name, never the host's."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()
