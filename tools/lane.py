"""`lane.py LANE COMMAND...` runs a lane of the Makefile; PUBLISH=1 notes one that passes in docs/records/lanes.md.

LANE_NOTE is added to its result: how much of the lane was run, where that varies.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "records" / "lanes.md"
CLOSING = re.compile(r"=+ (.*\b(?:passed|failed|skipped|error).*) in [\d.]+s.*")
"""The last line of pytest."""
COVERED = re.compile(r"TOTAL\s.*\s([\d.]+%)")
"""The last line of coverage."""


@dataclass(frozen=True, slots=True)
class Row:
    """A lane's line in the page."""

    lane: str
    commit: str
    day: str
    minutes: str
    result: str

    def __str__(self) -> str:
        """As Markdown."""
        return f"| {' | '.join(astuple(self))} |".replace("  ", " ")


def main(lane: str, command: Sequence[str]) -> int:
    """Exit status of the command."""
    if os.environ.get("PUBLISH") != "1":
        os.execvp(command[0], list(command))  # noqa: S606, what the Makefile says
    commit, started = tested_commit(), time.monotonic()
    code, lines = run(command)
    result = closing(lines)
    if code == 0 and passed(result):
        minutes = f"{(time.monotonic() - started) / 60:.1f}"
        told = ", ".join(part for part in (result, os.environ.get("LANE_NOTE", "")) if part)
        row = Row(lane, commit, f"{datetime.now(UTC):%Y-%m-%d}", minutes, told)
        PAGE.write_text(with_row(PAGE.read_text(), row))
    else:
        sys.stderr.write(f"{lane} did not pass: its line in {PAGE.relative_to(ROOT)} stays as it is\n")
    return code


def run(command: Sequence[str]) -> tuple[int, list[str]]:
    """Show what a command writes, as it comes; its exit status and its lines."""
    lines, environment = [], os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(  # noqa: S603, what the Makefile says
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.rstrip())
    return process.returncode, lines


def closing(lines: Iterable[str]) -> str:
    """What pytest and coverage say at the end; empty where a lane runs neither."""
    told, covered = "", ""
    for line in lines:
        if found := CLOSING.fullmatch(line):
            told = found[1]
        elif found := COVERED.fullmatch(line):
            covered = f"coverage {found[1]}"
    return ", ".join(part for part in (told, covered) if part)


def passed(result: str) -> bool:
    """Whether an exit status of 0 means that something ran: pytest has it for a lane of skipped tests too."""
    return "skipped" not in result or "passed" in result


def with_row(page: str, row: Row) -> str:
    """The page with this line in place of the lane's last one, else at the end of the table."""
    lines = page.splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith(f"| {row.lane} |")]
    if places:
        lines[places[0]] = str(row)
    else:
        last = max(place for place, line in enumerate(lines) if line.startswith("|"))
        lines.insert(last + 1, str(row))
    return "\n".join(lines) + "\n"


def tested_commit() -> str:
    """The checked-out commit, with `-dirty` where anything but docs differs from it: lanes write into docs."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603, S607

    dirty = "-dirty" if git("status", "--porcelain", "--", ".", ":!docs") else ""
    return git("rev-parse", "--short=9", "HEAD") + dirty


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
