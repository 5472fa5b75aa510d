"""`python -m afternoon`: run it, and write docs/records/afternoon.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from afternoon.course import Afternoon, Minutes
from afternoon.evidence import faults
from afternoon.page import PICTURE, page
from afternoon.picture import picture
from afternoon.record import Record
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import LAB

ROOT = Path(__file__).parents[2]


def main() -> int:
    """1 where a request was lost or two wrote at once; the page says so too."""
    options = _parser().parse_args()
    stored = options.directory / "record.json"
    if not options.page_only:
        options.directory.mkdir(parents=True, exist_ok=True)
        minutes = Minutes(options.hpa, options.recommend, options.auto, options.released)
        Afternoon(options.directory.absolute(), ensure_binaries(*LAB), minutes).run().write(stored)
    record = Record.read(stored)
    options.page.write_text(page(record))
    (options.page.parent / PICTURE).write_text(picture(record))
    found = list(faults(record))
    print(f"Page: {options.page}", *found, sep="\n")  # noqa: T201, what a person reads
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m afternoon", description=__doc__)
    add = parser.add_argument
    add("--hpa", type=float, default=25.0, help="minutes under the HPA (10 or more: suggest wants a history)")
    add("--recommend", type=float, default=10.0, help="minutes in Recommend mode")
    add("--auto", type=float, default=60.0, help="minutes in Auto")
    add("--released", type=float, default=4.0, help="minutes under the HPA again")
    add("--directory", type=Path, default=ROOT / "build" / "afternoon", help="for everything but the page")
    add("--page", type=Path, default=ROOT / "docs" / "records" / "afternoon.md")
    add("--page-only", action="store_true", help="write the page anew from the last run's record")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
