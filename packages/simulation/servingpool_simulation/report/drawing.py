"""What all plots share: a plain style, labels beside the lines, SVG that is the same on every run."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from servingpool_simulation.report.palette import FAINT, GRID, INK, MUTED
from servingpool_simulation.tables import Floats

T = TypeVar("T")

_STYLE: dict[Any, Any] = {  # matplotlib types the keys as a literal of all its settings
    "svg.fonttype": "none",  # text stays text: smaller, searchable, read by screen readers
    "svg.hashsalt": "servingpool",  # ids would be random
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.0,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "lines.solid_joinstyle": "round",
}


def style() -> AbstractContextManager[None]:
    """The look of a plot; wrap drawing and writing in it."""
    return mpl.rc_context(_STYLE)


@dataclass(frozen=True, slots=True)
class Label:
    """What a line is called, at its right end."""

    at: float
    text: str
    color: str
    bold: bool = False


def stacked(panels: Sequence[Callable[[Axes, T], Iterable[Label]]], shown: T, *, wide: float, below: str) -> Figure:
    """Panels of what is `shown`, one above the other, on one axis of time from 0 to `wide`, named `below`.

    Within `style`. Each panel draws into its axes and gives the labels of its lines.
    """
    figure = Figure(figsize=(9.6, 1.95 * len(panels) + 0.35))
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    bottom = 0.45 / figure.get_figheight()
    figure.subplots_adjust(left=0.08, right=0.80, top=1 - bottom * 0.62, bottom=bottom, hspace=0.42)
    for axes, panel in zip(rows, panels, strict=True):
        axes.margins(x=0)
        label_lines(axes, panel(axes, shown))
    rows[-1].set_xlim(0, wide)
    rows[-1].set_xlabel(below)
    return figure


def label_lines(axes: Axes, labels: Iterable[Label]) -> None:
    """Writes them beside the plot, moved apart where they would overlap. Call it when all is drawn."""
    for label, share in _placed(axes, list(labels)):
        _write(axes, label, share)


def label_points(axes: Axes, points: Iterable[tuple[float, Label]]) -> None:
    """The same for points, (x, label) each, with a thin line from each to its label."""
    at = {label: x for x, label in points}
    for label, share in _placed(axes, list(at)):
        axes.annotate(
            "",
            xy=(at[label], label.at),
            xytext=(1.005, share),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": label.color, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 5},
            annotation_clip=False,
        )
        _write(axes, label, share)


def _placed(axes: Axes, labels: list[Label]) -> list[tuple[Label, float]]:
    """(label, height as a share of the plot)."""
    axes.get_ylim()  # limits that follow the data are settled when they are asked for
    to_share = axes.transData + axes.transAxes.inverted()
    shares = {label: float(to_share.transform((1.0, label.at))[1]) for label in labels}
    ordered = sorted(labels, key=lambda label: shares[label])
    figure = axes.get_figure(root=True)
    assert figure is not None
    height = axes.get_position().height * figure.get_figheight() * 72  # points
    return list(zip(ordered, apart([shares[label] for label in ordered], gap=12.5 / height), strict=True))


def _write(axes: Axes, label: Label, share: float) -> None:
    axes.annotate(
        label.text,
        xy=(1.0, share),
        xycoords="axes fraction",
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=label.color,
        fontweight="bold" if label.bold else "normal",
        annotation_clip=False,
    )


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places, moved as little as needed to be `gap` apart: neighbours that collide share their mean."""
    clusters: list[tuple[float, int]] = []  # (centre, members)
    for place in places:
        clusters.append((place, 1))
        while len(clusters) > 1:
            (low, few), (high, many) = clusters[-2:]
            if high - low >= gap * (few + many) / 2:
                break
            clusters[-2:] = [((low * few + high * many) / (few + many), few + many)]
    return [centre + (index - (size - 1) / 2) * gap for centre, size in clusters for index in range(size)]


def steps(values: Sequence[float | None]) -> Floats:
    """A series with gaps where there is no figure."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def svg(figure: Figure, *, name: str, title: str) -> str:
    """The figure as an `<svg>` element. `name` keeps its ids apart from those of others on one page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Creator": None, "Date": None, "Format": None, "Type": None})
    element = text.getvalue()
    element = element[element.index("<svg") :]
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", element)
    return element.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
