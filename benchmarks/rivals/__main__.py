"""`python -m rivals`: run it, and write docs/benchmarks/rivals.md and its record, rivals.json beside it."""

from __future__ import annotations

import argparse
from pathlib import Path

import build_keda
from rivals.page import page
from rivals.record import Record
from rivals.run import Rivals
from rivals.scene import MINUTES, STAGES
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import LAB

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks" / "rivals.md"
RECORD = PAGE.with_suffix(".json")
DIRECTORY = ROOT / "build" / "rivals"


def main() -> int:
    """1 where something went wrong in the run; the page says what."""
    parser = argparse.ArgumentParser(prog="python -m rivals", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of traffic")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for the run's files")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--without-keda", metavar="WHY", default="", help="leave its rivals out; the page says why")
    parser.add_argument("--page-only", action="store_true", help="run nothing: write the page from the record")
    asked = parser.parse_args()
    if asked.minutes < len(STAGES):
        parser.error(f"a stage lasts a minute or more, so minutes must be at least {len(STAGES)}")
    if not asked.page_only:
        if not asked.without_keda:
            build_keda.build()
        asked.directory.mkdir(parents=True, exist_ok=True)
        run = Rivals(asked.minutes, asked.directory.absolute(), ensure_binaries(*LAB), asked.without_keda)
        run.run().write(asked.record)
    record = Record.read(asked.record)
    asked.page.write_text(page(record))
    print(f"Page: {asked.page}", *record.faults, sep="\n")
    return 1 if record.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
