"""The charts of the report: the history beside what Auto would have done."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from servingpool.decision.params import HOUR
from servingpool.recording.format import Floats
from servingpool_backtest.curves import Curves, Seconds
from servingpool_simulation.report.drawing import Label, stacked, style, svg
from servingpool_simulation.report.figures import latency
from servingpool_simulation.report.palette import AREA, BLUE, GREEN, INK, MUTED, ORANGE


def course(found: Curves) -> str:
    """SVG: load, replicas, TTFT, TPOT, one above the other."""
    panels = (_load, _replicas, _ttft, _tpot)
    began = datetime.fromtimestamp(found.scored_from, UTC)
    wide, below = (found.scored_until - found.scored_from) / HOUR, f"hours since {began:%Y-%m-%d %H:%M} UTC"
    with style():
        figure = stacked(panels, found, wide=wide, below=below)
        return svg(figure, name="course", title="Course of the backtest")


def _hours(found: Curves) -> Floats:
    return (np.array(found.at) - found.scored_from) / HOUR


def _load(axes: Axes, found: Curves) -> list[Label]:
    rate = np.array(found.observed.requests) / found.width
    axes.fill_between(_hours(found), rate, step="post", color=AREA, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_title("Load: requests that began each second, mean of 5 minutes")
    axes.set_ylabel("requests/s")
    return [Label(float(rate[-1]), "requests", MUTED)]


def _replicas(axes: Axes, found: Curves) -> list[Label]:
    at = (np.array(found.auto.at) - found.scored_from) / HOUR
    axes.fill_between(at, found.auto.ready, step="post", color=BLUE, alpha=0.16, linewidth=0)
    axes.step(at, found.auto.requested, where="post", color=BLUE, linewidth=1.6, zorder=3)
    axes.step(_hours(found), found.serving, where="post", color=ORANGE, linewidth=1.4)
    labels = [
        Label(found.auto.requested[-1], "Auto, requested", BLUE, bold=True),
        Label(found.serving[-1], "as it was", ORANGE),
    ]
    most = max(*found.auto.requested, *found.serving)
    if found.rule is not None:
        at = (np.array(found.rule.at) - found.scored_from) / HOUR
        axes.step(at, found.rule.requested, where="post", color=GREEN, linewidth=1.2, linestyle=(0, (1.2, 1.2)))
        labels.append(Label(found.rule.requested[-1], "its rule", GREEN))
        most = max(most, *found.rule.requested)
    axes.set_ylim(0, most * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_title("Replicas; shaded: those of Auto that were ready")
    axes.set_ylabel("replicas")
    return labels


def _ttft(axes: Axes, found: Curves) -> list[Label]:
    axes.set_title("Mean time to first token (log scale)")
    return _latency(axes, found, found.observed.ttft, found.replayed.ttft, found.slo.time_to_first_token)


def _tpot(axes: Axes, found: Curves) -> list[Label]:
    axes.set_title("Mean time per output token (log scale)")
    return _latency(axes, found, found.observed.tpot, found.replayed.tpot, found.slo.time_per_output_token)


def _latency(axes: Axes, found: Curves, observed: Seconds, auto: Seconds, bound: float | None) -> list[Label]:
    axes.set_yscale("log")
    labels = []
    for seconds, text, color in ((observed, "observed", ORANGE), (auto, "Auto", BLUE)):
        values = np.array(seconds, dtype=np.float64)  # NaN for None
        axes.plot(_hours(found), values, color=color, linewidth=1.4)
        seen = values[~np.isnan(values)]
        if len(seen):
            labels.append(Label(float(seen[-1]), text, color, bold=color == BLUE))
    if bound is not None:
        axes.axhline(bound, color=INK, linewidth=1.0)
        labels.append(Label(bound, f"SLO: {latency(bound)}", INK))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: latency(value)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    return labels
