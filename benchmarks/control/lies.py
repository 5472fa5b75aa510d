"""The matrix of lies: one figure that is read is wrong, and the plant tells what that costs its owner and its clients.

    python benchmarks/control/lies.py                              # the thin slice, 25 minutes of one processor
    python benchmarks/control/lies.py --figure waiting --world half --lie +3    # some cells of the whole matrix
    python benchmarks/control/lies.py --full --draw 200            # 200 cells of it, always the same ones
    python benchmarks/control/lies.py --reports R1 R6              # public reports, with their fleet by ten minutes
    python benchmarks/control/lies.py --reports                    # all of them

`--explain` prints what was said of the metrics, and the decision's reason at the highest fleet. Results are kept as
the guard's are, so a second run computes what changed. `--json` writes the figures, `--output` a page with its picture,
`--before` names the figures that the page compares with.

GPU-hours: over those of the same run without the lie, `!` above the bar. Attained: by the clients, of the plant's truth
(in brackets without the lie). Told: minutes until the pool says something of its metrics that it does not say without
the lie, `-` for never. Names it: whether it names the figure, or of one replica its pod.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import orjson
from crew import Crew
from lies_page import BARS, HEADER, Found, bars, rows, write
from lies_work import LIES, MATRIX, REPORTS, Cell, cells
from rich.console import Console
from rich.table import Table


def computed(pieces: Sequence[Cell], jobs: int) -> Found:
    """All of them, as far as they are not kept from before."""
    crew = Crew(workers=jobs)
    found = crew.do(pieces, "lies")
    if crew.changed:
        raise SystemExit("The sources changed meanwhile: run it again, so that all figures are of the same state.")
    return {piece: found[piece] for piece in pieces}


def drawn(pieces: Sequence[Cell], count: int) -> list[Cell]:
    """So many of them, always the same ones."""
    return sorted(pieces, key=lambda one: hashlib.sha256(repr(one).encode()).digest())[:count]


def main() -> None:
    """Compute, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("figure", "world", "lie", "who", "span"):
        parser.add_argument(f"--{name}", nargs="+", help="only these; of a figure, a part of its name")
    parser.add_argument("--full", action="store_true", help="the whole matrix instead of the thin slice")
    parser.add_argument("--draw", type=int, help="so many of the cells")
    parser.add_argument("--reports", nargs="*", metavar="NAME", help=f"public reports instead: {', '.join(REPORTS)}")
    parser.add_argument(
        "--explain", action="store_true", help="print what was said, and the reason at the highest fleet"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, help="write the figures")
    parser.add_argument("--output", type=Path, help="play reports too and write a page: docs/records/lies.md")
    parser.add_argument(
        "--before", type=Path, help="figures that the page compares with, of a run with --json --output"
    )
    asked = parser.parse_args()
    reports = [Cell(name, "", "", "", "") for name in asked.reports or REPORTS]
    narrowed = any((asked.world, asked.lie, asked.who, asked.span))
    pieces = [
        one
        for one in (cells(full=asked.full or narrowed) if asked.reports is None else ())
        if (not asked.figure or any(part in one.figure for part in asked.figure))
        and one.slug in (asked.world or MATRIX)
        and one.how in (asked.lie or LIES)
        and one.who in (asked.who or one.who)
        and one.span in (asked.span or one.span)
    ]
    pieces = pieces if asked.draw is None else drawn(pieces, asked.draw)
    pieces += reports if asked.output or asked.reports is not None else []
    found = computed(pieces, asked.jobs)
    printed = Table(*HEADER)
    for row in rows(found):
        printed.add_row(*row)
    Console(width=190).print(printed)
    if asked.explain or asked.reports is not None:
        for piece, each in found.items():
            print(f"{piece.slug} {piece.name}: {each['fleet']}\n    told: {each['said']}\n    {each['reason']}")
    print(", ".join(f"{name}: {count}" for name, count in zip(BARS, bars(found), strict=True)))
    if asked.json:
        asked.json.write_bytes(orjson.dumps([{**asdict(one), **each} for one, each in found.items()]))
    if asked.output:
        before = {} if asked.before is None else {"before": parted(read(asked.before))}
        write(asked.output, {**before, "now": parted(found)})


def read(path: Path) -> Found:
    """What `--json` wrote."""
    names = [one.name for one in fields(Cell)]
    found = orjson.loads(path.read_bytes())
    return {Cell(*(one[name] for name in names)): one for one in found}


def parted(found: Found) -> tuple[Found, Found]:
    """The matrix, and the public reports."""
    return {one: each for one, each in found.items() if one.figure}, {
        one: each for one, each in found.items() if not one.figure
    }


if __name__ == "__main__":
    main()
