"""The table of what the scenarios measured."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

COLUMNS = {
    "scenario": "scenario",
    "outcome": "what happened",
    "seconds": "s",
    "attainment": "attainment %",
    "slo": "SLO %",
    "gpu_seconds": "GPU-seconds",
    "requests": "requests",
    "lost": "lost",
}
"""Key and heading of the columns; whatever else a row has goes into a last one."""


class Results:
    """Rows, written after each one: a run that breaks off leaves what it had."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[dict[str, Any]] = []
        self._started = time.monotonic()
        self.verdict = ""
        """What is said of the run at its end, in whole sentences."""

    def add(self, *, scenario: str, **columns: Any) -> None:
        """One row. The keys of `COLUMNS` have columns of their own."""
        self._rows.append({"scenario": scenario, **columns})
        self.save()

    def save(self) -> None:
        """The table as Markdown, and the rows as JSON."""
        self.write("results.json", json.dumps(self._rows, indent=1) + "\n")
        self.write("results.md", self.table())

    def write(self, name: str, text: str) -> None:
        """Another file beside them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(text)

    def table(self) -> str:
        """As Markdown, with the time that it took so far, and the verdict."""
        used = [key for key in COLUMNS if any(key in row for row in self._rows)]
        lines = [
            "| " + " | ".join([*(COLUMNS[key] for key in used), "further"]) + " |",
            "|" + "---|" * (len(used) + 1),
        ]
        for row in self._rows:
            further = ", ".join(f"{_words(key)} {_shown(row[key])}" for key in row if key not in COLUMNS)
            lines.append("| " + " | ".join([*(_shown(row.get(key, "")) for key in used), further]) + " |")
        minutes = (time.monotonic() - self._started) / 60
        last = f"In all, cluster and images included: {minutes:.1f} min. {self.verdict}".rstrip()
        return "\n".join([*lines, "", last, ""])


def _words(key: str) -> str:
    return key.replace("_", " ")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")
