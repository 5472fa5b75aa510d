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
from dataclasses import asdict
from pathlib import Path

import orjson
from crew import Crew
from lies_work import LIES, REPORTS, WORLDS, Cell, cells
from rich.console import Console
from rich.table import Table
from work import Report

DEAR, WORSE = 1.3, 0.02
"""GPU-hours over those without the lie (and a replica-hour at least), and share of requests, of a cell that fails."""


def dear(found: Report) -> bool:
    """It costs too much."""
    return bool(found["hours"] > DEAR * found["hours_true"] and found["hours"] - found["hours_true"] >= 1.0)


def worse(found: Report) -> bool:
    """Its clients lose too much."""
    return bool(found["attained"] < found["attained_true"] - WORSE)


def computed(pieces: Sequence[Cell], jobs: int) -> dict[Cell, Report]:
    """All of them, as far as they are not kept from before."""
    crew = Crew(workers=jobs)
    found = crew.do(pieces, "lies")
    if crew.changed:
        raise SystemExit("The sources changed meanwhile: run it again, so that all figures are of the same state.")
    return {piece: found[piece] for piece in pieces}


def drawn(pieces: Sequence[Cell], count: int) -> list[Cell]:
    """So many of them, always the same ones."""
    return sorted(pieces, key=lambda one: hashlib.sha256(repr(one).encode()).digest())[:count]


def table(found: dict[Cell, Report]) -> list[list[str]]:
    """A row each, the dearest first."""
    order = sorted(found.items(), key=lambda each: each[1]["hours_true"] - each[1]["hours"])
    return [HEADER, *([*_cell_said(piece), *_found_said(each)] for piece, each in order)]


HEADER = ["world", "figure", "lie", "who", "how long", "GPU-hours", "attained", "highest", "at max", "told", "names it"]


def _cell_said(cell: Cell) -> list[str]:
    return [cell.slug, cell.figure or REPORTS[cell.slug].title, cell.how, cell.who, cell.span]


def _found_said(found: Report) -> list[str]:
    return [
        f"{found['hours'] / found['hours_true']:.2f}x" + "!" * dear(found),
        f"{found['attained']:.1%} ({found['attained_true']:.1%})" + "!" * worse(found),
        f"{found['most']} ({found['most_true']})",
        f"{found['at_max']:.0f} min",
        "-" if found["told"] is None else f"{found['told']:.0f} min",
        "yes" if found["names"] else "no",
    ]


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
    asked = parser.parse_args()
    if asked.reports is not None:
        pieces = [Cell(name, "", "", "", "") for name in asked.reports or REPORTS]
    else:
        narrowed = any((asked.world, asked.lie, asked.who, asked.span))
        pieces = [
            one
            for one in cells(full=asked.full or narrowed)
            if (not asked.figure or any(part in one.figure for part in asked.figure))
            and one.slug in (asked.world or WORLDS)
            and one.how in (asked.lie or LIES)
            and one.who in (asked.who or one.who)
            and one.span in (asked.span or one.span)
        ]
        pieces = pieces if asked.draw is None else drawn(pieces, asked.draw)
    found = computed(pieces, asked.jobs)
    header, *rows = table(found)
    printed = Table(*header)
    for row in rows:
        printed.add_row(*row)
    Console(width=190).print(printed)
    if asked.explain or asked.reports is not None:
        for piece, each in found.items():
            print(f"{piece.slug} {piece.name}: {each['fleet']}\n    told: {each['said']}\n    {each['reason']}")
    print(summary(found))
    if asked.json:
        asked.json.write_bytes(orjson.dumps([{**asdict(one), **each} for one, each in found.items()]))


def summary(found: dict[Cell, Report]) -> str:
    """The bars."""
    each = list(found.values())
    untold = sum(one["told"] is None for one in each)
    return (
        f"{len(each)} cells: {sum(map(dear, each))} above {DEAR:g}x GPU-hours, {sum(map(worse, each))} more than "
        f"{100 * WORSE:g} points below the truth's attainment, {untold} never told"
    )


if __name__ == "__main__":
    main()
