"""`python -m fleet_run`: run it, and write docs/records/fleet-run.md and the picture build/fleet-run/run.svg."""

from __future__ import annotations

import argparse

from fleet_run.course import FleetRun
from fleet_run.evidence import faults
from fleet_run.page import page, remarks_of
from fleet_run.picture import picture
from fleet_run.record import Record
from fleet_run.scene import HOUR, Pace
from recording import parser, print_result
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import LAB


def main() -> int:
    """1 where a write went over the budget, a request was lost or a part failed; the page says so too."""
    options = _parser().parse_args()
    stored = options.directory / "record.json"
    if not options.page_only:
        options.directory.mkdir(parents=True, exist_ok=True)
        run = FleetRun(options.directory.absolute(), ensure_binaries(*LAB), Pace(options.minutes))
        run.run().write(stored)
    record = Record.read(stored)
    kept = remarks_of(options.page.read_text()) if options.page_only and options.page.is_file() else ""
    options.page.write_text(page(record, kept))
    (options.directory / "run.svg").write_text(picture(record))
    return print_result(options.page, faults(record))


def _parser() -> argparse.ArgumentParser:
    made = parser("fleet_run", __doc__, "fleet-run")
    add = made.add_argument
    add(
        "--minutes",
        type=float,
        default=HOUR,
        help="below 60 the same hour goes by faster, with fewer requests: a trial",
    )
    return made


if __name__ == "__main__":
    raise SystemExit(main())
