"""The table of what the scenarios measured."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .shell import run

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
OTHERS = {"What each panel of the dashboard showed": "dashboard.md"}
"""Further tables of a run that are published with it."""
KEYS = """\
Columns, and what the last one has:

- s: seconds that the scenario or its traffic took. attainment %: share of the client's requests that met the SLO.
  SLO %: the share that is asked for. GPU-seconds: seconds of all engine pods from container start to exit. lost: requests
  that ended otherwise than with a whole answer; cut: lost because the connection broke or the stream was not whole.
- ttft, tpot: seconds, or milliseconds where the name ends in ms; p50, p90, p95: percentiles. lag p99: seconds by which the
  load generator sent too late.
- most pods: the most engine pods at once. most ordered: the most replicas that were ordered. ready: numbers of Ready
  replicas in turn. loading when it came: engine pods that were loading when the burst began.
- operator attainment: attainment in the pool's status, in percent. points apart at most once fresh: the largest difference
  from the clients' attainment, each time the status changed. slo met wrongly s: the longest time for which SLOMet was
  True while the clients were more than 5 points below the SLO.
- in flight: requests in a replica; victims: the replicas that were removed. lost operator, lost kubernetes: lost requests,
  by who chose the victims.
- take over s: until another process holds the Lease. acts s, acts again s: until the operator sets replicas back to the
  pool's min. leads s, ready s: from container start. noticed s: until the pool's condition shows the fault.
  recovered s: from the repair until all works again. Other names in s: how long that took."""
"""What the columns and the keys of the last one mean: on the page of `make e2e`, to which the others link."""
LANES = "e2e-lanes.md"
"""The page with a section for each lane but `make e2e`."""


class Results:
    """Rows, written after each one: a run that breaks off leaves what it had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: list[dict[str, Any]] = []
        self._written: set[str] = set()
        self._started = time.monotonic()
        self.notes: list[str] = []
        """What a reader of the table might take amiss: paragraphs below it."""
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
        self._written.add(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def publish(self, folder: Path, name: str) -> None:
        """The table, and each other one of the run, into the project's documentation, with where they come from."""
        said = f"On {_machine()}, {datetime.now(UTC):%Y-%m-%d}, commit {_commit()}."
        if name == "e2e":
            (folder / f"{name}.md").write_text(f"# What `make {name}` measured\n\n{said}\n\n{KEYS}\n\n{self.table()}")
        else:
            page = folder / LANES
            page.write_text(with_section(page.read_text(), f"make {name}", f"{said}\n\n{self.table()}"))
        for title, file in OTHERS.items():
            if file in self._written:
                text = (self.folder / file).read_text()
                (folder / f"{name}-{file}").write_text(f"# {title}\n\n{said}\n\n{text}")

    def table(self) -> str:
        """As Markdown, with the time that it took so far, and the verdict."""
        used = [key for key in COLUMNS if any(key in row for row in self._rows)]
        lines = ["| " + " | ".join([*(COLUMNS[key] for key in used), "further"]) + " |", "|" + "---|" * (len(used) + 1)]
        for row in self._rows:
            further = ", ".join(f"{_words(key)} {_shown(row[key])}" for key in row if key not in COLUMNS)
            lines.append("| " + " | ".join([*(_shown(row.get(key, "")) for key in used), further]) + " |")
        minutes = (time.monotonic() - self._started) / 60
        last = f"In all, cluster and images included: {minutes:.1f} min. {self.verdict}".rstrip()
        return "\n".join([*lines, "", *(part for note in self.notes for part in (note, "")), last, ""])


def with_section(page: str, heading: str, text: str) -> str:
    """A page with the text below a heading of the second level replaced; at its end, where it has no such heading."""
    head, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    written = {section.partition("\n")[0]: section for section in sections}
    written[heading] = f"{heading}\n\n{text}"
    return head + "\n".join(f"## {section.rstrip()}\n" for section in written.values())


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores and {memory:.0f} GiB, with whatever else ran there"


def _commit() -> str:
    """What was tested, as git knows it: with `-dirty` where it is in no commit."""
    return run("git", "-C", Path(__file__).parent, "describe", "--always", "--dirty", "--abbrev=9").strip()


def _words(key: str) -> str:
    return key.replace("_", " ")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")
