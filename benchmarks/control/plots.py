"""The plots of the benchmark, as SVG that is the same on every run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from results import CaseResults, Run, run_of

from servingpool_simulation.report.drawing import Label, apart, label_lines, steps, style, svg
from servingpool_simulation.report.figures import latency, percent, target
from servingpool_simulation.report.miss_scale import miss_scale, misses
from servingpool_simulation.report.palette import BLUE, FAINT, GREEN, INK, MUTED, ORANGE, VERMILION

STATIC = "#6e7781"
SKY = "#3d8fc4"
_MOST_RATIO = 5.0
"""Times the oracle's GPU-hours at which the summary ends; what is beyond is drawn at its edge."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How one kind of policy is drawn in the summary and on the frontier."""

    label: str
    color: str
    shape: str
    size: float = 7.0


OURS = Mark("ServingPool, one default for all, knows nothing at the start", BLUE, "o", 10.0)
DEFAULT = Mark("cheapest baseline that holds the SLO with its defaults", VERMILION, "s")
TUNED = Mark("cheapest baseline tuned in hindsight for that very trace", ORANGE, "^", 7.5)
FIXED = Mark("best static fleet in hindsight", STATIC, "D", 5.5)

ROOM = 1.3
"""Ratio from which on a word fits between a point and the names at the left."""


def summary(found: Sequence[CaseResults]) -> str:
    """GPU-hours over the oracle's, all cases: ours and the best that a user could have instead."""
    shown = [results for results in found if results.oracle is not None and results.our(history=False)]
    with style():
        figure = Figure(figsize=(9.6, 1.45 + 0.27 * len(shown)))
        axes = figure.subplots()
        height = figure.get_figheight()
        figure.subplots_adjust(left=0.30, right=0.97, top=1 - 1.0 / height, bottom=0.45 / height)
        axes.set_xscale("log")
        axes.set_xlim(0.93, _MOST_RATIO * 1.04)
        axes.xaxis.set_major_locator(FixedLocator((1.0, 1.2, 1.5, 2.0, 3.0, 4.0, _MOST_RATIO)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}x"))
        axes.grid(visible=True, axis="x")
        axes.axvline(1.0, color=INK, linewidth=1.0)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_yticks(range(len(shown)), [results.case.title for results in shown])
        axes.tick_params(axis="y", length=0, colors=INK)
        axes.spines["left"].set_visible(False)
        for row, results in enumerate(shown):
            _summarised(axes, row, results)
        axes.set_xlabel("GPU-hours, times those of an oracle fleet (log scale)")
        figure.text(0.01, 1 - 0.24 / height, "What holding the latency SLO costs", fontsize=12, fontweight="bold")
        handles = [
            Line2D(
                [], [], color=mark.color, marker=mark.shape, markersize=mark.size * 0.8, linestyle="", label=mark.label
            )
            for mark in (OURS, DEFAULT, TUNED, FIXED)
        ]
        figure.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.0, 1 - 0.30 / height),
            ncols=2,
            frameon=False,
            fontsize=9,
        )
        return svg(figure, name="summary", title="GPU-hours of each policy relative to the oracle, by case")


def _summarised(axes: Axes, row: int, results: CaseResults) -> None:
    axes.axhline(row, color=FAINT, linewidth=0.6, zorder=0)
    default, tuned, ours = results.best_default(), results.best_tuned(), results.our(history=False)
    others = ((FIXED, results.static), (TUNED, run_of(tuned)), (DEFAULT, run_of(default)))
    for mark, run in others:
        if run is not None:
            _point(axes, row, mark, results.relative(run))
    if default is None and results.baselines:
        axes.annotate(
            "no baseline holds it with defaults",
            (_MOST_RATIO, row),
            ha="right",
            va="center",
            fontsize=8,
            color=VERMILION,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
    assert ours is not None
    ratio = results.relative(ours)
    _point(axes, row, OURS, ratio, hollow=not ours.held)
    if not ours.held and ratio is not None:
        left = ratio > ROOM
        axes.annotate(
            f"missed: {percent(ours.attainment)}",
            (ratio, row),
            xytext=(-8, 0) if left else (8, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=BLUE,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )


def _point(axes: Axes, row: int, mark: Mark, ratio: float | None, *, hollow: bool = False) -> None:
    if ratio is None:
        return
    beyond = ratio > _MOST_RATIO
    axes.plot(
        min(ratio, _MOST_RATIO),
        row,
        marker=mark.shape,
        markersize=mark.size,
        color=mark.color,
        markerfacecolor="white" if hollow else mark.color,
        markeredgecolor=mark.color if hollow else "white",
        markeredgewidth=1.6 if hollow else 0.8,
        zorder=5 if mark is OURS else 4,
        clip_on=False,
    )
    if beyond:
        axes.annotate(
            f"{ratio:.1f}x",
            (_MOST_RATIO, row),
            xytext=(-7, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            color=mark.color,
        )


def frontier(results: CaseResults) -> str:
    """Attainment against GPU-hours: every policy a point; up and to the left is better."""
    runs = list(_frontier_points(results))
    tuned = [run for baseline in results.baselines.values() for run in baseline.tried.values()]
    everything = [*(run for _, run, _ in runs), *tuned, *results.fleets]
    with style():
        figure = Figure(figsize=(9.6, 5.4))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.085, right=0.76, top=0.93, bottom=0.10)
        _miss_scale(axes, results, everything)
        cost = [run.cost for run in results.fleets]
        axes.plot(cost, [_misses(run) for run in results.fleets], color=STATIC, linewidth=1.2, marker=".", zorder=2)
        for run in results.fleets:
            axes.annotate(
                f"{run.score['peak_replicas']}", (run.cost, _misses(run)), xytext=(3, -10), textcoords="offset points",
                fontsize=8, color=STATIC,
            )  # fmt: skip
        for baseline in results.baselines.values():
            values = list(baseline.tried.values())
            if len(values) > 1:
                line = sorted(values, key=lambda run: run.cost)
                axes.plot(
                    [run.cost for run in line], [_misses(run) for run in line],
                    color=ORANGE, alpha=0.45, linewidth=0.7, marker="^", markersize=3, markeredgewidth=0, zorder=1,
                )  # fmt: skip
        for _, run, mark in runs:
            axes.plot(
                run.cost, _misses(run), marker=mark.shape, markersize=mark.size, color=mark.color,
                markeredgecolor="white", zorder=6 if mark.color == BLUE else 4,
            )  # fmt: skip
        _label_points(axes, runs)
        axes.annotate(
            "grey: fixed fleets, by replicas; orange: baselines at other values of their parameter",
            (0.0, 1.0), xycoords="axes fraction", xytext=(6, -10), textcoords="offset points", fontsize=8, color=MUTED,
        )  # fmt: skip
        title = f"{results.case.title}: attainment against GPU-hours"
        return svg(figure, name=f"frontier-{results.case.slug}", title=title)


def _label_points(axes: Axes, runs: Sequence[tuple[str, Run, Mark]]) -> None:
    """Names beside the plot, each with a thin line to its point, apart from each other and none below the plot."""
    to_share = axes.transData + axes.transAxes.inverted()
    shares = {name: float(to_share.transform((run.cost, _misses(run)))[1]) for name, run, _ in runs}
    ordered = sorted(runs, key=lambda point: shares[point[0]])
    figure = axes.get_figure(root=True)
    assert figure is not None
    gap = 12.5 / (axes.get_position().height * figure.get_figheight() * 72)
    places = apart([shares[name] for name, _, _ in ordered], gap)
    for index, ((name, run, mark), place) in enumerate(zip(ordered, places, strict=True)):
        share = max(place, (index + 0.4) * gap)
        ours = mark.color == BLUE
        axes.annotate(
            "",
            xy=(run.cost, _misses(run)),
            xytext=(1.01, share),
            textcoords="axes fraction",
            arrowprops={
                "arrowstyle": "-",
                "color": mark.color,
                "alpha": 0.9 if ours else 0.45,
                "linewidth": 0.6,
                "shrinkA": 0,
                "shrinkB": 4,
            },
            annotation_clip=False,
        )
        axes.annotate(
            name,
            xy=(1.0, share),
            xycoords="axes fraction",
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=mark.color,
            fontweight="bold" if ours else "normal",
            annotation_clip=False,
        )


def _frontier_points(results: CaseResults) -> Iterator[tuple[str, Run, Mark]]:
    for history, name in ((False, "ServingPool"), (True, "ServingPool, with history")):
        run = results.our(history=history)
        if run is not None:
            yield name, run, Mark(name, BLUE, "o", 10.0 if not history else 8.0)
    if results.oracle is not None:
        yield "oracle", results.oracle, Mark("oracle", GREEN, "*", 13.0)
    for baseline in results.baselines.values():
        yield baseline.baseline.name, baseline.default, Mark(baseline.baseline.name, VERMILION, "s", 6.0)


def _misses(run: Run) -> float:
    return misses(run.attainment, int(run.score["requests"]))


def _miss_scale(axes: Axes, results: CaseResults, runs: Sequence[Run]) -> None:
    miss_scale(axes, results.case.slo, [_misses(run) for run in runs], least=1e-5)
    axes.set_xlim(0, max(run.cost for run in runs) * 1.04)
    axes.set_title(f"{results.case.title}: up and to the left is better")


@dataclass(frozen=True, slots=True)
class _Course:
    name: str
    course: Any
    color: str
    dash: str | tuple[int, tuple[float, ...]]
    width: float


def course(results: CaseResults) -> str:
    """Load, replicas and TTFT over time: ours and the oracle's."""
    lines = list(_courses(results))
    seconds = max(line.course["time"][-1] for line in lines)
    unit, name = (3600.0, "hours") if seconds > 2.5 * 3600 else (60.0, "minutes")
    with style():
        figure = Figure(figsize=(9.6, 6.2))
        load, fleet, latencies = figure.subplots(3, 1, sharex=True)
        figure.subplots_adjust(left=0.08, right=0.80, top=0.955, bottom=0.075, hspace=0.36)
        for axes in (load, fleet, latencies):
            axes.margins(x=0)
        label_lines(load, _load(load, results, lines[0], unit))
        label_lines(fleet, _fleets(fleet, results, lines, unit))
        label_lines(latencies, _latencies(latencies, results, lines, unit))
        latencies.set_xlim(0, math.ceil(seconds / 60) * 60 / unit)
        latencies.set_xlabel(name)
        return svg(figure, name=f"course-{results.case.slug}", title=f"{results.case.title}: course of the run")


def _courses(results: CaseResults) -> Iterator[_Course]:
    ours, knowing = results.our(history=False), results.our(history=True)
    if ours is not None and ours.course:
        yield _Course("ServingPool", ours.course, BLUE, "-", 1.8)
    if knowing is not None and knowing.course:
        yield _Course("with history", knowing.course, SKY, (0, (4.0, 1.5)), 1.2)
    if results.oracle is not None and results.oracle.course:
        yield _Course("oracle", results.oracle.course, GREEN, (0, (1.2, 1.0)), 1.4)


def _load(axes: Axes, results: CaseResults, line: _Course, unit: float) -> list[Label]:
    at, rate = np.divide(line.course["time"], unit), line.course["arrivals"]
    axes.fill_between(at, rate, step="post", color="#afb8c1", linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_title(f"{results.case.title}: requests that arrive each second")
    axes.set_ylabel("requests/s")
    return [Label(float(rate[-1]), "arrivals", MUTED)]


def _fleets(axes: Axes, results: CaseResults, lines: Sequence[_Course], unit: float) -> list[Label]:
    labels = []
    for line in lines:
        at, requested = np.divide(line.course["time"], unit), line.course["requested"]
        if line.color == BLUE:
            axes.fill_between(at, line.course["ready"], step="post", color=BLUE, alpha=0.15, linewidth=0)
        axes.step(at, requested, where="post", color=line.color, linestyle=line.dash, linewidth=line.width)
        labels.append(Label(requested[-1], line.name, line.color, line.color == BLUE))
    most = max(max(line.course["requested"]) for line in lines)
    if results.static_size is not None:
        axes.axhline(results.static_size, color=STATIC, linewidth=0.9, linestyle=(0, (6.0, 3.0)))
        labels.append(Label(results.static_size, f"best static: {results.static_size}", STATIC))
        most = max(most, results.static_size)
    axes.set_ylim(0, most * 1.1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_title("Replicas asked for; shaded: those of ServingPool that were ready")
    axes.set_ylabel("replicas")
    return labels


def _latencies(axes: Axes, results: CaseResults, lines: Sequence[_Course], unit: float) -> list[Label]:
    labels = []
    axes.set_yscale("log")
    for line in lines:
        values = steps(line.course["ttft"])
        seen = values[~np.isnan(values)]
        if len(seen):
            at = np.divide(line.course["time"], unit)
            axes.plot(at, values, color=line.color, linestyle=line.dash, linewidth=min(line.width, 1.4))
            labels.append(Label(float(seen[-1]), line.name, line.color, line.color == BLUE))
    bound = results.case.slo.time_to_first_token
    if bound is not None:
        axes.axhline(bound, color=INK, linewidth=1.0)
        labels.append(Label(bound, f"SLO: {latency(bound)}", INK))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else ""))
    axes.set_title(f"TTFT that {target(results.case.slo)} of requests stayed within, last minute (log scale)")
    axes.set_ylabel("TTFT, s")
    return labels
