"""`python -m afternoon`: run it, and write docs/records/afternoon.md."""

from __future__ import annotations

import argparse

from afternoon.course import Afternoon, Minutes
from afternoon.evidence import faults
from afternoon.page import PICTURE, page
from afternoon.picture import picture
from afternoon.record import Record
from recording import parser, print_result
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import LAB


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
    return print_result(options.page, faults(record))


def _parser() -> argparse.ArgumentParser:
    made = parser("afternoon", __doc__, "afternoon")
    add = made.add_argument
    add("--hpa", type=float, default=25.0, help="minutes under the HPA (10 or more: suggest wants a history)")
    add("--recommend", type=float, default=10.0, help="minutes in Recommend mode")
    add("--auto", type=float, default=60.0, help="minutes in Auto")
    add("--released", type=float, default=4.0, help="minutes under the HPA again")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
