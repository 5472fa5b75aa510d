"""`python -m fleet_run`: run it, and write docs/records/fleet-run.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from fleet_run.course import FleetRun
from fleet_run.evidence import faults
from fleet_run.page import PICTURE, page, remarks_of
from fleet_run.picture import picture
from fleet_run.record import Record
from fleet_run.scene import HOUR, Pace
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import LAB

ROOT = Path(__file__).parents[2]


def main() -> int:
    """1 where a write went over the budget, a request was lost or a part failed; the page says so too."""
    options = _parser().parse_args()
    stored = options.directory / "record.json"
    if not options.page_only:
        options.directory.mkdir(parents=True, exist_ok=True)
        run = FleetRun(options.directory.absolute(), ensure_binaries(*LAB), Pace(options.minutes))
        run.run().write(stored)
    record = Record.read(stored)
    drawn = options.page.parent / PICTURE
    drawn.parent.mkdir(parents=True, exist_ok=True)
    kept = remarks_of(options.page.read_text()) if options.page_only and options.page.is_file() else ""
    options.page.write_text(page(record, kept))
    drawn.write_text(picture(record))
    found = list(faults(record))
    print(f"Page: {options.page}", *found, sep="\n")  # noqa: T201, what a person reads
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleet_run", description=__doc__)
    add = parser.add_argument
    add(
        "--minutes",
        type=float,
        default=HOUR,
        help="below 60 the same hour goes by faster, with fewer requests: a trial",
    )
    add("--directory", type=Path, default=ROOT / "build" / "fleet-run", help="for everything but the page")
    add("--page", type=Path, default=ROOT / "docs" / "records" / "fleet-run.md")
    add("--page-only", action="store_true", help="write the page anew from the last run's record")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
