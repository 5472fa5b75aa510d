"""Attainment against cost: every policy a point, fixed fleets and the tuned HPA as curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from servingpool_simulation.demo import Comparison, Role
from servingpool_simulation.report.drawing import Label, label_points, style, svg
from servingpool_simulation.report.miss_scale import miss_scale, misses
from servingpool_simulation.report.palette import MUTED, STATIC, TUNED, looks
from servingpool_simulation.run import Result

FIXED = (Role.HINDSIGHT, Role.PEAK)
"""They are points of the curve of fixed fleets."""


def frontier(comparison: Comparison) -> str:
    """SVG; up and to the left is better. The scale is of misses, so that 99% and 99.9% can be told apart."""
    with style():
        figure = Figure(figsize=(9.6, 4.6))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.085, right=0.80, top=0.93, bottom=0.115)
        _scale(axes, comparison)
        sizes = [f"{result.score.peak_replicas}" for result in comparison.statics]
        _curve(axes, comparison.statics, STATIC, "fixed fleets,\nby replicas", sizes)
        targets = [result.policy.rpartition(" ")[2] for result in comparison.tuned]
        _curve(axes, comparison.tuned, TUNED, "HPA, by target", targets)
        points = [(entry, look) for entry, look in looks(comparison).items() if entry.role not in FIXED]
        for entry, look in points:
            size = 11 if entry.role is Role.OURS else 8
            at = (entry.result.score.gpu_hours, _misses(entry.result))
            axes.plot(*at, marker=look.marker, markersize=size, color=look.color, markeredgecolor="white", zorder=4)
        label_points(
            axes,
            [
                (
                    entry.result.score.gpu_hours,
                    Label(_misses(entry.result), entry.label, look.color, entry.role is Role.OURS),
                )
                for entry, look in points
            ],
        )
        return svg(figure, name="frontier", title="Attainment against GPU-hours of every policy")


def _curve(axes: Axes, results: Sequence[Result], color: str, name: str, marks: Sequence[str]) -> None:
    cost = [result.score.gpu_hours for result in results]
    late = [_misses(result) for result in results]
    axes.plot(cost, late, color=color, linewidth=1.0, marker=".", markersize=6, zorder=1)
    for x, y, mark in zip(cost, late, marks, strict=True):
        axes.annotate(mark, (x, y), xytext=(3, -10), textcoords="offset points", fontsize=8, color=color)
    first = int(np.argmin(late))
    axes.annotate(
        name,
        (cost[first], late[first]),
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color=color,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
    )


def _misses(result: Result) -> float:
    return misses(result.score.attainment, result.score.requests)


def _scale(axes: Axes, comparison: Comparison) -> None:
    results = (*comparison.statics, *comparison.tuned, *(entry.result for entry in comparison.entries))
    miss_scale(axes, comparison.setup.pool.slo, [_misses(result) for result in results])
    axes.set_xlim(0, max(result.score.gpu_hours for result in results) * 1.06)
    axes.set_title("Up and to the left is better")
    axes.tick_params(colors=MUTED)
