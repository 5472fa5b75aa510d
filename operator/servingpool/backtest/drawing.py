"""The charts of the report: the history beside what Auto would have done."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from servingpool.backtest.recording import Floats
from servingpool.backtest.result import Backtest
from servingpool_simulation.report.drawing import Label, stacked, style, svg
from servingpool_simulation.report.figures import latency, target
from servingpool_simulation.report.palette import BLUE, GREEN, INK, MUTED, ORANGE

HOUR = 3600.0


def course(found: Backtest) -> str:
    """SVG: load, replicas, TTFT, TPOT, attainment, one above the other."""
    panels = (_load, _replicas, _ttft, _tpot, _attainment)
    began = datetime.fromtimestamp(found.scored_from, UTC)
    wide, below = (found.scored_until - found.scored_from) / HOUR, f"hours since {began:%Y-%m-%d %H:%M} UTC"
    with style():
        figure = stacked(panels, found, wide=wide, below=below)
        return svg(figure, name="course", title="Course of the backtest")


def _hours(found: Backtest) -> Floats:
    return (found.observed.at - found.scored_from) / HOUR


def _load(axes: Axes, found: Backtest) -> list[Label]:
    rate = found.observed.requests / found.observed.width
    axes.fill_between(_hours(found), rate, step="post", color="#afb8c1", linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_title("Load: requests that began each second, mean of 5 minutes")
    axes.set_ylabel("requests/s")
    return [Label(float(rate[-1]), "requests", MUTED)]


def _replicas(axes: Axes, found: Backtest) -> list[Label]:
    at = (np.array(found.auto.at) - found.scored_from) / HOUR
    axes.fill_between(at, found.auto.ready, step="post", color=BLUE, alpha=0.16, linewidth=0)
    axes.step(at, found.auto.requested, where="post", color=BLUE, linewidth=1.6, zorder=3)
    axes.step(_hours(found), found.observed.serving, where="post", color=ORANGE, linewidth=1.4)
    labels = [
        Label(found.auto.requested[-1], "Auto, ordered", BLUE, bold=True),
        Label(float(found.observed.serving[-1]), "as it was", ORANGE),
    ]
    most = max(*found.auto.requested, float(found.observed.serving.max()))
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


def _ttft(axes: Axes, found: Backtest) -> list[Label]:
    bound = found.question.pool.slo.time_to_first_token
    axes.set_title("Mean time to first token (log scale)")
    return _latency(axes, found, found.observed.ttft, found.bins.ttft, bound)


def _tpot(axes: Axes, found: Backtest) -> list[Label]:
    bound = found.question.pool.slo.time_per_output_token
    axes.set_title("Mean time per output token (log scale)")
    return _latency(axes, found, found.observed.tpot, found.bins.tpot, bound)


def _latency(axes: Axes, found: Backtest, observed: Floats, auto: Floats, bound: float | None) -> list[Label]:
    axes.set_yscale("log")
    labels = []
    for values, text, color in ((observed, "observed", ORANGE), (auto, "Auto", BLUE)):
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


def _attainment(axes: Axes, found: Backtest) -> list[Label]:
    goal, labels, lowest = found.question.pool.slo.attainment, [], found.question.pool.slo.attainment
    scored = found.observed.at >= found.scored_from
    of_auto = found.bins
    for requests, late, text, color in (
        (found.observed.requests, found.observed.late, "observed", ORANGE),
        (of_auto.requests, of_auto.late, "Auto", BLUE),
    ):
        so_far = np.cumsum(requests * scored)
        share = np.where(so_far > 0, 1.0 - np.cumsum(late * scored) / np.maximum(so_far, 1.0), np.nan)
        axes.plot(_hours(found), share, color=color, linewidth=1.6)
        seen = share[~np.isnan(share)]
        if len(seen):
            labels.append(Label(float(seen[-1]), text, color, bold=color == BLUE))
            lowest = min(lowest, float(seen[-1]))
    axes.axhline(goal, color=INK, linewidth=1.0)
    labels.append(Label(goal, f"SLO: {target(found.question.pool.slo)}", INK))
    axes.set_ylim(max(0.0, lowest - 0.35 * (1.02 - lowest)), 1.0 + 0.03 * (1.02 - lowest))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Attainment so far: share of requests within every bound")
    axes.set_ylabel("attained")
    return labels
