"""The figures of the matrix of lies as a table, and as a page with its picture: a heat map by figure and lie."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from lies_work import LIES, REPORTS, Cell
from matplotlib.figure import Figure
from tables import table
from work import Report

from servingpool_simulation.report.drawing import style, svg
from servingpool_simulation.report.palette import INK, MUTED

DEAR, WORSE = 1.3, 0.02
"""GPU-hours over those without the lie (and a replica-hour at least), and share of requests, of a cell that fails."""
MOVED = 1.05
"""GPU-hours over those without the lie from which on a lie is one that moves the fleet."""
WORST, DARKEST = 20, 24.0
"""Rows of the page's table, and the ratio of the darkest colour."""
Found = dict[Cell, Report]
PAGE = """\
# The matrix of lies

Written by `python benchmarks/control/lies.py --output docs/records/lies.md`. **Simulated; no GPU ran.**

One figure that a decision reads is wrong for an hour, at one replica or at all, after 20 minutes and before an hour of
truth. The figures are the fields of the observation's types that these worlds show; of the 17 lies of
`benchmarks/control/lies_work.py` it has seven. Two worlds, max 24: half a request/s on one replica (`half`), and ten on
three (`ten`). Each cell is compared with the same run without the lie, over the lie and the hour after it.

`!`: more than 1.3 times the GPU-hours and at least a replica-hour more, or more than 2 points of the clients'
attainment lost. Told: minutes until the pool says something of its metrics that it does not say without the lie, `-`
for never. Names it: it names the figure, or the pod of the one replica. Without the lie: in brackets.

Of what is never told, `no effect` cost not a GPU-second and no client: the pool does not decide by that figure, or what
it tells may be true, such as half of an empty queue. `moved the fleet` took 5% more GPU-hours, or made clients worse.

![GPU-hours over those without the lie, by figure and lie](lies.svg)

"""


def dear(found: Report) -> bool:
    """It costs too much."""
    return bool(found["hours"] > DEAR * found["hours_true"] and found["hours"] - found["hours_true"] >= 1.0)


def worse(found: Report) -> bool:
    """Its clients lose too much."""
    return bool(found["attained"] < found["attained_true"] - WORSE)


def rows(found: Found) -> list[list[str]]:
    """A row each, the dearest first."""
    order = sorted(found.items(), key=lambda each: each[1]["hours_true"] - each[1]["hours"])
    return [[*_cell_said(piece), *_found_said(each)] for piece, each in order]


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


def bars(found: Found) -> list[str]:
    """How many cells miss each bar."""
    each = list(found.values())
    untold = [one for one in each if one["told"] is None]
    alike = [one for one in untold if (one["hours"], one["attained"]) == (one["hours_true"], one["attained_true"])]
    moved = [one for one in untold if one["hours"] > MOVED * one["hours_true"] or worse(one)]
    held = [one for one in each if one["at_max"] > 30.0 and dear(one)]
    counts = (each, [*filter(dear, each)], [*filter(worse, each)], untold, alike, moved, held)
    return [str(len(one)) for one in counts]


BARS = ["cells", "dear", "clients worse", "never told", "no effect", "moved the fleet", "over 30 minutes at max"]


def write(path: Path, states: dict[str, tuple[Found, Found]]) -> None:
    """The page and its picture. Each state, such as `now`, has the matrix and the public reports."""
    parts = [PAGE + table(["", *BARS], [[name, *bars(cells)] for name, (cells, _) in states.items()])]
    for name, (cells, reports) in states.items():
        parts.append(f"## The worst {WORST}, {name}\n\n{table(HEADER, rows(cells)[:WORST])}")
        told = [[row[0], row[1], *row[5:]] for row in rows(reports)]
        parts.append(f"## Public reports, {name}\n\n{table(['', 'what', *HEADER[5:]], told)}")
        reasons = (f"- {one.slug}, fleet {each['fleet']}: {each['reason']}" for one, each in reports.items())
        parts.append("By ten minutes, and the reason at the highest fleet:\n\n" + "\n".join(reasons))
    path.write_text("\n\n".join(parts) + "\n")
    path.with_suffix(".svg").write_text(picture({name: cells for name, (cells, _) in states.items()}))


def picture(states: dict[str, Found]) -> str:
    """The greatest ratio of GPU-hours of each figure and lie, whatever the world and whoever lies."""
    cells = [one for found in states.values() for one in found]
    figures = list(dict.fromkeys(one.figure for one in cells))
    lies = [how for how in LIES if any(one.how == how for one in cells)]
    with style():
        figure = Figure(figsize=(5.0 * len(states) + 2.4, 0.26 * len(figures) + 1.4))
        for axes, (name, found) in zip(
            figure.subplots(1, len(states), sharey=True, squeeze=False)[0], states.items(), strict=True
        ):
            ratios = np.full((len(figures), len(lies)), np.nan)
            for one, each in found.items():
                place = figures.index(one.figure), lies.index(one.how)
                ratios[place] = np.fmax(ratios[place], each["hours"] / each["hours_true"])
            axes.imshow(np.log(np.fmax(ratios, 1.0)), cmap="Oranges", vmin=0.0, vmax=math.log(DARKEST), aspect="auto")
            for (row, column), ratio in np.ndenumerate(ratios):
                color = MUTED if ratio < DEAR else INK
                said = "" if math.isnan(ratio) else f"{ratio:.2g}"
                axes.text(column, row, said, ha="center", va="center", color=color, fontsize=8)
            axes.set_xticks(range(len(lies)), lies, rotation=30, ha="right")
            axes.set_yticks(range(len(figures)), figures)
            axes.grid(visible=False)
            axes.set_title(f"GPU-hours over those without the lie, {name}")
        figure.tight_layout()
        return svg(figure, name="lies", title="GPU-hours over those without the lie, by figure and lie")
