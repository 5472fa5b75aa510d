"""The page on wrong input to the command line: each of its two tables is held, and written, by one test."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[1] / "docs/records/cli-bad-input.md"
UPDATE = "SERVINGPOOL_UPDATE_DOCS"


class Told(NamedTuple):
    """One row: what is wrong, the command, and what it does."""

    case: str
    command: str
    code: int
    message: str


def hold(heading: str, rows: Iterable[Told]) -> None:
    """Fail if the table below a heading is another one; write it where that is asked for."""
    table = ["| what is wrong | `servingpool` | exit | message |", "|---|---|---|---|"]
    commands: dict[tuple[str, int, str], list[str]] = {}
    for row in rows:
        commands.setdefault((row.case, row.code, row.message.replace("|", "\\|")), []).append(f"`{row.command}`")
    table += [f"| {case} | {', '.join(alike)} | {code} | {said} |" for (case, code, said), alike in commands.items()]
    page = PAGE.read_text(encoding="utf-8")
    part = re.compile(rf"(## {re.escape(heading)}\n\n)(?:\|.*\n)*")
    assert part.search(page), f"no heading '{heading}'"
    wanted = part.sub(lambda found: found[1] + "\n".join(table) + "\n", page)
    if os.environ.get(UPDATE):
        PAGE.write_text(wanted, encoding="utf-8")
        return
    assert page == wanted, f"run this test with {UPDATE}=1"
