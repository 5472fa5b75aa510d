"""The picture of two operators that share pools: who wrote what when, as the API server's audit log has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from servingpool_lab.audit import Write
from servingpool_simulation.report.drawing import style, svg
from servingpool_simulation.report.palette import BLUE, FAINT, INK, VERMILION

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "shards.svg"
COLORS = (BLUE, VERMILION)
MARKS: Mapping[str, tuple[str, str, float]] = {
    "deployments/scale": ("replicas", "o", 7.0),
    "servingpools/status": ("status", "|", 11.0),
}
"""What each write is called, its mark and its size, by resource."""


def picture(writes: Sequence[Write], share: Mapping[str, set[str]], killed: float, inherited: float) -> str:
    """SVG with a row for each pool. `share` has the pools of each operator, of whom the first was `killed`.

    `killed` and `inherited`, the time of the heir's first scale order, are Unix times in seconds.
    """
    rows = {pool: row for row, pool in enumerate(pool for own in share.values() for pool in sorted(own))}
    colors = dict(zip(share, COLORS, strict=True))
    with style():
        figure = Figure(figsize=(9.6, 3.6))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.08, right=0.98, top=0.80, bottom=0.13)
        for row in rows.values():
            axes.axhline(row, color=FAINT, linewidth=0.6, zorder=0)
        for write in writes:
            if write.resource in MARKS and write.name in rows and (account := _account(write)) in colors:
                _, mark, size = MARKS[write.resource]
                axes.plot(write.seconds - killed, rows[write.name], mark, color=colors[account], markersize=size)
        for at, said, side, dash in (
            (0.0, f"kill of {next(iter(share))}", "left", "-"),
            (inherited - killed, f"first order of its heir, {inherited - killed:.1f} s later", "right", "--"),
        ):
            axes.axvline(at, color=INK, linewidth=1.0, linestyle=dash)
            axes.annotate(said, (at, 1.02), xycoords=("data", "axes fraction"), ha=side, va="bottom", fontsize=9)
        axes.set_yticks(list(rows.values()), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False)
        axes.set_xlabel("seconds from the kill")
        figure.legend(
            handles=[
                Line2D([], [], color=color, marker=mark, markersize=size, linestyle="", label=f"{said} by {account}")
                for account, color in colors.items()
                for said, mark, size in MARKS.values()
            ],
            loc="upper left",
            ncols=4,
            frameon=False,
            fontsize=9,
        )
        return svg(
            figure, name="shards", title="Writes of two operators that share eight pools, one of which is killed"
        )


def _account(write: Write) -> str:
    return write.user.rpartition(":")[2]
